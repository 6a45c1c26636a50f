"""`python -m tests.kernels`: see `tests.kernels.run`; what is spawned finds functions there, not in a main."""

import sys

from tests.kernels.run import main

if __name__ == "__main__":
    sys.exit(main())
