"""`attention_varlen`: the door for sequences that lie packed, one after another along one axis."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook import reference
from attnbook.api import operators_varlen, packed_sdpa
from attnbook.api.autocast import cast, is_on
from attnbook.api.call import brought, check_tensors, not_dense
from attnbook.api.choose import Choice, Packed, check_impl, check_library, choose_varlen
from attnbook.api.traced import traced, transformed
from attnbook.errors import ShapeError
from attnbook.shapes import AttentionSizes, check_cu_seqlens, check_mask, check_options, check_varlen, whole_numbers
from attnbook.tiled.uncast import uncast
from attnbook.tiled.varlen import attention_varlen as tiled_varlen


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
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
    """`attention` for each of several sequences that lie one after another: no filling, and none sees another.

    q (t_q, n_heads, d), k (t_kv, n_kv_heads, d), v (t_kv, n_kv_heads, d_v) -> out (t_q, n_heads, d_v), in the dtype of
    q; with `return_lse` also lse (t_q, n_heads), natural logarithm, float32 or float64.

    Sequence n has the queries from cu_seqlens_q[n] up to cu_seqlens_q[n + 1], and its keys likewise:

        lengths 3, 0, 2       row of q      0 1 2 3 4 5      cu_seqlens_q = [0, 3, 3, 5]
                              sequence      0 0 0 2 2 .      row 5 belongs to none: output 0, lse −inf

    The options are those of `attention`, with positions counted inside each sequence. `mask` broadcasts to (n_heads,
    t_q, t_kv) of the packed axes; `alibi_slopes` is (n_heads,) or (n_sequences, n_heads). `impl` is `"reference"`,
    `"tiled"`, `"sdpa"` (torch's own, once for each batch of sequences of equal length; it knows `is_causal` and `scale`
    only), `"triton"` or `"auto"`.

    Raises ShapeError for `cu_seqlens` that don't start at 0, fall, or end outside; otherwise what `attention` raises.
    While traced by torch.compile these values are checked when the compiled function runs. Layout: Dao 2023.
    """
    alibi_slopes, sinks = brought("alibi_slopes", alibi_slopes, q), brought("sinks", sinks, q)
    options = {
        "mask": mask, "is_causal": is_causal, "window": window, "alibi_slopes": alibi_slopes, "softcap": softcap,
        "sinks": sinks, "scale": scale, "return_lse": return_lse,
    }  # fmt: skip
    if not isinstance(q, Tensor):
        check_library(q, impl)
        return reference.attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **options)
    q, k, v = cast(q, k, v)
    took = checked_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, impl, **options)[0].impl
    if took in ("auto", "triton") or (took == "tiled" and (traced(q) or is_on(q))):
        # What was looked at above is looked at again by the kernels: on the CPU that waits for no GPU.
        where = "cpu" if took == "triton" and not traced(q) else q.device
        ends = [torch.as_tensor(cu, device=where) for cu in (cu_seqlens_q, cu_seqlens_k)]
        out, lse = operators_varlen.attention_varlen(
            q, k, v, *ends, mask, alibi_slopes, sinks, bool(is_causal), window, softcap, scale, took
        )
        return (out, lse) if return_lse else out
    with uncast(q):
        if took == "sdpa":
            cu_q, cu_k = whole_numbers("cu_seqlens_q", cu_seqlens_q), whole_numbers("cu_seqlens_k", cu_seqlens_k)
            return packed_sdpa.run(q, k, v, cu_q, cu_k, bool(is_causal), scale)
        door = {"reference": reference.attention_varlen, "tiled": tiled_varlen}[took]
        return door(q, k, v, cu_seqlens_q, cu_seqlens_k, **options)


def checked_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    impl: str,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alibi_slopes: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> tuple[Choice, Packed]:
    """What runs the call, and what is against torch's own; raises for everything that is wrong with the call."""
    check_impl(impl)
    if q.is_nested or q.layout != torch.strided:
        raise not_dense("q", q)
    sizes = check_varlen(q, k, v)
    n = _count(cu_seqlens_q) - 1
    alibi_slopes, sinks = brought("alibi_slopes", alibi_slopes, q), brought("sinks", sinks, q)
    heads = (sizes.n_heads, sizes.n_kv_heads)
    packed = AttentionSizes(n, *heads, sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v)
    check_options(
        packed, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    check_tensors(q, k, v, mask, alibi_slopes, sinks)
    if mask is not None:
        check_mask(mask, AttentionSizes(1, *heads, sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v))
    if traced(q) or transformed():
        sdpa = Packed("sdpa takes packed sequences only where their lengths can be looked at", None)
    else:
        cu_q, cu_k = whole_numbers("cu_seqlens_q", cu_seqlens_q), whole_numbers("cu_seqlens_k", cu_seqlens_k)
        check_cu_seqlens(cu_q, cu_k, sizes)
        others = {"mask": mask, "window": window, "alibi_slopes": alibi_slopes, "softcap": softcap, "sinks": sinks}
        lacking = packed_sdpa.lacks(q, k, v, cu_q, cu_k, bool(is_causal), others | {"return_lse": return_lse})
        sdpa = Packed(lacking, packed_sdpa.unfit(q, k, v, cu_q, cu_k))
    return choose_varlen(q, v, impl, sdpa), sdpa


def _count(cu_seqlens_q: Any) -> int:
    """How many numbers there are; raises ShapeError where there is no axis to count along."""
    shape = getattr(cu_seqlens_q, "shape", None)
    if shape == () or not hasattr(cu_seqlens_q, "__len__"):
        what = "one number" if shape == () else f"of type {type(cu_seqlens_q).__name__}"
        raise ShapeError(f"cu_seqlens_q is {what}: expected one axis, a number more than there are sequences")
    return len(cu_seqlens_q)
