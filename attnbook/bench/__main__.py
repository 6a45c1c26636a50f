"""Sets how idle threads wait, before anything loads torch, and runs the command."""

import sys

from attnbook.bench import let_threads_sleep

let_threads_sleep()

from attnbook.bench.command import main  # noqa: E402 (it is what comes before that matters)

sys.exit(main())
