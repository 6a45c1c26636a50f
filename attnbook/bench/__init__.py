"""How fast the package is, against what a user would pick instead: ratios of one run, with the verdict on each.

`python -m attnbook.bench` measures. A ratio is only taken from two results that agree, and only of times that were
measured in turns, so that a busy neighbour slows both sides. Nothing here imports torch until a case runs: the thread
pool reads OMP_WAIT_POLICY once, when it is loaded.
"""
