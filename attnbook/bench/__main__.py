"""Sets how idle threads wait, before anything loads torch, and runs the command."""

import os
import sys

# Threads that spin while they wait make a run with a busy neighbour up to 13 times slower. Read once, at loading.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from attnbook.bench.command import main

sys.exit(main())
