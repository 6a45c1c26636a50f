"""From a call on tensors to the arguments of a kernel: checks, one layout for dense and packed, options as constants.

What stands out: forward and backward take their options from here, so neither can read a mask, a slope or a scale
otherwise than the other. Packed tensors (t, h, d) are seen as (1, h, t, d), and `cu_seqlens` say where each sequence
lies along t; so dense and packed calls are one kernel, which differs in how it finds its first row.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.errors import BackendUnavailable, DTypeError, ShapeError
from attnbook.kernels.available import require, too_wide
from attnbook.kernels.targets import Target, target_of
from attnbook.shapes import (
    AttentionSizes,
    check_attention,
    check_cu_seqlens,
    check_mask,
    check_options,
    check_varlen,
    whole_numbers,
)

LOG2E = math.log2(math.e)

NO_MASK, BOOLEANS, FLOATS = 0, 1, 2
"""What `MASK_KIND` is; as in `attnbook.kernels.tiles`."""


@dataclass(frozen=True)
class Packing:
    """Where the sequences of a packed call lie."""

    cu_q: Tensor
    """(n + 1,) int32, on the device: the first query of each sequence, and the end of the last."""
    cu_k: Tensor
    longest_q: int
    """The most queries of a sequence."""
    longest_k: int
    covers: bool
    """Is it sure that every row belongs to a sequence?"""


@dataclass(frozen=True)
class Call:
    """One checked call. Tensors have four axes, (b, h, t, d); those of a packed call have b = 1."""

    sizes: AttentionSizes
    """Packed: b counts sequences, t_q and t_kv are the longest."""
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    """(b, n_heads, t_q, t_kv), a view that repeats by strides of 0; bytes for booleans."""
    slopes: Tensor | None
    """(b, n_heads) float32."""
    sinks: Tensor | None
    """(n_heads,) float32."""
    is_causal: bool
    window: int | None
    softcap: float | None
    scale: float
    hidden: float
    """A mask of floats hides where it is at most this: the lowest finite number of its own dtype or of q's."""
    packing: Packing | None
    target: Target

    @property
    def group(self) -> int:
        """How many query heads share a key head."""
        return self.sizes.n_heads // max(self.sizes.n_kv_heads, 1)

    @property
    def bare(self) -> bool:
        """Are the scores the scaled products and nothing else?"""
        return self.mask is None and self.softcap is None and self.slopes is None

    @property
    def hides(self) -> bool:
        """May some query not see some key of its sequence?"""
        return self.is_causal or self.mask is not None

    @property
    def upcast(self) -> bool:
        """Must tiles be read as float32? The interpreter calculates bfloat16 wrongly."""
        return self.target.interpreted and self.q.dtype == torch.bfloat16

    def arguments(self) -> dict[str, Any]:
        """What every flash kernel is given beside q, k, v and what it writes, by the names of its parameters."""
        packing = self.packing
        mask_strides = (None,) * 4 if self.mask is None else self.mask.stride()
        if self.mask is not None and packing is not None:  # one mask of all sequences
            mask_strides = (0, *mask_strides[1:])
        slope_strides = (None,) * 2 if self.slopes is None else self.slopes.stride()
        return {
            "mask": self.mask,
            **dict(zip((f"mask_stride_{axis}" for axis in ("b", "h", "q", "k")), mask_strides, strict=True)),
            "slopes": self.slopes,
            **dict(zip((f"slope_stride_{axis}" for axis in ("b", "h")), slope_strides, strict=True)),
            "sinks": self.sinks,
            "sink_stride_h": None if self.sinks is None else self.sinks.stride(0),
            "cu_q": None if packing is None else packing.cu_q,
            "cu_k": None if packing is None else packing.cu_k,
            "t_q": self.sizes.t_q,
            "t_kv": self.sizes.t_kv,
            "n_heads": self.sizes.n_heads,
            "group": self.group,
            "window": self.window,
            "scale": self.scale * LOG2E if self.softcap is None else self.scale / self.softcap,
            "softcap": None if self.softcap is None else self.softcap * LOG2E,
            "hidden": None if kind_of(self.mask) != FLOATS else self.hidden,
        }

    def constants(self) -> dict[str, Any]:
        """The constants that every flash kernel is compiled for."""
        return {
            "HEAD_DIM": self.sizes.head_dim,
            "D_V": self.sizes.d_v,
            "IS_VARLEN": self.packing is not None,
            "IS_CAUSAL": self.is_causal,
            "HAS_WINDOW": self.window is not None,
            "HAS_SOFTCAP": self.softcap is not None,
            "HAS_ALIBI": self.slopes is not None,
            "HAS_SINKS": self.sinks is not None,
            "MASK_KIND": kind_of(self.mask),
            "UPCAST": self.upcast,
        }


def strides_of(name: str, x: Tensor, *, packed: bool = False) -> dict[str, int]:
    """The strides of a tensor (b, h, t, d), or (b, h, t), by the names of a kernel's parameters.

    All sequences of a packed tensor lie in one batch: the stride from one to the next is 0.
    """
    axes = ("b", "h", "t", "d")[: x.ndim]
    strides = {f"{name}_stride_{axis}": stride for axis, stride in zip(axes, x.stride(), strict=True)}
    return strides | {f"{name}_stride_b": 0} if packed else strides


def kind_of(mask: Tensor | None) -> int:
    """NO_MASK, BOOLEANS or FLOATS."""
    if mask is None:
        return NO_MASK
    return FLOATS if mask.is_floating_point() else BOOLEANS


def dense_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    *,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
) -> Call:
    """The call on (b, h, t, d), or the error that says what is wrong with it.

    ShapeError, DTypeError, ValueError and TypeError as from `attnbook.attention`; BackendUnavailable for what only
    these kernels cannot take.
    """
    _check_tensors(q, k, v, mask, alibi_slopes, sinks)
    sizes = check_attention(q, k, v)
    check_options(
        sizes, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    if mask is not None:
        check_mask(mask, sizes)
        mask = mask.expand(sizes.scores)
    return _call(sizes, q, k, v, mask, alibi_slopes, sinks, is_causal, window, softcap, scale, None)


def packed_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
    longest: tuple[int, int] | None,
) -> Call:
    """The call on packed (t, h, d), or the error that says what is wrong with it.

    `cu_q` and `cu_k` hold integers, on the device of q. Their values are checked, which waits for the device, unless
    `longest`, the most queries and keys of a sequence, is given: then they are taken as checked.
    """
    _check_tensors(q, k, v, mask, alibi_slopes, sinks)
    sizes = check_varlen(q, k, v)
    packing = _packing(cu_q, cu_k, longest, q, k)
    n = len(cu_q) - 1
    packed = AttentionSizes(n, sizes.n_heads, sizes.n_kv_heads, sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v)
    check_options(
        packed, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    if mask is not None:  # of the packed axes: the same memory for all sequences
        check_mask(
            mask,
            AttentionSizes(1, *packed.scores[1:2], sizes.n_kv_heads, *packed.scores[2:], sizes.head_dim, sizes.d_v),
        )
        mask = mask.expand(1, *packed.scores[1:])
    per_sequence = AttentionSizes(
        n, sizes.n_heads, sizes.n_kv_heads, packing.longest_q, packing.longest_k, sizes.head_dim, sizes.d_v
    )
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return _call(per_sequence, q, k, v, mask, alibi_slopes, sinks, is_causal, window, softcap, scale, packing)


def _packing(cu_q: Tensor, cu_k: Tensor, longest: tuple[int, int] | None, q: Tensor, k: Tensor) -> Packing:
    first_q, first_k = (x.to(device=q.device, dtype=torch.int32).contiguous() for x in (cu_q, cu_k))
    if longest is not None:
        if first_q.ndim != 1 or first_q.shape != first_k.shape or not len(first_q):
            shapes = f"{tuple(cu_q.shape)} and {tuple(cu_k.shape)}"
            raise ShapeError(f"cu_seqlens_q and cu_seqlens_k have shapes {shapes}: expected one axis, of equal length")
        return Packing(first_q, first_k, *longest, covers=False)
    ends_q, ends_k = whole_numbers("cu_seqlens_q", cu_q), whole_numbers("cu_seqlens_k", cu_k)
    check_cu_seqlens(ends_q, ends_k, check_varlen(q, k, k))
    longest_q, longest_k = (
        max((end - start for start, end in itertools.pairwise(ends)), default=0) for ends in (ends_q, ends_k)
    )
    return Packing(first_q, first_k, longest_q, longest_k, covers=ends_q[-1] == q.shape[0])


def _call(
    sizes: AttentionSizes,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    packing: Packing | None,
) -> Call:
    require(q)
    wide = too_wide(sizes.head_dim, sizes.d_v)
    if wide is not None:
        raise BackendUnavailable(wide)
    hidden = max(torch.finfo(x.dtype).min for x in (q, mask) if x is not None and x.is_floating_point())
    if mask is not None and mask.dtype == torch.bool:
        mask = mask.view(torch.uint8)
    if mask is not None and mask.dtype == torch.float64:
        mask = mask.float()
    slopes = None if alibi_slopes is None else alibi_slopes.float().expand(sizes.b, sizes.n_heads)
    # A window longer than the keys hides nothing; as a length of its own it could make int32 run over in a kernel.
    return Call(
        sizes, q, k, v, mask, slopes, None if sinks is None else sinks.float(), bool(is_causal),
        None if window is None else min(int(window), max(sizes.t_kv, 1)), None if softcap is None else float(softcap),
        sizes.head_dim**-0.5 if scale is None else float(scale), hidden, packing, target_of(q.device),
    )  # fmt: skip


def _check_tensors(q: Tensor, *others: Tensor | None) -> None:
    """Raises TypeError, ValueError or DTypeError unless all are tensors of the right kind, on one device."""
    names = ("q", "k", "v", "mask", "alibi_slopes", "sinks")
    given = {name: x for name, x in zip(names, (q, *others), strict=True) if x is not None}
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__module__}.{type(x).__name__}: expected a torch.Tensor")
    for name, x in given.items():
        if x.device != q.device:
            raise ValueError(f"{name} is on device {x.device} but q on {q.device}: they must be on one device")
        if name in ("k", "v") and x.dtype != q.dtype:
            raise DTypeError(f"{name} has dtype {x.dtype} but q has {q.dtype}: they must be equal")
        if name == "mask":
            if x.dtype != torch.bool and not x.is_floating_point():
                raise DTypeError(
                    f"mask has dtype {x.dtype}: expected booleans (True = may attend) or floats to be added"
                )
        elif not x.is_floating_point():
            raise DTypeError(f"{name} has dtype {x.dtype}: expected a floating-point dtype")
