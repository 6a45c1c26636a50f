"""The way from the door to the Triton kernels: what they cannot take, and which of them runs.

What stands out: `attnbook.kernels` is loaded by the first call that asks for it, so the door needs no Triton. And
whether they run here is not asked while torch.compile traces, which could not follow the question: there the
operators' fake kernels ask it (`require`), and the error stands in the compiler's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from attnbook.api.traced import transformed, vmapped
from attnbook.errors import BackendUnavailable
from attnbook.shapes import AttentionSizes
from attnbook.shapes_moe import RoutingInfo
from attnbook.tiled.decode import takes_decode

if TYPE_CHECKING:
    from attnbook.reference.kv_cache import PagedKVCache

Gradients: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]
"""Of q, k, v and, where they were asked for, of mask, slopes and sinks."""


def unavailable(q: Tensor, head_dim: int, d_v: int) -> str | None:
    """Why the kernels of attention cannot run for rows like these; None where they can."""
    from attnbook.kernels import available

    if torch.compiler.is_compiling():
        return available.of_dtype(q.dtype) or available.too_wide(head_dim, d_v)
    return available.missing(q) or available.too_wide(head_dim, d_v) or _unreached(q)


def unavailable_experts(x: Tensor) -> str | None:
    """The same for the kernels of a mixture of experts, whose rows may have any length."""
    from attnbook.kernels import available

    if torch.compiler.is_compiling():
        return available.of_dtype(x.dtype)
    return available.missing(x) or _unreached(x)


def _unreached(q: Tensor) -> str | None:
    """Why a transform of torch.func does not reach into a kernel."""
    if vmapped(q):
        return "triton: torch.vmap does not reach into a kernel"
    if transformed():
        return "triton has a backward of its own, which transforms of torch.func and forward mode may not reach"
    return None


def require(impl: str, x: Tensor) -> None:
    """Raises BackendUnavailable where "triton" was named and no kernel runs: fake kernels ask, for the device of x."""
    if impl == "triton":
        from attnbook.kernels import available

        available.require(x)


def taken(impl: str, q: Tensor, head_dim: int, d_v: int) -> bool:
    """Does an operator run the kernels? Where they were named, and on a GPU where the choice was left to it."""
    return impl == "triton" or (impl == "auto" and q.is_cuda and unavailable(q, head_dim, d_v) is None)


def forward(
    sizes: AttentionSizes,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Attention of a checked call: its out (b, n_heads, t_q, d_v) and lse (b, n_heads, t_q).

    Few queries go to the decoding kernels. Which it is depends on t_q, t_kv and the group, and not on the batch: a
    sequence has the same bits in any.
    """
    refuse(q, sizes.head_dim, sizes.d_v)
    if takes_decode(sizes):
        from attnbook.kernels.decode import decode_forward

        return decode_forward(q, k, v, mask, alibi_slopes, sinks, **options)
    from attnbook.kernels.flash import attention_forward

    return attention_forward(q, k, v, mask, alibi_slopes, sinks, **options)


def refuse(q: Tensor, head_dim: int, d_v: int) -> None:
    """Raises BackendUnavailable for what no kernel takes, also where an operator is called by itself."""
    from attnbook.kernels import available

    why = available.missing(q) or available.too_wide(head_dim, d_v)
    if why is not None:
        raise BackendUnavailable(why)


def backward() -> Callable[..., Gradients]:
    """The function that calculates the gradients of either forward, from its out and lse."""
    from attnbook.kernels.flash import attention_backward

    return attention_backward


def varlen_forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *others: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Attention of packed sequences: out (t_q, n_heads, d_v), lse (t_q, n_heads).

    The values of `cu_seqlens` are looked at, which waits for the device where they are on it.
    """
    refuse(q, q.shape[2], v.shape[2])
    from attnbook.kernels.flash import varlen_forward as run

    return run(q, k, v, cu_seqlens_q, cu_seqlens_k, *others, **options)


def varlen_backward() -> Callable[..., Gradients]:
    """The function that calculates the gradients of packed sequences."""
    from attnbook.kernels.flash import varlen_backward as run

    return run


def paged(q: Tensor, cache: PagedKVCache, new_rows: list[int], **options: Any) -> tuple[Tensor, Tensor]:
    """Attention of the newest tokens to a cache's pages, where they lie; the cache keeps its own table right.

    `new_rows`: how many rows of q each sequence has; for the others 0, and lse −inf. The options are those of
    `attention`.
    """
    from attnbook.kernels.decode import paged_forward

    k_pages, v_pages = cache.pages
    slopes, sinks = options.pop("alibi_slopes", None), options.pop("sinks", None)
    ragged = None if all(rows == q.shape[2] for rows in new_rows) else torch.tensor(new_rows)
    longest = max(cache.each_length(), default=0)
    # The table is made of the cache's lists at each call. To keep it would save little: an append comes before each,
    # which walks the same lists and changes the lengths; and what the cache hands out, a caller may write to. Who
    # generates on a GPU keeps a table there, and calls `paged_forward` with `longest`.
    return paged_forward(
        q, k_pages, v_pages, cache.page_table, cache.lengths, slopes, sinks,
        new_rows=ragged, longest=longest, **options,
    )  # fmt: skip


def experts_taken(impl: str, x: Tensor) -> bool:
    """`taken` for a mixture of experts."""
    return impl == "triton" or (impl == "auto" and x.is_cuda and unavailable_experts(x) is None)


def experts_forward(*inputs: Tensor) -> Tensor:
    """`attnbook.kernels.moe.experts_forward`."""
    from attnbook.kernels.moe import experts_forward as run

    return run(*inputs)


def experts_backward(
    *inputs: Tensor, needs_experts: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """`attnbook.kernels.moe.experts_backward`."""
    from attnbook.kernels.moe import experts_backward as run

    return run(*inputs, needs_experts=needs_experts)


def route(x: Tensor, router_weight: Tensor, **options: Any) -> RoutingInfo:
    """`attnbook.kernels.moe.route`, differentiable."""
    from attnbook.kernels.moe import route as run

    return run(x, router_weight, **options)
