"""Where the kernels of this process run."""

import os

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""The GPU, or else the CPU, where Triton's interpreter reads the same memory."""

INTERPRETED = os.environ.get("TRITON_INTERPRET", "") == "1"

RUNS = DEVICE == "cuda" or INTERPRETED
"""Can kernels be called in this process at all?"""
