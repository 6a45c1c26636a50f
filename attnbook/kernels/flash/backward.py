"""The gradients of attention on tensors: which kernels run, in which order, and what is summed up after them.

    rows     lse and delta of every query, and what sinks get
    keys     d_k and d_v: a program a tile of keys
    queries  d_q, and what slopes get: a program a tile of queries
    mask     the gradient of a mask of floats, only where it is asked for

What stands out: each number is written by one program, which adds up what it consists of in a fixed order. There are
no atomic additions, so the same call gives the same bits every time. Where a sum goes over programs, they write parts
and `torch.sum` adds them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.kernels import outputs
from attnbook.kernels.flash.backward_configs import keys_config, mask_config, queries_config, rows_config
from attnbook.kernels.flash.call import Call, dense_call, packed_call, strides_of
from attnbook.kernels.flash.configs import Config, padded
from attnbook.kernels.variant import ALWAYS

Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


def attention_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    *,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    needs_mask: bool,
    needs_alibi: bool,
    needs_sinks: bool,
) -> Gradients:
    """The gradients of q, k and v, and of the mask, the slopes and the sinks where asked for (else None).

    `out` and `lse` are what `attention_forward` gave for the same inputs; `grad_out` and `grad_lse` have their shapes,
    with any strides, also 0. Each gradient has the shape and dtype of its input. Errors are those of
    `attention_forward`; what it gave is not checked.
    """
    call = dense_call(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    backward = _Backward(call, grad_out, grad_lse, out, lse, needs_alibi, needs_sinks)
    d_q, d_k, d_v = (outputs.empty(x.shape, x) for x in (q, k, v))
    backward.run(d_q, d_k, d_v)
    return (
        d_q, d_k, d_v,
        backward.of_mask(mask) if needs_mask and mask is not None else None,
        *backward.of_heads(alibi_slopes, sinks),
    )  # fmt: skip


def varlen_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    *,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    needs_mask: bool,
    needs_alibi: bool,
    needs_sinks: bool,
    longest: tuple[int, int] | None = None,
) -> Gradients:
    """As `attention_backward`, of packed sequences: q (t_q, n_heads, d), lse (t_q, n_heads), and so on.

    Rows of no sequence, and pairs of a mask that belong to none, have gradient 0. Errors are those of
    `varlen_forward`.
    """
    call = packed_call(
        q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks,
        is_causal=is_causal, window=window, softcap=softcap, scale=scale, longest=longest,
    )  # fmt: skip
    of_lse = None if grad_lse is None else grad_lse.mT[None]
    backward = _Backward(
        call, grad_out.transpose(0, 1)[None], of_lse, out.transpose(0, 1)[None], lse.mT[None], needs_alibi, needs_sinks
    )
    d_q, d_k, d_v = (x.new_zeros(x.shape) for x in (q, k, v))
    backward.run(*(x.transpose(0, 1)[None] for x in (d_q, d_k, d_v)))
    return (
        d_q, d_k, d_v,
        backward.of_mask(mask) if needs_mask and mask is not None else None,
        *backward.of_heads(alibi_slopes, sinks),
    )  # fmt: skip


class _Backward:
    """One backward pass: the arguments that its kernels have in common, and the parts that they leave."""

    def __init__(
        self,
        call: Call,
        grad_out: Tensor,
        grad_lse: Tensor | None,
        out: Tensor,
        lse: Tensor,
        needs_alibi: bool,
        needs_sinks: bool,
    ) -> None:
        self.call, self.sizes = call, call.sizes
        self.packed = call.packing is not None
        self.out, self.lse, self.grad_lse = _by_component(out), lse, grad_lse
        batch, n_heads, self.rows = lse.shape  # packed: one batch of all rows
        self.row_lse, self.row_delta = (outputs.empty(lse.shape, lse, torch.float32) for _ in range(2))
        self.given: dict[str, Any] = call.arguments() | call.constants()
        tensors = {"q": call.q, "k": call.k, "v": call.v, "d_out": grad_out}
        for name, x in tensors.items():
            tensor = _by_component(x)
            self.given |= {name: tensor} | strides_of(name, tensor, packed=self.packed)
        self.given |= {
            "row_lse": self.row_lse,
            "row_delta": self.row_delta,
            "row_stride_b": 0 if self.packed else n_heads * self.rows,
            "row_stride_h": self.rows,
            "d_scale": call.scale,
            "HEAD_TILE": padded(self.sizes.head_dim),
            "VALUE_TILE": padded(self.sizes.d_v),
        }
        self.by_size = (self.sizes.head_dim, self.sizes.d_v, call.q.element_size(), call.target)
        self.row_tiles = _tiles(self.rows, rows_config(call.target).tile_q)
        self.sink_parts = self.slope_parts = None
        if needs_sinks and call.sinks is not None:
            self.sink_parts = outputs.empty((batch, n_heads, self.row_tiles), lse, torch.float32)
        self.query_tiles = _tiles(self.sizes.t_q, queries_config(*self.by_size).tile_q)
        if needs_alibi and call.slopes is not None:
            self.slope_parts = outputs.empty((self.sizes.b, n_heads, self.query_tiles), lse, torch.float32)

    def run(self, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> None:
        """Write the gradients (b, h, t, d) of q, k and v, and the parts of those of slopes and sinks."""
        from attnbook.kernels.flash.backward_keys import keys_kernel
        from attnbook.kernels.flash.backward_queries import queries_kernel
        from attnbook.kernels.flash.backward_rows import rows_kernel

        heads, tiles = self.sizes.b * self.sizes.n_heads, self.row_tiles
        of_rows = {
            "out": self.out, "lse": self.lse, "d_lse": self.grad_lse, "sink_parts": self.sink_parts,
            "t_q": self.rows, "q_tiles": tiles, **dict.fromkeys(_LSE_STRIDES),
            **strides_of("out", self.out), **strides_of("lse", self.lse),
            **({} if self.grad_lse is None else strides_of("d_lse", self.grad_lse)),
            "HAS_D_LSE": self.grad_lse is not None, "NEEDS_SINKS": self.sink_parts is not None,
        }  # fmt: skip
        self._launch(rows_kernel, self.row_lse[..., 0].numel() * tiles, rows_config(self.call.target), of_rows)

        config = keys_config(*self.by_size)
        tiles = _tiles(self.sizes.t_kv, config.tile_k)
        of_keys = {"d_k": d_k, "d_v": d_v, "k_tiles": tiles}
        of_keys |= strides_of("d_k", d_k, packed=self.packed) | strides_of("d_v", d_v, packed=self.packed)
        self._launch(keys_kernel, self.sizes.b * self.sizes.n_kv_heads * tiles, config, of_keys)

        of_queries = {"d_q": d_q, "slope_parts": self.slope_parts, "q_tiles": self.query_tiles}
        of_queries |= strides_of("d_q", d_q, packed=self.packed) | {"NEEDS_SLOPES": self.slope_parts is not None}
        self._launch(queries_kernel, heads * self.query_tiles, queries_config(*self.by_size), of_queries)

    def of_heads(self, alibi_slopes: Tensor | None, sinks: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of slopes and sinks, each in the shape and dtype of its input, where there are parts."""
        d_slopes = d_sinks = None
        if self.slope_parts is not None and alibi_slopes is not None:
            d_slopes = self.slope_parts.sum(-1).sum_to_size(alibi_slopes.shape).to(alibi_slopes.dtype)
        if self.sink_parts is not None and sinks is not None:
            d_sinks = self.sink_parts.sum((0, 2)).to(sinks.dtype)
        return d_slopes, d_sinks

    def of_mask(self, mask: Tensor) -> Tensor:
        """The gradient of the mask in its own shape and dtype."""
        from attnbook.kernels.flash.backward_mask import mask_kernel

        sizes, config = self.sizes, mask_config(*self.by_size)
        b, h, along_q, along_k = (1,) * (4 - mask.ndim) + tuple(mask.shape)
        tiles_q, tiles_k = _tiles(sizes.t_q, config.tile_q), _tiles(sizes.t_kv, config.tile_k)
        sum_queries, sum_keys = (t == 1 for t in (along_q, along_k))
        # Packed sequences have rows of their own in what is not summed; what is summed along both needs a place each.
        apart = sizes.b if self.packed and sum_queries and sum_keys else b
        shape = (apart, h, tiles_q if sum_queries else along_q, tiles_k if sum_keys else along_k)
        parts = outputs.empty(shape, self.lse)
        if self.packed:
            parts.zero_()
        stride_b, stride_h, stride_q, stride_k = parts.stride()
        served = 1 if self.packed else sizes.b // max(b, 1)
        of_mask = {
            "parts": parts, "part_stride_b": stride_b if apart > 1 else 0, "part_stride_h": stride_h,
            "part_stride_q": stride_q, "part_stride_k": stride_k,
            "q_tiles": tiles_q, "k_tiles": tiles_k, "mask_heads": h, "heads_each": sizes.n_heads // max(h, 1),
            "sequences_each": served, "SUM_QUERIES": sum_queries, "SUM_KEYS": sum_keys,
        }  # fmt: skip
        self._launch(mask_kernel, (sizes.b if self.packed else b) * h * tiles_q * tiles_k, config, of_mask)
        return parts.sum_to_size(b, h, along_q, along_k).to(mask.dtype).view(mask.shape)

    def _launch(self, kernel: Any, programs: int, config: Config, more: dict[str, Any]) -> None:
        """Start so many programs; each kernel picks what it has parameters for."""
        if programs == 0:
            return
        cut = {"TILE_Q": config.tile_q, "TILE_K": config.tile_k, "STAGES": config.num_stages}
        given = self.given | cut | more
        named = {name: given[name] for name in kernel.arg_names}
        kernel[(programs,)](**named, **ALWAYS, num_warps=config.num_warps, num_stages=config.num_stages)


_LSE_STRIDES = ("d_lse_stride_b", "d_lse_stride_h", "d_lse_stride_t")


def _tiles(length: int, tile: int) -> int:
    return -(-length // tile)


def _by_component(x: Tensor) -> Tensor:
    """The tensor, copied where the components of a row do not lie one after another (a gradient of stride 0)."""
    return x if x.stride(-1) == 1 else x.contiguous()
