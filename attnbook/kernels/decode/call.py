"""A call of decoding, checked, with its options as the kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.errors import BackendUnavailable, DTypeError
from attnbook.kernels.available import require, too_wide
from attnbook.shapes import AttentionSizes, check_attention, check_mask, check_options, check_window

LOG2E = 1.4426950408889634
"""The kernels' scores are in base 2: a natural exponent times log₂ e."""

NO_MASK, BOOLEANS, FLOATS = 0, 1, 2
"""As in `attnbook.kernels.tiles`, which needs Triton."""


@dataclass(frozen=True)
class Call:
    """What the kernels are told about one call, beside q and the keys and values."""

    sizes: AttentionSizes
    """t_kv: of the longest sequence."""
    mask: Tensor | None
    """(b, n_heads, t_q, t_kv), repeated without memory; bytes where it was booleans."""
    alibi_slopes: Tensor | None
    """(b, n_heads), float32."""
    sinks: Tensor | None
    """(n_heads,), float32, contiguous."""
    is_causal: bool
    window: int | None
    has_softcap: bool
    scale: float
    softcap: float
    hidden: float
    """A mask of floats hides where it is at most this: the lowest finite number of its dtype or of q's."""

    @property
    def mask_kind(self) -> int:
        if self.mask is None:
            return NO_MASK
        return BOOLEANS if self.mask.dtype == torch.uint8 else FLOATS


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
) -> Call:
    """The call, or the error that says what is wrong with it.

    Raises TypeError, ShapeError, ValueError or DTypeError for what does not fit, BackendUnavailable for what the kernels
    cannot do or cannot do here.
    """
    check_tensors({"q": q, "k": k, "v": v, "mask": mask, "alibi_slopes": alibi_slopes, "sinks": sinks})
    sizes = check_attention(q, k, v)
    check_options(
        sizes, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    if mask is not None:
        check_mask(mask, sizes)
    why = too_wide(sizes.head_dim, sizes.d_v)
    if why is not None:
        raise BackendUnavailable(why)
    require(q)
    return _call(q, sizes, mask, alibi_slopes, sinks, is_causal, window, softcap, scale)


def check_tensors(given: dict[str, Tensor | None]) -> None:
    """Raises TypeError, DTypeError or ValueError unless all hold the right kinds of number, on the device of q."""
    for name, x in given.items():
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__module__}.{type(x).__name__}: expected a torch.Tensor")
    q = given["q"]
    assert q is not None
    for name, x in given.items():
        if x is None:
            continue
        if x.device != q.device:
            raise ValueError(f"{name} is on device {x.device} but q on {q.device}: they must be on one device")
        if name in ("mask", "alibi_slopes", "sinks"):
            if not x.is_floating_point() and not (name == "mask" and x.dtype == torch.bool):
                expected = "booleans (True = may attend) or floats to be added" if name == "mask" else "floats"
                raise DTypeError(f"{name} has dtype {x.dtype}: expected {expected}")
        elif x.dtype != q.dtype:
            raise DTypeError(f"{name} has dtype {x.dtype} but q has {q.dtype}: they must be equal")


def _call(
    q: Tensor,
    sizes: AttentionSizes,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
) -> Call:
    scale = sizes.head_dim**-0.5 if scale is None else float(scale)
    hidden = torch.finfo(q.dtype).min
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = mask.view(torch.uint8)
        else:
            hidden = max(hidden, torch.finfo(mask.dtype).min)
        mask = mask.detach().expand(sizes.scores)
    if alibi_slopes is not None:
        alibi_slopes = alibi_slopes.detach().float().expand(sizes.b, sizes.n_heads)
    return Call(
        sizes=sizes,
        mask=mask,
        alibi_slopes=alibi_slopes,
        sinks=None if sinks is None else sinks.detach().float().contiguous(),
        is_causal=bool(is_causal),
        window=None if window is None else int(window),
        has_softcap=softcap is not None,
        scale=scale * LOG2E if softcap is None else scale / float(softcap),
        softcap=0.0 if softcap is None else float(softcap) * LOG2E,
        hidden=hidden,
    )
