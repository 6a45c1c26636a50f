"""Tests that a user runs on a module of their own.

Each probe takes a function and an input, and returns a `Report` with `.ok`, `.findings` and a readable `str`.
"""

from attnbook.probes.batch_dependence import batch_dependence
from attnbook.probes.causal_leak import causal_leak
from attnbook.probes.overflow import overflow
from attnbook.probes.permutation_equivariance import permutation_equivariance
from attnbook.probes.report import Finding, Report

__all__ = ["Finding", "Report", "batch_dependence", "causal_leak", "overflow", "permutation_equivariance"]
