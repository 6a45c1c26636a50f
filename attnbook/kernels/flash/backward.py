"""The gradients of attention on tensors: which kernels run, in which order, and what is summed up after them.

    rows     lse and delta of every query, and what sinks get
    keys     d_k and d_v: a program a tile of keys
    queries  d_q, and what slopes get: a program a tile of queries
    mask     the gradient of a mask of floats, only where it is asked for

What stands out: each number is written by one program, which adds up what it consists of in a fixed order. There are
no atomic additions, so the same call gives the same bits every time. Where a sum goes over programs, they write parts
and `torch.sum` adds them. Nothing is copied but a gradient whose rows are not contiguous, such as that of a sum. Where
something may be hidden, `keys` and `queries` run twice: the second time, carefully, for tiles that hold a NaN or inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.errors import DTypeError, ShapeError
from attnbook.kernels import outputs
from attnbook.kernels.flash.backward_configs import again_config, keys_config, mask_config, queries_config, rows_config
from attnbook.kernels.flash.call import Call, dense_call, packed_call, strides_of
from attnbook.kernels.flash.configs import Config, padded
from attnbook.kernels.flash.descriptors import descriptor, takes_descriptor
from attnbook.kernels.flash.launch import Launch

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
    `attention_forward`; of what it gave and what comes in, shapes and dtypes are checked (ShapeError, DTypeError).
    """
    call = dense_call(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    _check_given(q, (*q.shape[:3], v.shape[3]), q.shape[:3], grad_out, grad_lse, out, lse)
    backward = Backward(call, grad_out, grad_lse, out, lse, needs_alibi=needs_alibi, needs_sinks=needs_sinks)
    d_q, d_k, d_v = (outputs.empty(x.shape, x) for x in (q, k, v))
    return d_q, d_k, d_v, *_run(backward, (d_q, d_k, d_v), mask if needs_mask else None, alibi_slopes, sinks)


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
    _check_given(q, (*q.shape[:2], v.shape[2]), q.shape[:2], grad_out, grad_lse, out, lse)
    of_lse = None if grad_lse is None else grad_lse.mT[None]
    of_out, d_out = (x.transpose(0, 1)[None] for x in (out, grad_out))
    backward = Backward(call, d_out, of_lse, of_out, lse.mT[None], needs_alibi=needs_alibi, needs_sinks=needs_sinks)
    d_q, d_k, d_v = (x.new_zeros(x.shape) for x in (q, k, v))
    by_head = (d_q.transpose(0, 1)[None], d_k.transpose(0, 1)[None], d_v.transpose(0, 1)[None])
    return d_q, d_k, d_v, *_run(backward, by_head, mask if needs_mask else None, alibi_slopes, sinks)


def _check_given(
    q: Tensor,
    of_out: tuple[int, ...],
    of_lse: tuple[int, ...],
    grad_out: Tensor,
    grad_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
) -> None:
    """Raises ShapeError or DTypeError for what would make a kernel read beyond the end of something."""
    given = {"grad_out": (grad_out, of_out), "out": (out, of_out), "lse": (lse, of_lse), "grad_lse": (grad_lse, of_lse)}
    for name, (x, shape) in given.items():
        if x is not None and tuple(x.shape) != tuple(shape):
            raise ShapeError(f"{name} has shape {tuple(x.shape)}: expected {tuple(shape)}")
        if x is not None and len(shape) == len(of_out) and x.dtype != q.dtype:
            raise DTypeError(f"{name} has dtype {x.dtype} but q has {q.dtype}: they must be equal")


def _run(
    backward: Backward,
    grads: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Fill the gradients (b, h, t, d) of q, k and v -> those of the mask, of the slopes and of the sinks."""
    d_q, d_k, d_v = grads
    backward.rows().start()
    for again in (False, True) if backward.may_hide else (False,):
        backward.keys(d_k, d_v, again=again).start()
        backward.queries(d_q, again=again).start()
    d_mask = d_slopes = d_sinks = None
    if mask is not None:
        parts = backward.mask_parts(mask)
        backward.mask(mask, parts).start()
        shape = (1,) * (4 - mask.ndim) + mask.shape
        d_mask = parts.sum_to_size(shape).to(mask.dtype).view(mask.shape)
    if backward.slope_parts is not None and alibi_slopes is not None:
        d_slopes = backward.slope_parts.sum(-1).sum_to_size(alibi_slopes.shape).to(alibi_slopes.dtype)
    if backward.sink_parts is not None and sinks is not None:
        d_sinks = backward.sink_parts.sum((0, 2)).to(sinks.dtype)
    return d_mask, d_slopes, d_sinks


class Backward:
    """The launches of one backward pass, and the parts that they leave. Packed tensors come as (1, h, t, …)."""

    def __init__(
        self,
        call: Call,
        grad_out: Tensor,
        grad_lse: Tensor | None,
        out: Tensor,
        lse: Tensor,
        *,
        needs_alibi: bool,
        needs_sinks: bool,
    ) -> None:
        sizes, packed = call.sizes, call.packing is not None
        b, n_heads, rows = lse.shape  # packed: all rows in one batch
        self.call, self.packed, self.out, self.lse, self.grad_lse = call, packed, by_component(out), lse, grad_lse
        by_size = (sizes.head_dim, sizes.d_v, call.q.element_size(), call.target)
        self.of_rows, self.of_mask = rows_config(call.target), mask_config(*by_size)
        options = any(x is not None for x in (call.mask, call.softcap, call.slopes))
        self.of_keys, self.of_queries = keys_config(*by_size, options), queries_config(*by_size, options)
        self.sink_parts = self.slope_parts = None
        if needs_sinks and call.sinks is not None:
            self.sink_parts = outputs.empty((b, n_heads, tiles(rows, self.of_rows.tile_q)), lse, torch.float32)
        if needs_alibi and call.slopes is not None:
            self.slope_parts = outputs.empty((sizes.b, n_heads, sizes.t_q), lse, torch.float32)

        self.given = call.arguments() | {
            "row_lse": outputs.empty(lse.shape, lse, torch.float32),
            "row_delta": outputs.empty(lse.shape, lse, torch.float32),
            "row_stride_b": 0 if packed else n_heads * rows,
            "row_stride_h": rows,
            "d_scale": call.scale,
        }
        for name, x in {"q": call.q, "k": call.k, "v": call.v, "d_out": grad_out}.items():
            self._give(name, by_component(x))
        self.constants = call.constants() | {"HEAD_TILE": padded(sizes.head_dim), "VALUE_TILE": padded(sizes.d_v)}

    def _give(self, name: str, x: Tensor) -> None:
        self.given |= {name: x} | strides_of(name, x, packed=self.packed)

    def _descriptors(self, config: Config, keyed: str, valued: str, *, rows: int) -> dict[str, Any]:
        """Descriptors of what a kernel walks over, for tiles of so many rows; None each where pointers are used."""
        walked = {keyed: self.constants["HEAD_TILE"], valued: self.constants["VALUE_TILE"]}
        if not config.descriptors or not all(takes_descriptor(self.given[name]) for name in walked):
            return {f"tiles_of_{name}": None for name in walked}
        return {f"tiles_of_{name}": descriptor(self.given[name], rows, columns) for name, columns in walked.items()}

    def rows(self) -> Launch:
        """What each query must know about its softmax. It makes no difference here which sequence a row belongs to."""
        from attnbook.kernels.flash.backward_rows import rows_kernel

        of_lse = dict.fromkeys(f"d_lse_stride_{axis}" for axis in ("b", "h", "t"))
        given = self.given | of_lse | {"out": self.out, "lse": self.lse, "d_lse": self.grad_lse}
        for name in ("out", "lse", "d_out", "d_lse"):
            given |= {} if given[name] is None else strides_of(name, given[name])
        b, n_heads, rows = self.lse.shape
        given |= {"t_q": rows, "q_tiles": tiles(rows, self.of_rows.tile_q), "sink_parts": self.sink_parts}
        constants = {"HAS_D_LSE": self.grad_lse is not None, "NEEDS_SINKS": self.sink_parts is not None}
        return self._launch(rows_kernel, b * n_heads * given["q_tiles"], self.of_rows, given, constants)

    @property
    def may_hide(self) -> bool:
        """May something come into a tile that is hidden there? A descriptor brings what is behind a packed sequence."""
        return self.call.hides or (self.packed and (self.of_keys.descriptors or self.of_queries.descriptors))

    def keys(self, d_k: Tensor, d_v: Tensor, *, again: bool = False) -> Launch:
        """The gradients of k and v, after `rows`; `again`, after `keys`: those that are not finite, carefully."""
        from attnbook.kernels.flash.backward_keys import keys_kernel

        sizes, config = self.call.sizes, self.of_keys
        config = again_config(config, sizes.head_dim, sizes.d_v, self.call.target) if again else config
        k_tiles = tiles(sizes.t_kv, config.tile_k)
        self._give("d_k", d_k)
        self._give("d_v", d_v)
        described = self._descriptors(config, "q", "d_out", rows=config.tile_q)
        given = self.given | {"k_tiles": k_tiles} | described
        constants = {"HAS_DESCRIPTORS": None not in described.values(), "AGAIN": again}
        return self._launch(keys_kernel, sizes.b * sizes.n_kv_heads * k_tiles, config, given, constants)

    def queries(self, d_q: Tensor, *, again: bool = False) -> Launch:
        """The gradient of q, after `rows`, and the parts of the slopes'; `again` as in `keys`."""
        from attnbook.kernels.flash.backward_queries import queries_kernel

        sizes, config = self.call.sizes, self.of_queries
        if again:
            config = again_config(config, sizes.head_dim, sizes.d_v, self.call.target, of_queries=True)
        q_tiles = tiles(sizes.t_q, config.tile_q)
        self._give("d_q", d_q)
        described = self._descriptors(config, "k", "v", rows=config.tile_k)
        given = self.given | {"q_tiles": q_tiles, "slope_parts": self.slope_parts} | described
        constants = {"HAS_DESCRIPTORS": None not in described.values(), "NEEDS_SLOPES": self.slope_parts is not None}
        constants["AGAIN"] = again
        return self._launch(queries_kernel, sizes.b * sizes.n_heads * q_tiles, config, given, constants)

    def mask_parts(self, mask: Tensor) -> Tensor:
        """Room for the gradient of the mask, four axes: where it has length 1 along t, a number for each tile.

        Packed sequences have rows of their own in what is not summed; what is summed along both needs a place each.
        """
        sizes = self.call.sizes
        b, h, along_q, along_k = (1,) * (4 - mask.ndim) + tuple(mask.shape)
        b = sizes.b if self.packed and along_q == along_k == 1 else b
        along_q = tiles(sizes.t_q, self.of_mask.tile_q) if along_q == 1 else along_q
        along_k = tiles(sizes.t_kv, self.of_mask.tile_k) if along_k == 1 else along_k
        parts = outputs.empty((b, h, along_q, along_k), self.lse, torch.float32)
        return parts.zero_() if self.packed else parts

    def mask(self, mask: Tensor, parts: Tensor) -> Launch:
        """The gradient of the mask, after `rows`."""
        from attnbook.kernels.flash.backward_mask import mask_kernel

        sizes = self.call.sizes
        b, h, along_q, along_k = (1,) * (4 - mask.ndim) + tuple(mask.shape)
        given = self.given | {"parts": parts, "mask_heads": h, "heads_each": sizes.n_heads // max(h, 1)}
        given |= dict(zip((f"part_stride_{axis}" for axis in ("b", "h", "q", "k")), parts.stride(), strict=True))
        given["part_stride_b"] = parts.stride(0) if parts.shape[0] > 1 else 0
        given["sequences_each"] = 1 if self.packed else sizes.b // max(b, 1)
        given["q_tiles"] = tiles(sizes.t_q, self.of_mask.tile_q)
        given["k_tiles"] = tiles(sizes.t_kv, self.of_mask.tile_k)
        programs = (sizes.b if self.packed else b) * h * given["q_tiles"] * given["k_tiles"]
        constants = {"SUM_QUERIES": along_q == 1, "SUM_KEYS": along_k == 1}
        return self._launch(mask_kernel, programs, self.of_mask, given, constants)

    def _launch(
        self, kernel: Any, programs: int, config: Config, given: dict[str, Any], constants: dict[str, Any]
    ) -> Launch:
        cut = {"TILE_Q": config.tile_q, "TILE_K": config.tile_k, "STAGES": config.num_stages}
        return Launch(kernel, programs, given, self.constants | cut | constants, config)


def tiles(length: int, tile: int) -> int:
    """How many tiles it takes."""
    return -(-length // tile)


def by_component(x: Tensor) -> Tensor:
    """The tensor, copied where the components of a row do not lie one after another (a gradient of stride 0)."""
    return x if x.stride(-1) == 1 else x.contiguous()
