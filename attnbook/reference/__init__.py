"""Reference attention in its readable form."""
