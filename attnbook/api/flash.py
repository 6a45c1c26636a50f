"""torch's flash attention for the CPU, called below `scaled_dot_product_attention`: there it returns its lse, too.

It is the same kernel, so nothing is lost by it. What it keeps, out and lse, is what our own backward keeps: each of the
two passes can be torch's or the tiles'. Where torch does not do what our conventions say (a NaN behind a mask, a finite
number that hides a whole row), the functions below find it out from what came back, and return None; then others
calculate. torch does not document these operators: where they are missing, `suits` says no.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbook.api.call import FLOATS, Call
from attnbook.api.exponents import ends_surely_finite, surely_finite
from attnbook.api.float_mask import added, borrowed, give_back

FORWARD: Any = getattr(torch, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel as a function of torch, which costs 45 µs less than the same out of `torch.ops.aten`."""

BACKWARD: Any = getattr(
    getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None), "default", None
)

REGISTER = 16
"""The fewest keys with which torch 2.13 on the CPU kept every NaN (AVX-512; 16 floats)."""

HALF = (torch.float16, torch.bfloat16)


class How(NamedTuple):
    """The options of `attnbook.attention` that come as tensors or numbers, beside q, k, v."""

    mask: Tensor | None
    alibi_slopes: Tensor | None
    sinks: Tensor | None
    is_causal: bool
    window: int | None
    softcap: float | None
    scale: float | None


def how_of(call: Call) -> How:
    """These of a checked call."""
    return How(call.mask, call.alibi_slopes, call.sinks, call.is_causal, call.window, call.softcap, call.scale)


def has_options(q: Tensor, v: Tensor, how: How) -> bool:
    """Is it a call of which torch's kernel knows every option? Lengths are not asked: they may be symbols."""
    if FORWARD is None or BACKWARD is None or q.device.type not in ("cpu", "meta") or q.dtype not in FLOATS:
        return False
    if v.shape[3] != q.shape[3] or (how.is_causal and how.mask is not None):
        return False
    return how.window is None and how.softcap is None and how.alibi_slopes is None and how.sinks is None


def suits(q: Tensor, k: Tensor, v: Tensor, how: How) -> bool:
    """Can torch's kernel run this call? Values are another question."""
    t_q, t_kv = q.shape[2], k.shape[2]
    if not has_options(q, v, how) or t_kv < REGISTER or 0 in q.shape or k.shape[1] == 0:
        return False
    return (not how.is_causal or t_q == 1 or t_q == t_kv) and torch._C._get_flash_sdp_enabled()


def forward(q: Tensor, k: Tensor, v: Tensor, how: How) -> tuple[Tensor, Tensor] | None:
    """The out (b, n_heads, t_q, d_v) and lse (b, n_heads, t_q) of a call that `suits`; None where they are not right.

    The lse of a row of which every key is hidden is 0 here, as torch has it: `nothing_seen` finds these rows.
    """
    is_causal, mask, place = how.is_causal and q.shape[2] > 1, how.mask, None
    if mask is not None and mask.dtype is torch.bool and not recorded(q, k, v):
        place = borrowed(mask, q.dtype)
    out, lse = FORWARD(*rows(q, k, v), 0.0, is_causal, attn_mask=added(mask, q.dtype, place), scale=how.scale)
    if place is not None:
        give_back(place)
    if not is_causal and mask is None:
        return out, lse
    # What is not finite in v is in the last row, which sees it, or has it by 0 · NaN. What is not in k leaks nowhere
    # with is_causal; behind a mask it leaks where the score is +inf or NaN, and so does a mask: then the lse is NaN.
    if not (ends_surely_finite(out) or finite(out.select(2, -1))):
        return None
    right = is_causal or ((surely_finite(lse) or finite(lse)) and hides(q, k, lse, how))
    return (out, lse) if right else None


def backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, how: How
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The gradients of q, k, v of a call that `suits`, from its out and lse; None where torch's would not be right."""
    is_causal = how.is_causal and q.shape[2] > 1
    if (is_causal or how.mask is not None) and not all(finite(x) for x in (q, k, v, grad_out)):
        return None
    if how.mask is not None:
        lse = lse.masked_fill(lse == -torch.inf, 0.0)
        if not hides(q, k, lse, how):
            return None
    if how.mask is not None and how.mask.dtype != torch.bool and not how.mask.amax() < torch.inf:
        return None
    d_q, d_k, d_v = BACKWARD(
        *rows(grad_out), *rows(q, k, v), out, lse, 0.0, is_causal, attn_mask=added(how.mask, q.dtype), scale=how.scale
    )
    return d_q, d_k, d_v


def rows(*tensors: Tensor) -> list[Tensor]:
    """Tensors whose last axis lies together, as the kernel reads it."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in tensors]


def recorded(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Does autograd record what is done with these?"""
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)


def hides(q: Tensor, k: Tensor, lse: Tensor, how: How) -> bool:
    """Does every key that a floating mask hides have weight 0?

    The lowest finite number hides (`attnbook.reference.split_mask`), and torch adds it. exp(score + lowest − lse) is 0
    where lse is not nearly as low, for any score but the largest floats; only float16's lowest number, −65504, is one
    that a score may outweigh, so there the largest |q| and |k| are looked at, too.
    """
    mask = how.mask
    if mask is None or mask.dtype == torch.bool:
        return True
    lowest = max(torch.finfo(mask.dtype).min, torch.finfo(q.dtype).min)
    least = lowest * 2.0**-24
    if lowest == torch.finfo(torch.float16).min:
        scale = q.shape[3] ** -0.5 if how.scale is None else abs(how.scale)
        least = lowest + scale * q.shape[3] * magnitude(q) * magnitude(k) + UNDERFLOW
    return bool(lse.amin().item() > least)


UNDERFLOW = 104.0
"""exp(−104) is 0 in float32."""


def magnitude(x: Tensor) -> float:
    """The largest |x|, NaN where one is."""
    low, high = (end.item() for end in torch.aminmax(x))
    return math.nan if math.isnan(high) else max(-low, high)


def nothing_seen(lse: Tensor, how: How) -> Tensor:
    """The lse with −inf where a mask hides every key: torch has 0 there, and elsewhere only by chance."""
    lse = lse.contiguous()
    if how.mask is None or not bool((lse == 0).any()):
        return lse
    seen = how.mask if how.mask.dtype == torch.bool else how.mask != -torch.inf
    return lse.masked_fill_(~(seen.any(-1) if seen.ndim else seen), -torch.inf)


def laid_out(out: Tensor) -> Tensor:
    """The same numbers where torch's kernel puts them: the heads of a token lie side by side."""
    return out.transpose(1, 2).contiguous().transpose(1, 2)


def finite(x: Tensor) -> bool:
    """One sum, which is not finite where a number is not; where the sum overflows, each number is looked at."""
    x = x.detach() if x.requires_grad else x
    total = x.sum(dtype=torch.float32) if x.dtype in HALF else x.sum()
    return math.isfinite(total.item()) or bool(x.isfinite().all())
