"""Other seeds: does what the book says of random experiments hold for them? `nox -s seeds` asks."""
