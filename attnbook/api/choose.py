"""Which implementation runs: by name, or by what was measured.

An explicit choice never falls back: it runs, or `BackendUnavailable` says what is missing. `"auto"` takes torch's own
attention where that does the job right and fastest, and the tiles elsewhere; `explain` tells which, and why not the
others. Both ask the functions below, so that what is said is what runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from attnbook.api import sdpa
from attnbook.api.call import Call
from attnbook.api.traced import traced, transformed, vmapped
from attnbook.errors import BackendUnavailable

IMPLEMENTATIONS = ("reference", "tiled", "sdpa", "triton")

NO_KERNELS = "triton needs a CUDA device and its kernels: they come with attnbook.kernels, which this version lacks"


class Choice(NamedTuple):
    """The implementation that runs and the reason."""

    impl: str
    why: str


def check_impl(impl: object) -> None:
    """Raises ValueError for a name that is none."""
    if impl != "auto" and impl not in IMPLEMENTATIONS:
        names = ", ".join(repr(name) for name in (*IMPLEMENTATIONS, "auto"))
        raise ValueError(f"impl is {impl!r}: expected one of {names}")


def choose(call: Call, impl: str) -> Choice:
    """What runs this call; raises ValueError for an unknown name and BackendUnavailable for one that cannot."""
    if impl != "auto":
        check_impl(impl)
        missing = unavailable(call, impl)
        if missing is not None:
            raise BackendUnavailable(missing)
        return Choice(impl, "it was asked for by name")
    instead = unfit(call)
    if instead is None:
        return SDPA
    missing = unavailable(call, "tiled")
    if missing is None:
        return Choice("tiled", instead)
    if unavailable(call, "reference") is None:
        return Choice("reference", f"{instead}; {missing}")
    raise BackendUnavailable(f"{instead}; {missing}")


SDPA = Choice("sdpa", "torch's own attention does this job, and nothing here is faster at it")


def unavailable(call: Call, impl: str) -> str | None:
    """Why the implementation of this name cannot run this call; None where it can."""
    if impl == "triton":
        return NO_KERNELS
    if impl == "sdpa" and (lacking := sdpa.lacks(call)) is not None:
        return lacking
    if torch.compiler.is_compiling():
        return None
    if vmapped(call.q) and (impl != "sdpa" or sdpa.must_look(call)):
        return f"{impl} looks at values, which torch.vmap does not allow"
    if impl == "tiled" and transformed():
        return "tiled has gradients for torch.autograd only, not for torch.func or forward mode"
    return None


def unfit(call: Call) -> str | None:
    """Why torch's own attention is not the one to take; None where it is."""
    lacking = sdpa.lacks(call)
    if lacking is not None:
        return lacking
    if call.window is not None:
        return "sdpa would need a dense mask for the window and calculate what it hides"
    if call.alibi_slopes is not None:
        return "sdpa would need the slopes as a dense mask, t_q × t_kv numbers for each head"
    if call.mask is not None and call.mask.requires_grad:
        return "sdpa keeps all scores where the mask has a gradient"
    if call.sizes.d_v != call.sizes.head_dim:
        return "sdpa keeps all scores where d_v differs from head_dim"
    if not sdpa.is_bare(call) and call.mask is None:
        return "sdpa aligns causal masks at the top left and would need a dense one, because t_q differs from t_kv"
    if sdpa.must_look(call):
        if traced(call.q) or vmapped(call.q):
            return "sdpa lets a NaN in a hidden key reach every row, and here the values cannot be looked at"
        if not sdpa.looks_finite(call):
            return "sdpa lets a NaN or inf in a hidden key reach every row, and there is one"
    return None


def others(call: Call, took: str) -> Iterator[tuple[str, str]]:
    """Each implementation that was not taken, and why."""
    for impl in IMPLEMENTATIONS:
        if impl == took:
            continue
        missing = unavailable(call, impl)
        if missing is None and impl == "sdpa":
            missing = unfit(call)
        if missing is None:
            missing = SLOWER[impl]
        yield impl, missing


SLOWER = {
    "reference": "it keeps all t_q × t_kv scores of every head: written to be read",
    "tiled": "it can, and is not faster here than torch's own",
    "sdpa": "it can, and another was asked for by name",
}
