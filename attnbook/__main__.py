"""`python -m attnbook` is the same as the command `attnbook`."""

import sys

from attnbook.cli import main

if __name__ == "__main__":
    sys.exit(main())
