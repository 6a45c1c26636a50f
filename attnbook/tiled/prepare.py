"""What forward and backward have in common before the first tile: checks, the working dtype, the size of tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.errors import DTypeError
from attnbook.shapes import AttentionSizes, check_attention, check_mask, check_options
from attnbook.tiled.scores import Options


def check(
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
) -> tuple[AttentionSizes, Options]:
    """The sizes and options of a call, or the error that says what is wrong with it."""
    given = {"q": q, "k": k, "v": v, "mask": mask, "alibi_slopes": alibi_slopes, "sinks": sinks}
    for name, x in given.items():
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__module__}.{type(x).__name__}: expected a torch.Tensor")
    sizes = check_attention(q, k, v)
    check_options(
        sizes, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    _check_kinds(q, given)
    if mask is not None:
        check_mask(mask, sizes)
    scale = sizes.head_dim**-0.5 if scale is None else float(scale)
    cap = None if softcap is None else float(softcap)
    hidden = max(torch.finfo(x.dtype).min for x in (q, mask) if x is not None and x.is_floating_point())
    return sizes, Options(bool(is_causal), None if window is None else int(window), cap, scale, hidden)


def _check_kinds(q: Tensor, given: dict[str, Tensor | None]) -> None:
    """Raises DTypeError or ValueError unless the tensors hold the right kinds of number, on one device."""
    for name, x in given.items():
        if x is None:
            continue
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


def working_dtype(x: Tensor) -> torch.dtype:
    """The dtype to calculate in: float64 for float64, float32 for every shorter float."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def four_axes(mask: Tensor | None) -> Tensor | None:
    """The mask with its missing leading axes, of length 1."""
    return None if mask is None else mask[(None,) * (4 - mask.ndim)]


def of_every_head(x: Tensor | None, sizes: AttentionSizes, dtype: torch.dtype) -> Tensor | None:
    """Slopes or sinks (h,) or (b, h) as (b, h), in the working dtype."""
    return None if x is None else x.to(dtype).expand(sizes.b, sizes.n_heads)


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of a tile, and lanes that go through one product."""

    q: int
    k: int
    lanes: int


def tile_sizes(sizes: AttentionSizes, window: int | None, tile_q: int | None, tile_k: int | None) -> Tiles:
    """The tiles asked for, or those that suit the sizes. Raises ValueError for a tile below 1."""
    for name, tile in (("tile_q", tile_q), ("tile_k", tile_k)):
        if tile is not None and tile < 1:
            raise ValueError(f"{name} is {tile}: expected at least 1, or None for a size that suits")
    if tile_q is None:
        tile_q = 128 if window is not None and window <= 1024 else 256
    tile_q = max(min(tile_q, sizes.t_q), 1)
    if tile_k is None:
        stretch = sizes.t_kv if window is None else min(window + tile_q - 1, sizes.t_kv)
        # A window's stretch in equal parts: it is the same for every tile of queries.
        tile_k = LONGEST if window is None else math.ceil(stretch / math.ceil(max(stretch, 1) / LONGEST))
    tile_k = max(min(tile_k, sizes.t_kv), 1)
    group = max(sizes.n_heads // max(sizes.n_kv_heads, 1), 1)
    lanes = max(SCORES // (group * tile_q * tile_k), 1)
    return Tiles(tile_q, tile_k, lanes)


SCORES = 1 << 20
"""How many scores are held at a time, about: 4 MiB of float32, four heads of 256 queries and 1024 keys.

Each product is shared out to all threads and waited for, so few large ones are quicker than many small ones."""

LONGEST = 1024
"""Keys of a tile at most: enough to make its product quick and its merging cheap."""


class Scratch:
    """Memory for tiles that is taken once and serves tile after tile: fresh memory costs a page fault every 4 KiB."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """Uninitialised memory of this shape: what was taken under the same name before is gone."""
        size = math.prod(shape)
        if name not in self._held or self._held[name].numel() < size:
            self._held[name] = self._like.new_empty(size)
        return self._held[name][:size].view(*shape)
