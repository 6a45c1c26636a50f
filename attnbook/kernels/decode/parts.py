"""Parts of attention made one: what each split leaves, and what anybody else has who attended to some of the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnbook.errors import DTypeError, ShapeError
from attnbook.kernels import outputs, targets
from attnbook.kernels.available import interpreting, require
from attnbook.kernels.decode import configs
from attnbook.kernels.flash.configs import padded
from attnbook.kernels.variant import ALWAYS

if TYPE_CHECKING:
    from attnbook.kernels.decode.launch import Pages


def merge_parts(averages: Tensor, lses: Tensor, sinks: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention to some of the keys each, made one: what attention to all of them would have been.

    averages (parts, b, n_heads, t_q, d_v) and lses (parts, b, n_heads, t_q), natural -> out (b, n_heads, t_q, d_v) in
    the dtype of averages, lse (b, n_heads, t_q) float32. `sinks` (n_heads,), one score more for each row, must be in no
    part: it is added here, once. A part with lse −inf saw nothing and is not read; a row without any other gives 0 and
    −inf (with a sink: the sink). Raises ShapeError, DTypeError, ValueError or BackendUnavailable. Dao et al. 2023.
    """
    _check(averages, lses, sinks)
    require(averages)
    _, b, n_heads, t_q, d_v = averages.shape
    out = outputs.empty((b, n_heads, t_q, d_v), averages)
    lse = outputs.empty((b, n_heads, t_q), averages, torch.float32)
    if lse.numel():
        with targets.on_device_of(averages):
            launch_merge(averages, lses, None if sinks is None else sinks.float(), out, lse, None, None, split=1)
    return out, lse


def _check(averages: Tensor, lses: Tensor, sinks: Tensor | None) -> None:
    """Raises an error unless each part has an average and an lse for each row."""
    given = {"averages": averages, "lses": lses} | ({} if sinks is None else {"sinks": sinks})
    axes = {"averages": "parts, b, n_heads, t_q, d_v", "lses": "parts, b, n_heads, t_q", "sinks": "n_heads"}
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__module__}.{type(x).__name__}: expected a torch.Tensor")
        expected = len(axes[name].split(","))
        if x.ndim != expected:
            raise ShapeError(f"{name} has {x.ndim} axes {tuple(x.shape)}: expected {expected}, ({axes[name]})")
        if not x.is_floating_point():
            raise DTypeError(f"{name} has dtype {x.dtype}: expected a floating-point dtype")
        if x.device != averages.device:
            raise ValueError(f"{name} is on device {x.device} but averages on {averages.device}: they must be equal")
    if lses.shape != averages.shape[:-1]:
        raise ShapeError(f"lses has shape {tuple(lses.shape)}: expected {tuple(averages.shape[:-1])}, as averages has")
    if sinks is not None and len(sinks) != averages.shape[2]:
        raise ShapeError(f"sinks has shape {tuple(sinks.shape)}: expected (n_heads,) = ({averages.shape[2]},)")


def launch_merge(
    averages: Tensor,
    lses: Tensor,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor,
    pages: Pages | None,
    window: int | None,
    split: int,
) -> None:
    """Write out and lse, contiguous, from parts with any strides."""
    from attnbook.kernels.decode.merge import merge_kernel

    merge_kernel[(lse.numel(),)](
        **merge_arguments(averages, lses, sinks, out, lse, pages, window),
        **merge_constants(out, sinks, pages, window, split),
        num_warps=configs.MERGE_WARPS,
        num_stages=configs.MERGE_STAGES,
        **ALWAYS,
    )


def merge_arguments(
    averages: Tensor,
    lses: Tensor,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor,
    pages: Pages | None,
    window: int | None,
) -> dict[str, Any]:
    """What `merge_kernel` is given, by the names of its parameters; None for what it does not read."""
    axes = ("part", *"bhtd")
    return {
        **{"averages": averages, "lses": lses, "sinks": sinks, "out": out, "lse": lse, "window": window},
        "lengths": pages.lengths if pages else None,
        "new_rows": pages.new_rows if pages else None,
        "parts": len(averages),
        "n_heads": lse.shape[1],
        "t_q": lse.shape[2],
        **{f"averages_stride_{axis}": n for axis, n in zip(axes, averages.stride(), strict=True)},
        **{f"lses_stride_{axis}": n for axis, n in zip(axes, lses.stride(), strict=False)},
        "sink_stride_h": None if sinks is None else sinks.stride(0),
    }


def merge_constants(
    out: Tensor, sinks: Tensor | None, pages: Pages | None, window: int | None, split: int
) -> dict[str, Any]:
    """The constants that `merge_kernel` is compiled for."""
    return {
        "D_V": out.shape[-1],
        "PADDED_V": padded(out.shape[-1]),
        "SPLIT": split,
        "TILE_PARTS": configs.parts_at_a_time(out.shape[-1]),
        "HAS_WINDOW": window is not None,
        "HAS_SINKS": sinks is not None,
        "HAS_LENGTHS": pages is not None,
        "HAS_NEW_ROWS": pages is not None and pages.new_rows is not None,
        "UPCAST": interpreting() and out.dtype == torch.bfloat16,
    }
