"""`attention`: the door. It checks once, chooses an implementation, and hands the call over.

What stands out: nothing stands between the caller and torch's own attention where that is what runs, because a custom
operator would cost more than the checks (2 to 6 %). The operator is for what must be traced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from attnbook import reference, tiled
from attnbook.api import kernels, operators, sdpa, shortcut
from attnbook.api.autocast import is_on
from attnbook.api.call import Call, brought, checked, not_dense
from attnbook.api.choose import check_library, choose
from attnbook.api.traced import traced
from attnbook.tiled.decode import takes_decode
from attnbook.tiled.uncast import uncast


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    is_causal: bool = False,
    window: int | None = None,
    alibi_slopes: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    scale: float | None = None,
    return_lse: bool = False,
    impl: str = "auto",
) -> Any:
    """softmax(scale · q kᵀ + mask) v by the implementation of your choice, all with the same conventions.

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v) -> out (b, n_heads, t_q, d_v), in
    the dtype of q; with `return_lse` also the natural log-sum-exp of each query's scores, lse (b, n_heads, t_q).
    n_heads is a multiple of n_kv_heads. Scores and lse are float32, or float64 for float64.

    - `mask` broadcasts to (b, n_heads, t_q, t_kv): booleans, True = may attend, or floats to be added, −inf hides.
    - `is_causal`: query i sees key j when j ≤ i + t_kv − t_q; with it `window`: only the last `window` of those.
    - `scale` (1/√d where None), then `softcap` c as c · tanh(s / c), then `alibi_slopes` (h,) or (b, h), then the mask.
    - `sinks` (h,): one score more a row, without a value. They and the slopes may be lists or NumPy arrays, too.
    - `impl`: `"reference"` (to be read; NumPy arrays too), `"tiled"`, `"sdpa"` (torch's own), `"auto"`, which
      `explain` tells you more about, or `"triton"` (kernels for NVIDIA GPUs; float32 and shorter, d and d_v up to 256).

    A query that sees no key gets output 0, lse −inf (with a sink: the sink) and gradients 0. A NaN stays in the rows
    that may see it. Inside `torch.autocast`, q, k, v are cast to its dtype, as torch does before its own attention.

    Raises ShapeError, DTypeError, ValueError or TypeError for what does not fit, naming axis, expectation and value.
    An implementation that was named never gives way to another: BackendUnavailable says what it lacks.

    The formula, its parts and their sources: `attnbook.reference.attention`.
    """
    if impl == "auto" and window is alibi_slopes is softcap is sinks is None and not return_lse:
        out = None if is_dynamo_compiling() else shortcut.ordinary(q, k, v, mask, is_causal, scale)
        if out is not None:
            return out
    if not isinstance(q, Tensor):
        alibi_slopes, sinks = brought("alibi_slopes", alibi_slopes, q), brought("sinks", sinks, q)
        options = {
            "mask": mask, "is_causal": is_causal, "window": window, "alibi_slopes": alibi_slopes, "softcap": softcap,
            "sinks": sinks, "scale": scale, "return_lse": return_lse,
        }  # fmt: skip
        check_library(q, impl)
        return reference.attention(q, k, v, **options)
    if q.is_nested or q.layout != torch.strided:
        raise not_dense("q", q)
    call = checked(q, k, v, mask, is_causal, window, alibi_slopes, softcap, sinks, scale, return_lse)
    if impl == "auto" and return_lse and (found := shortcut.with_lse(call)) is not None:
        return found
    took = choose(call, impl).impl
    return run(call, took, clean=True if impl == "auto" else None)


def run(call: Call, impl: str, *, clean: bool | None) -> Any:
    """Hand a checked call to the implementation of this name; `clean`: `sdpa.run` needs not look at values again."""
    if impl == "triton" and not (traced(call.q) or call.needs_grad):
        return _run_kernels(call)
    if impl in ("auto", "triton") or (impl == "tiled" and (traced(call.q) or is_on(call.q))):
        return _run_operator(call, impl)
    if impl == "sdpa" and call.return_lse:
        return _run_operator(call._replace(mask=sdpa.hiding_with_infinity(call)), "auto")
    if impl == "tiled":
        door = tiled.decode if takes_decode(call.sizes) else tiled.attention
        return door(call.q, call.k, call.v, **call.options)
    with uncast(call.q):  # or autocast would take to half precision what accumulates in float32
        if impl == "sdpa":
            return sdpa.run(call, clean=False if traced(call.q) and clean is None else clean)
        if impl == "reference":
            return reference.attention(call.q, call.k, call.v, **call.options)
    raise AssertionError(f"{impl!r} was chosen, and nothing here runs it")  # no name falls through to another


def _run_kernels(call: Call) -> Any:
    """The Triton kernels without an operator around them, where no gradient will be asked for: less to do for a CPU."""
    how = {"is_causal": call.is_causal, "window": call.window, "softcap": call.softcap, "scale": call.scale}
    with uncast(call.q):
        out, lse = kernels.forward(call.sizes, call.q, call.k, call.v, call.mask, call.alibi_slopes, call.sinks, **how)
    return (out, lse) if call.return_lse else out


def _run_operator(call: Call, impl: str) -> Any:
    """One operator, where a call is traced; or under autocast, which then is off in its backward, too."""
    out, lse = operators.attention(
        call.q, call.k, call.v, call.mask, call.alibi_slopes, call.sinks,
        call.is_causal, call.window, call.softcap, call.scale, impl, call.return_lse,
    )  # fmt: skip
    return (out, lse) if call.return_lse else out
