"""One call of attention, checked: what every implementation is handed, and what the choice between them reads.

The checks' texts are those of `attnbook.shapes` and of the reference; here is only a shorter way through them, because
a call of torch's own attention at t = 512 takes less than a millisecond.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbook.api.autocast import cast
from attnbook.errors import DTypeError
from attnbook.reference.attention import check_kinds
from attnbook.shapes import AttentionSizes, check_attention, check_mask, check_options

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""The dtypes that every implementation calculates in or from."""


class Call(NamedTuple):
    """The arguments of `attention`, checked and under autocast cast, with the lengths of all axes."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    is_causal: bool
    window: int | None
    alibi_slopes: Tensor | None
    softcap: float | None
    sinks: Tensor | None
    scale: float | None
    return_lse: bool
    sizes: AttentionSizes

    @property
    def hides(self) -> bool:
        """May some query not see some key?"""
        return self.mask is not None or self.window is not None or (self.is_causal and self.sizes.t_q > 1)

    @property
    def needs_grad(self) -> bool:
        """Will a backward pass be possible?"""
        given = (self.q, self.k, self.v, self.mask, self.alibi_slopes, self.sinks)
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)

    @property
    def options(self) -> dict[str, Any]:
        """All but q, k, v, as the reference and the tiles take them."""
        return {name: getattr(self, name) for name in Call._fields[3:-1]}


def checked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    window: int | None,
    alibi_slopes: Any,
    softcap: float | None,
    sinks: Any,
    scale: float | None,
    return_lse: bool,
) -> Call:
    """The call, or the error that says which axis, dtype, device or option is wrong."""
    q, k, v = cast(q, k, v)
    sizes = check_attention(q, k, v)
    alibi_slopes, sinks = brought("alibi_slopes", alibi_slopes, q), brought("sinks", sinks, q)
    check_options(
        sizes, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    check_tensors(q, k, v, mask, alibi_slopes, sinks)
    if mask is not None:
        check_mask(mask, sizes)
    return Call(q, k, v, mask, bool(is_causal), window, alibi_slopes, softcap, sinks, scale, return_lse, sizes)


def brought(name: str, x: Any, q: Any) -> Any:
    """Slopes or sinks that are a list or an array of another library, in q's library, on its device.

    They are settings more often than tensors: `alibi_slopes(8)` is a NumPy array. float32, or float64 for float64 q.
    What comes from q's library already stays as it is. Raises TypeError where there is no number.
    """
    if x is None or (isinstance(x, Tensor) == isinstance(q, Tensor) and hasattr(x, "shape")):
        return x
    try:
        return _as_tensor(x, q) if isinstance(q, Tensor) else _as_array(x, q)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is {x!r}: expected a floating-point number for each head") from error


def _as_tensor(x: Any, q: Tensor) -> Tensor:
    if isinstance(x, list | tuple):
        found = torch.tensor(x)
    else:
        import numpy

        found = torch.from_numpy(numpy.array(x))  # copied: it may be read-only, or run backwards
    if found.dtype == torch.bool or found.is_complex():
        raise TypeError(f"dtype {found.dtype}")
    return found.to(device=q.device, dtype=working_dtype(q))


def _as_array(x: Any, q: Any) -> Any:
    import numpy

    if isinstance(x, Tensor):
        x = x.detach().cpu().to(working_dtype(x))  # NumPy has no bfloat16
    found = numpy.asarray(x)
    if found.dtype.kind not in "fiu":
        raise TypeError(f"dtype {found.dtype}")
    return found.astype(numpy.float64 if q.dtype == numpy.float64 else numpy.float32)


def working_dtype(x: Tensor) -> torch.dtype:
    """float64 for float64, float32 for shorter floats."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def not_dense(name: str, x: Tensor) -> TypeError:
    """The error for a tensor that is sparse or nested: it has no rows of one length to be read."""
    kind = "nested" if x.is_nested else f"of layout {x.layout}"
    return TypeError(f"{name} is {kind}: expected a dense tensor (sequences of many lengths: attention_varlen)")


def check_tensors(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, alibi_slopes: Tensor | None, sinks: Tensor | None
) -> None:
    """Raises TypeError, ValueError or DTypeError unless all are tensors of one device and of fitting dtypes."""
    for name, given in (("q", q), ("k", k), ("v", v)):
        if isinstance(given, Tensor) and (given.is_nested or given.layout != torch.strided):
            raise not_dense(name, given)
    dtype, device = q.dtype, q.device
    fits = isinstance(k, Tensor) and isinstance(v, Tensor) and k.dtype == v.dtype == dtype
    fits = fits and k.device == v.device == device
    for x in (mask, alibi_slopes, sinks):
        fits = fits and (x is None or (isinstance(x, Tensor) and x.device == device))
    for x in (alibi_slopes, sinks):
        fits = fits and (x is None or x.is_floating_point())
    if not fits:
        check_kinds(q, k, v, mask=mask, alibi_slopes=alibi_slopes, sinks=sinks)
    if dtype not in FLOATS:
        raise DTypeError(f"q has dtype {dtype}: expected float64, float32, float16 or bfloat16")
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise DTypeError(f"mask has dtype {mask.dtype}: expected booleans (True = may attend) or floats to be added")
