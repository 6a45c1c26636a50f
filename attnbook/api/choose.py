"""Which implementation runs: by name, or by what was measured.

An explicit choice never falls back: it runs, or `BackendUnavailable` says what is missing. `"auto"` takes torch's own
attention where that does the job right and fastest, and elsewhere, of those that can, the first of `LEFT`: on a GPU the
Triton kernels and then the tiles, on a CPU the tiles. `explain` tells which, and why not the others. Both ask the
functions below, so that what is said is what runs.

On a GPU, too, torch's own comes first wherever `unfit` has nothing against it, because no record of ours says that the
kernels are as fast there. Where one does, the rule is widened in `unfit`: a reason of its own, for the calls that the
record measured, in the place where the reasons for windows and slopes stand. Triton's interpreter is for checking the
kernels, and never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnbook.api import flash, kernels, sdpa
from attnbook.api.call import Call
from attnbook.api.flash import HALF, REGISTER, how_of
from attnbook.api.traced import forward_mode, traced, transformed, vmapped
from attnbook.errors import BackendUnavailable
from attnbook.shapes import AttentionSizes
from attnbook.tiled.decode import takes_decode

IMPLEMENTATIONS = ("reference", "tiled", "sdpa", "triton")

LEFT = {"cuda": ("triton", "tiled", "reference")}
"""What "auto" asks in turn where torch's own is not the one to take, by the kind of device."""

ELSEWHERE = ("tiled", "reference")
"""The same for all other devices."""


class Choice(NamedTuple):
    """The implementation that runs, or "auto" where only the operator will know, and the reason."""

    impl: str
    why: str


def check_impl(impl: object) -> None:
    """Raises ValueError for a name that is none."""
    if impl != "auto" and impl not in IMPLEMENTATIONS:
        names = ", ".join(repr(name) for name in (*IMPLEMENTATIONS, "auto"))
        raise ValueError(f"impl is {impl!r}: expected one of {names}")


def check_library(q: object, impl: str) -> None:
    """Arrays other than torch's are for the reference; raises BackendUnavailable for another name."""
    check_impl(impl)
    if impl not in ("auto", "reference"):
        raise BackendUnavailable(f"{impl} needs torch tensors but q is a {type(q).__name__}: impl='reference' takes it")


def choose(call: Call, impl: str) -> Choice:
    """What runs this call; raises ValueError for an unknown name and BackendUnavailable for one that cannot."""
    if impl != "auto":
        check_impl(impl)
        missing = unavailable(call, impl)
        if missing is not None:
            raise BackendUnavailable(missing)
        return Choice(impl, BY_NAME)
    if traced(call.q) and flash.has_options(call.q, call.v, how_of(call)) and (call.return_lse or _unseen(call)):
        return LATER
    instead = unfit(call)
    if instead is None:
        return SDPA if not call.return_lse else WITH_LSE
    if traced(call.q) and call.q.is_cuda and unavailable(call, "triton") is None:
        return LATER_ON_A_GPU
    return first(LEFT.get(call.q.device.type, ELSEWHERE), lambda impl: unavailable(call, impl), instead)


def first(names: Sequence[str], missing: Callable[[str], str | None], instead: str) -> Choice:
    """The first of these that lacks nothing, because of `instead`; BackendUnavailable where all lack something."""
    reasons = [instead]
    for impl in names:
        lacks = missing(impl)
        if lacks is None:
            return Choice(impl, "; ".join(reasons))
        reasons.append(lacks)
    raise BackendUnavailable("; ".join(reasons))


SDPA = Choice("sdpa", "torch's own attention does this job, and nothing here is faster at it")
WITH_LSE = Choice("sdpa", "torch's own flash kernel does this job, and returns the lse below its public function")
LATER_ON_A_GPU = Choice(
    "auto",
    "torch's own is not for this call, and what runs is known when it does: the operator attnbook::attention takes the "
    "Triton kernels if they run there, and else the tiles",
)
LATER = Choice(
    "auto",
    "here are no values to look at, so the operator attnbook::attention chooses when it runs: torch's own flash kernel "
    "where it is right, the tiles elsewhere",
)


class Packed(NamedTuple):
    """What torch's own attention cannot do to packed sequences, and why it is not the one to take; None for nothing."""

    lacking: str | None
    unfit: str | None


def choose_varlen(q: Tensor, v: Tensor, impl: str, sdpa: Packed) -> Choice:
    """What runs a call on packed sequences; raises as `choose` does."""
    if impl != "auto":
        missing = unavailable_varlen(q, v, impl, sdpa)
        if missing is None:
            return Choice(impl, BY_NAME)
        raise BackendUnavailable(missing)
    instead = sdpa.lacking or sdpa.unfit
    if instead is None:
        return Choice("sdpa", "torch's own attention, once for each batch of sequences of equal length")
    if traced(q) and q.is_cuda and unavailable_varlen(q, v, "triton", sdpa) is None:
        return LATER_ON_A_GPU
    why = f"it calculates the blocks of each sequence and nothing between sequences; {instead}"
    return first(LEFT.get(q.device.type, ELSEWHERE), lambda impl: unavailable_varlen(q, v, impl, sdpa), why)


BY_NAME = "it was asked for by name"


def unavailable_varlen(q: Tensor, v: Tensor, impl: str, sdpa: Packed) -> str | None:
    """Why the implementation of this name cannot run a call on packed sequences; None where it can."""
    if impl == "triton":
        return kernels.unavailable(q, q.shape[2], v.shape[2])
    return sdpa.lacking if impl == "sdpa" else _unwatched(q, impl)


def unavailable(call: Call, impl: str) -> str | None:
    """Why the implementation of this name cannot run this call; None where it can."""
    if impl == "triton":
        return kernels.unavailable(call.q, call.sizes.head_dim, call.sizes.d_v)
    if impl == "sdpa" and (lacking := sdpa.lacks(call)) is not None:
        return lacking
    if impl == "sdpa" and call.return_lse:
        return _lse_unavailable(call)
    if impl == "sdpa" and not torch.compiler.is_compiling():
        if forward_mode():
            return NO_FORWARD_MODE
        if not sdpa.must_look(call):
            return None
    return _unwatched(call.q, impl)


def _lse_unavailable(call: Call) -> str | None:
    """The same for torch's flash kernel, asked for its lse: an operator of ours, which has values to look at."""
    if traced(call.q) or transformed():
        return "sdpa returns no lse where values cannot be looked at"
    return None if sdpa.looks_finite(call) else "sdpa returns no lse where there is a NaN or inf"


def _unwatched(q: Tensor, impl: str) -> str | None:
    """Why an implementation that looks at values, or has its own gradient, cannot run inside a transform."""
    if torch.compiler.is_compiling():
        return None
    if vmapped(q):
        return f"{impl} looks at values, which torch.vmap does not allow"
    if impl == "tiled" and transformed():
        return "tiled has a backward of its own, which transforms of torch.func and forward mode may not reach"
    return None


def unfit(call: Call) -> str | None:
    """Why torch's own attention is not the one to take; None where it is. Figures are of torch 2.13 on two cores."""
    lacking = sdpa.lacks(call)
    if lacking is not None:
        return lacking
    if call.return_lse and (missing := _lse_unavailable(call)) is not None:
        return missing
    if call.window is not None:
        return "sdpa would need a dense mask for the window and calculate what it hides"
    if call.alibi_slopes is not None:
        return "sdpa would need the slopes as a dense mask, t_q × t_kv numbers for each head"
    if call.mask is not None and call.mask.requires_grad:
        return "sdpa keeps all scores where the mask has a gradient"
    if call.sizes.d_v != call.sizes.head_dim:
        return "sdpa keeps all scores where d_v differs from head_dim, and takes twice as long"
    if traced(call.q) or vmapped(call.q):
        return _unseen(call)
    if forward_mode():
        return NO_FORWARD_MODE
    if not sdpa.is_bare(call) and call.mask is None and call.sizes.t_q * call.sizes.t_kv > DENSE:
        return "sdpa would need a dense mask to align t_q and t_kv at their ends"
    if decodes_faster(call.sizes, call.q.dtype) and not sdpa.folds(call):
        return "few queries, many keys: sdpa takes longer, up to 3 times in float32 and 6 to 10 in half precision"
    if not call.return_lse and sdpa.must_look(call) and not sdpa.looks_finite(call):
        return "sdpa lets a NaN or inf reach rows that may not see it, or loses it, and there is one"
    return None


def _unseen(call: Call) -> str | None:
    """The same where values cannot be looked at, and sizes should not be: a compiled function is for many."""
    if call.mask is not None or call.is_causal:
        return "sdpa lets a NaN in a hidden key reach every row, and here the values cannot be looked at"
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # half a second; loaded when one compiles

    if not statically_known_true(call.sizes.t_kv >= REGISTER):
        return "sdpa loses a NaN in q where keys are few, and here it is not known how many there will be"
    return None


NO_FORWARD_MODE = "sdpa has no gradients in forward mode"
DENSE = 1 << 21
"""The most t_q · t_kv for which a causal mask is written down: 8 MiB of float32. Beyond it the tiles are as fast."""


def decodes_faster(sizes: AttentionSizes, dtype: torch.dtype) -> bool:
    """Is this a call for `attnbook.tiled.decode`? Measured for 1 to 4 queries, 256 to 8192 keys, 8 and 32 heads."""
    if not takes_decode(sizes):
        return False
    # Grouped heads over more keys and values than a cache holds: torch reads them once for each query head.
    rereads = sizes.n_heads != sizes.n_kv_heads and sizes.b * sizes.n_heads * sizes.t_kv * sizes.head_dim >= REREAD
    few = dtype in HALF and (sizes.t_q == 1 or dtype == torch.float16)
    return rereads or (few and sizes.t_kv >= 512)


REREAD = 1 << 23
"""Numbers of k that torch reads, from which grouping the query heads pays in float32."""


def others(call: Call, took: str) -> Iterator[tuple[str, str]]:
    """Each implementation that was not taken, and why."""
    for impl in IMPLEMENTATIONS:
        if impl == took:
            continue
        missing = MAYBE if took == "auto" and impl in later(call) else unavailable(call, impl)
        if missing is None and impl == "sdpa":
            missing = unfit(call)
        if missing is None:
            missing = passed_over(call.q, impl, took, fit=unfit(call) is None)
        yield impl, missing


def later(call: Call) -> tuple[str, ...]:
    """What the operator chooses from, where it was left to it."""
    return ("triton", "tiled") if call.q.is_cuda else ("sdpa", "tiled")


def others_varlen(q: Tensor, v: Tensor, took: str, sdpa: Packed) -> Iterator[tuple[str, str]]:
    """The same for a call on packed sequences."""
    for impl in IMPLEMENTATIONS:
        if impl != took:
            missing = unavailable_varlen(q, v, impl, sdpa)
            if missing is None and impl == "sdpa":
                missing = sdpa.unfit
            yield impl, missing or passed_over(q, impl, took, fit=took == "sdpa")


def passed_over(q: Tensor, impl: str, took: str, *, fit: bool) -> str:
    """Why one that can was not taken; `fit`: torch's own is the one that "auto" takes for this call."""
    if impl == "reference":
        return "it keeps all t_q × t_kv scores of every head: written to be read"
    if impl == "triton" and not q.is_cuda:
        return "it can, in Triton's interpreter, which checks the kernels and is slow"
    if impl == "tiled" and took == "triton" and q.is_cuda:
        return "it can, in many steps of plain torch where a kernel is one"
    if fit and impl == "tiled":
        return "it can, and is not faster here than torch's own"
    if fit and impl == "triton":
        return "it can, and no measurement says that it is as fast here as torch's own"
    return NOT_ASKED


MAYBE = "not by itself: the operator may take it"
NOT_ASKED = "it can, and another was asked for by name"
