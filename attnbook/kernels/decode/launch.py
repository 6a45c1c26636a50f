"""Decoding against keys and values that lie one after another, and what it shares with pages: the two launches.

K and V are read where they lie, with any strides; a group's query heads are rows of one tile. Beside the result there
is memory for the parts, (parts, b, n_heads, t_q, d_v) of float32: one for each split of 256 keys or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.kernels import outputs, targets
from attnbook.kernels.decode import configs
from attnbook.kernels.decode.parts import launch_merge
from attnbook.kernels.flash.call import Call, dense_call, strides_of
from attnbook.kernels.flash.configs import padded
from attnbook.kernels.flash.descriptors import descriptor, takes_descriptor
from attnbook.kernels.variant import ALWAYS


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

    Raises ShapeError, DTypeError, ValueError or TypeError for what does not fit, BackendUnavailable for what the
    kernels cannot take, or not here. Dao et al. 2023 (Flash-Decoding).
    """
    call = dense_call(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    t_q, t_kv, split = call.sizes.t_q, call.sizes.t_kv, config_of(call).split
    first = 0 if window is None else max(t_kv - t_q - window + 1, 0)
    return run(call, k, v, None, parts=-(-t_kv // split) - first // split)


@dataclass(frozen=True)
class Pages:
    """What keys in pages have besides: page_table (b, pages), lengths (b,) and new_rows (b,), on the device of q."""

    page_size: int
    page_table: Tensor
    lengths: Tensor
    new_rows: Tensor | None


def run(call: Call, k: Tensor, v: Tensor, pages: Pages | None, *, parts: int) -> tuple[Tensor, Tensor]:
    """Both launches: the splits, at most `parts` a sequence, and their merging. k and v may lie in pages."""
    sizes, q = call.sizes, call.q
    out = outputs.empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v), q)
    lse = outputs.empty((sizes.b, sizes.n_heads, sizes.t_q), q, torch.float32)
    if lse.numel() == 0:
        return out, lse
    averages = outputs.empty((parts, *out.shape), q, torch.float32)
    lses = outputs.empty((parts, *lse.shape), q, torch.float32)
    with targets.on_device_of(q):
        if parts:
            _launch_splits(call, k, v, pages, averages, lses)
        launch_merge(averages, lses, call.sinks, out, lse, pages, call.window, config_of(call, pages).split)
    return out, lse


def _launch_splits(call: Call, k: Tensor, v: Tensor, pages: Pages | None, averages: Tensor, lses: Tensor) -> None:
    from attnbook.kernels.decode.split import split_kernel

    config, sizes = config_of(call, pages), call.sizes
    row_tiles = -(-call.group * sizes.t_q // config.tile_rows)
    split_kernel[(sizes.b * sizes.n_kv_heads * len(averages) * row_tiles,)](
        **split_arguments(call, k, v, pages, averages, lses),
        **split_constants(call, k, v, pages),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        **ALWAYS,
    )


def config_of(call: Call, pages: Pages | None = None) -> configs.Config:
    """How this call is cut."""
    sizes, rows = call.sizes, call.group * call.sizes.t_q
    size = call.q.element_size()
    return configs.split_config(rows, sizes.head_dim, sizes.d_v, size, call.target, paged=pages is not None)


def split_arguments(
    call: Call, k: Tensor, v: Tensor, pages: Pages | None, averages: Tensor, lses: Tensor
) -> dict[str, Any]:
    """What `split_kernel` is given, by the names of its parameters; None for what it does not read."""
    of_call = call.arguments()
    options = ("mask", "slopes", "scale", "softcap", "hidden", "window", "t_q", "t_kv", "group")
    strides = (name for name in of_call if name.startswith(("mask_stride", "slope_stride")))
    of_part = {f"averages_stride_{axis}": n for axis, n in zip(("part", *"bht"), averages.stride(), strict=False)}
    of_part |= {f"lses_stride_{axis}": n for axis, n in zip(("part", *"bht"), lses.stride(), strict=True)}
    described, tile_k = _described(call, k, v, pages), config_of(call, pages).tile_k
    return {
        **{"q": call.q, "k": k, "v": v, "averages": averages, "lses": lses},
        "k_tiles": descriptor(k, tile_k, padded(call.sizes.head_dim)) if described else None,
        "v_tiles": descriptor(v, tile_k, padded(call.sizes.d_v)) if described else None,
        **{name: of_call[name] for name in (*options, *strides)},
        "n_kv_heads": call.sizes.n_kv_heads,
        "parts": len(averages),
        **strides_of("q", call.q),
        **strides_of("k", k),
        **strides_of("v", v),
        **of_part,
        "page_table": pages.page_table if pages else None,
        "table_stride_b": pages.page_table.stride(0) if pages else None,
        "lengths": pages.lengths if pages else None,
        "new_rows": pages.new_rows if pages else None,
    }


def _described(call: Call, k: Tensor, v: Tensor, pages: Pages | None) -> bool:
    """Are keys and values copied by descriptor in this call?"""
    config, page_size = config_of(call, pages), pages.page_size if pages else 0
    whole = configs.in_whole_tiles(config, page_size, call.window)
    return config.descriptors and whole and takes_descriptor(k) and takes_descriptor(v)


def split_constants(call: Call, k: Tensor, v: Tensor, pages: Pages | None) -> dict[str, Any]:
    """The constants that `split_kernel` is compiled for."""
    sizes, config, of_call = call.sizes, config_of(call, pages), call.constants()
    options = ("HEAD_DIM", "D_V", "HAS_WINDOW", "HAS_SOFTCAP", "HAS_ALIBI", "MASK_KIND", "UPCAST")
    return {
        **{name: of_call[name] for name in options},
        "PADDED_D": padded(sizes.head_dim),
        "PADDED_V": padded(sizes.d_v),
        "SPLIT": config.split,
        "TILE_ROWS": config.tile_rows,
        "TILE_K": config.tile_k,
        "PAGE_SIZE": pages.page_size if pages else 0,
        "SIGHT_DIFFERS": call.is_causal and sizes.t_q > 1,
        "HAS_LENGTHS": pages is not None,
        "HAS_NEW_ROWS": pages is not None and pages.new_rows is not None,
        "HAS_DESCRIPTORS": _described(call, k, v, pages),
    }
