"""Decoding against keys and values that lie one after another, and what it shares with pages: the two launches.

K and V are read where they lie, with any strides; a group's query heads are rows of one tile. Beside the result there
is memory for the parts, (parts, b, n_heads, t_q, d_v) of float32, one for each split of 256 keys or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.kernels import outputs
from attnbook.kernels.available import interpreting
from attnbook.kernels.decode import configs
from attnbook.kernels.decode.call import Call, check
from attnbook.kernels.decode.parts import launch_merge
from attnbook.kernels.flash.configs import padded
from attnbook.kernels.targets import target_of


def decode_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of few queries to many keys, by splits of the keys; any number of queries is right.

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v) -> out (b, n_heads, t_q, d_v) in
    the dtype of q, lse (b, n_heads, t_q) float32. The options are those of `attnbook.attention`; causal, the last query
    stands at the last key. The same bits whatever the batch. Without a gradient.

    Raises BackendUnavailable where the kernels cannot run, ShapeError, DTypeError, ValueError or TypeError for what
    does not fit. Dao et al. 2023 (Flash-Decoding).
    """
    call = check(q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale)
    t_q, t_kv = call.sizes.t_q, call.sizes.t_kv
    first = 0 if window is None else max(t_kv - t_q - window + 1, 0)
    split = config_of(call, q).split
    return run(call, q, k, v, None, parts=-(-t_kv // split) - first // split)


@dataclass(frozen=True)
class Pages:
    """What keys in pages have besides: page_table (b, pages), lengths (b,) and new_rows (b,), on the device of q."""

    page_size: int
    page_table: Tensor
    lengths: Tensor
    new_rows: Tensor | None


def config_of(call: Call, q: Tensor) -> configs.Config:
    """How this call is cut."""
    sizes = call.sizes
    rows = sizes.n_heads // max(sizes.n_kv_heads, 1) * sizes.t_q
    return configs.split_config(rows, sizes.head_dim, sizes.d_v, q.element_size(), target_of(q.device))


def run(call: Call, q: Tensor, k: Tensor, v: Tensor, pages: Pages | None, *, parts: int) -> tuple[Tensor, Tensor]:
    """Both launches: the splits, at most `parts` a sequence, and their merging. k and v may lie in pages."""
    sizes = call.sizes
    out = outputs.empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v), q)
    lse = outputs.empty((sizes.b, sizes.n_heads, sizes.t_q), q, torch.float32)
    if lse.numel() == 0:
        return out, lse
    averages = outputs.empty((parts, *out.shape), q, torch.float32)
    lses = outputs.empty((parts, *lse.shape), q, torch.float32)
    with torch.cuda.device_of(q):
        if parts:
            _launch_splits(call, q, k, v, pages, averages, lses)
        launch_merge(averages, lses, call.sinks, out, lse, pages, call.window, config_of(call, q).split)
    return out, lse


def _launch_splits(
    call: Call, q: Tensor, k: Tensor, v: Tensor, pages: Pages | None, averages: Tensor, lses: Tensor
) -> None:
    from attnbook.kernels.decode.split import split_kernel

    sizes, config = call.sizes, config_of(call, q)
    group, parts = sizes.n_heads // sizes.n_kv_heads, len(averages)
    row_tiles = -(-group * sizes.t_q // config.tile_rows)
    split_kernel[(sizes.b * sizes.n_kv_heads * parts * row_tiles,)](
        q, k, v, call.mask, call.alibi_slopes,
        pages.page_table if pages else None, pages.lengths if pages else None, pages.new_rows if pages else None,
        averages, lses,
        call.scale, call.softcap, call.hidden, call.window or 0,
        sizes.t_q, sizes.t_kv, sizes.n_kv_heads, group, parts,
        *q.stride(), *k.stride(), *v.stride(),
        *(call.mask.stride() if call.mask is not None else (0, 0, 0, 0)),
        *(call.alibi_slopes.stride() if call.alibi_slopes is not None else (0, 0)),
        pages.page_table.stride(0) if pages else 0,
        *averages.stride()[:4], *lses.stride(),
        **split_constants(call, config, pages, interpreting() and q.dtype == torch.bfloat16),
        num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip


def split_constants(call: Call, config: configs.Config, pages: Pages | None, upcast: bool) -> dict[str, Any]:
    """The compile-time constants of `split_kernel`."""
    sizes = call.sizes
    return {
        "HEAD_DIM": sizes.head_dim,
        "D_V": sizes.d_v,
        "PADDED_D": padded(sizes.head_dim),
        "PADDED_V": padded(sizes.d_v),
        "SPLIT": config.split,
        "TILE_ROWS": config.tile_rows,
        "TILE_K": config.tile_k,
        "PAGE_SIZE": pages.page_size if pages else 0,
        "SIGHT_DIFFERS": call.is_causal and sizes.t_q > 1,
        "HAS_WINDOW": call.window is not None,
        "HAS_SOFTCAP": call.has_softcap,
        "HAS_ALIBI": call.alibi_slopes is not None,
        "MASK_KIND": call.mask_kind,
        "HAS_LENGTHS": pages is not None,
        "HAS_NEW_ROWS": pages is not None and pages.new_rows is not None,
        "UPCAST": upcast,
    }
