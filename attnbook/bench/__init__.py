"""How fast the package is, against what a user would pick instead: ratios of one run, with the verdict on each.

`attnbook bench` measures, on the CPU or on a GPU. A ratio is only taken from two results that agree, and only of times
that were measured in turns, so that a busy neighbour slows both sides. Nothing here imports torch until a case runs:
the thread pool reads OMP_WAIT_POLICY once, when it is loaded.
"""

import os


def let_threads_sleep() -> None:
    """Let idle threads wait without spinning, unless the environment says how; before torch is loaded.

    Threads that spin make a run with a busy neighbour up to 13 times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
