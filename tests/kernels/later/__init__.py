"""What is too long for the default run; `nox -s kernels` runs it in the interpreter, a GPU as all the rest."""
