"""torch's own `scaled_dot_product_attention`, made to follow our conventions.

What torch aligns, masks or multiplies in another way than we do is translated here: causal masks at the bottom right,
windows and ALiBi as dense masks, minimum values meant as −inf. What it cannot do is said by `lacks`.

The weight of a hidden key is 0, but torch multiplies it: 0 · NaN is NaN, and one NaN in the last value of a causal call
makes every row NaN. And below 16 keys (one register) a NaN in q is lost: its row comes out 0. So where a key may be
hidden, or keys are few, the values are looked at, or what came out; `contained` is the slower way where there is one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.api import flash
from attnbook.api.call import Call, working_dtype
from attnbook.api.flash import HALF, REGISTER, finite
from attnbook.api.traced import traced
from attnbook.tiled.decode import takes_decode


def lacks(call: Call) -> str | None:
    """What this call asks for that torch's attention does not have; None where it has all."""
    if call.softcap is not None:
        return "sdpa has no softcap"
    if call.sinks is not None:
        return "sdpa has no sinks"
    if call.return_lse and call.q.dtype in HALF:
        return "sdpa returns no lse in half precision: that of torch's flash kernel is not float32's"
    if call.return_lse and not flash.suits(call.q, call.k, call.v, flash.how_of(call)):
        return "sdpa returns no lse: torch's flash kernel would, but does not take this call"
    return None


def must_look(call: Call) -> bool:
    """Would a NaN or inf in the input come out elsewhere than where it belongs, or be lost?"""
    return call.hides or call.sizes.t_kv < REGISTER


def looks_finite(call: Call) -> bool:
    """Is all that could leak finite: k, v, slopes, a mask, and q where there is a backward pass? Waits for a GPU."""
    matter = [call.k, call.v] if call.alibi_slopes is None else [call.k, call.v, call.alibi_slopes]
    given = (call.q, call.k, call.v, call.alibi_slopes, call.mask)
    backward = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)
    if backward or call.sizes.t_kv < REGISTER:
        matter.append(call.q)
    return all(finite(x) for x in matter) and _mask_is_clean(call)


def bare(call: Call) -> Any:
    """One call of torch's function, for what `is_bare`."""
    q, k, v = call.q, call.k, call.v
    if folds(call):
        rows = q.reshape(
            call.sizes.b, call.sizes.n_kv_heads, -1, call.sizes.head_dim
        )  # (b, n_kv_heads, group · t_q, d)
        out: Tensor = scaled_dot_product_attention(rows, k, v, scale=call.scale)
        return out.reshape(*q.shape[:3], call.sizes.d_v)
    is_causal = call.is_causal and call.sizes.t_q > 1
    gqa = True if call.sizes.n_heads != call.sizes.n_kv_heads else False  # noqa: SIM210 - while tracing it may be a symbol
    return scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=call.scale, enable_gqa=gqa)


def folds(call: Call) -> bool:
    """Is this decoding with grouped heads in bfloat16, where a group's queries can be the rows of one head?

    Then torch reads k and v once for the group and not once for each of its heads: 6 to 9 times as fast for 32 heads
    over 8. `attnbook.tiled.decode` does the same, and is faster at it in float32 and float16, but not in bfloat16.
    """
    sizes = call.sizes
    if call.q.dtype != torch.bfloat16 or traced(call.q) or not is_bare(call) or (call.is_causal and sizes.t_q > 1):
        return False
    return sizes.n_heads != sizes.n_kv_heads and takes_decode(sizes)


def is_bare(call: Call) -> bool:
    """Does torch's function take the call as it is?"""
    if call.mask is not None or call.window is not None or call.alibi_slopes is not None:
        return False
    return not call.is_causal or call.sizes.t_q == 1 or call.sizes.t_q == call.sizes.t_kv


def run(call: Call, *, clean: bool | None = None) -> Any:
    """The attention of a call that lacks nothing; `clean`: what is known of its values, None for nothing yet."""
    if not must_look(call):
        clean = True
    if looks_finite(call) if clean is None else clean:
        return bare(call) if is_bare(call) else _masked(call, _written(call))
    return contained(call)


def dense(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """Which keys may be seen, and what is added to the scores; each broadcasts to the scores, at least 2 axes, or None.

    The two are kept apart as long as possible: where a key is hidden, what is added is 0.
    """
    allowed, added = split(call.mask, call.q)
    t_q, t_kv = call.sizes.t_q, call.sizes.t_kv
    if call.is_causal or call.alibi_slopes is not None:
        device = call.q.device
        behind = torch.arange(t_q, device=device)[:, None] + (t_kv - t_q) - torch.arange(t_kv, device=device)
        if call.is_causal:
            seen = behind >= 0 if call.window is None else (behind >= 0) & (behind < call.window)
            allowed = seen if allowed is None else allowed & seen
        if call.alibi_slopes is not None:
            slopes = call.alibi_slopes.to(working_dtype(call.q)).reshape(-1, call.sizes.n_heads, 1, 1)
            bias = -slopes * behind.abs().to(slopes.dtype)
            added = bias if added is None else added + bias
    return allowed, added


def split(mask: Tensor | None, q: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """A mask of either kind as (may attend, what to add): −inf and the lowest finite number hide (`split_mask`)."""
    if mask is None:
        return None, None
    mask = _axes(mask)
    if mask.dtype == torch.bool:
        return mask, None
    hidden = mask <= lowest(mask, q)
    return ~hidden, torch.where(hidden, 0.0, mask).to(working_dtype(q))


def _axes(mask: Tensor) -> Tensor:
    """The mask with 2 or 4 axes: torch takes fewer or 3 for something else."""
    while mask.ndim < 2 or mask.ndim == 3:
        mask = mask[None]
    return mask


def lowest(mask: Tensor, q: Tensor) -> float:
    """What a floating mask hides with, or anything lower: the lowest finite number of its own dtype or of q's."""
    return max(torch.finfo(mask.dtype).min, torch.finfo(q.dtype).min)


def _mask_is_clean(call: Call) -> bool:
    """No NaN or +inf in a floating mask."""
    mask = call.mask
    if mask is None or mask.dtype == torch.bool or mask.numel() == 0:
        return True
    return bool(mask.detach().amax().item() < torch.inf)  # the largest of numbers and a NaN is NaN


def _written(call: Call) -> Tensor | None:
    """The call's masks, window and slopes as the one mask that torch takes."""
    if call.mask is not None and not call.is_causal and call.alibi_slopes is None:
        return hiding_with_infinity(call)
    return _as_one(*dense(call))


def hiding_with_infinity(call: Call) -> Tensor | None:
    """The call's mask as torch takes it: −inf, and no finite number, hides."""
    if call.mask is None or call.mask.dtype == torch.bool:
        return call.mask if call.mask is None else _axes(call.mask)
    mask = _axes(call.mask)
    return mask.masked_fill(mask <= lowest(mask, call.q), -torch.inf).to(working_dtype(call.q))


def _as_one(allowed: Tensor | None, added: Tensor | None) -> Tensor | None:
    if added is None or allowed is None:
        return allowed if added is None else added
    return torch.where(allowed, added, -torch.inf)


def _masked(call: Call, mask: Tensor | None) -> Tensor:
    """One call of torch's function with a dense mask; q, k, v as they are."""
    if mask is not None and mask.requires_grad:
        mask = mask.to(call.q.dtype)  # then torch keeps all scores, in the dtype of q, and adds it there
    gqa = True if call.sizes.n_heads != call.sizes.n_kv_heads else False  # noqa: SIM210 - while tracing it may be a symbol
    out: Tensor = scaled_dot_product_attention(call.q, call.k, call.v, attn_mask=mask, scale=call.scale, enable_gqa=gqa)
    return out


def contained(call: Call) -> Tensor:
    """The same for q, k, v that may hold NaN or inf: torch gets 0 in their place, then rows that see one are spoilt.

    A query row or a seen key that is not finite spoils the whole row of the output; a seen value only its component,
    with the inf that it holds where it is an inf. Gradients of all that took part in a spoilt row are NaN, no others
    (a row that the loss skips takes no part). Nothing is looked at, so this can be traced. Memory t_q × t_kv.
    """
    sizes = call.sizes
    allowed, added = dense(call)
    if allowed is None:
        allowed = torch.ones(sizes.t_q, sizes.t_kv, dtype=torch.bool, device=call.q.device)
    allowed = allowed.expand(sizes.b, sizes.n_heads, sizes.t_q, sizes.t_kv)
    group = sizes.n_heads // max(sizes.n_kv_heads, 1)
    k, v = call.k.repeat_interleave(group, 1), call.v.repeat_interleave(group, 1)
    spoilt = ~call.q.isfinite().all(-1) | (allowed & ~k.isfinite().all(-1)[:, :, None]).any(-1)  # (b, h, t_q)
    if added is not None:
        spoilt = spoilt | (allowed & ~added.isfinite()).any(-1)
        added = torch.where(added.isfinite(), added, 0.0)
    seen = allowed.to(torch.float32)
    lost, up, down = ((seen @ bad.to(torch.float32)) > 0 for bad in (v.isnan(), v == torch.inf, v == -torch.inf))
    value = torch.where(up, torch.inf, -torch.inf).masked_fill(lost | (up & down) | spoilt[..., None], torch.nan)
    clean = [torch.where(x.isfinite(), x, 0.0) for x in (call.q, call.k, call.v)]
    out = _masked(call._replace(q=clean[0], k=clean[1], v=clean[2]), _as_one(allowed, added))
    # What a spoilt row is made of, so that its gradient reaches these and, through `where`, nothing hidden.
    took_part = torch.where(allowed, (k.sum(-1) + v.sum(-1))[:, :, None], 0.0).sum(-1) + call.q.sum(-1)
    spoil: Tensor = _Spoil.apply(value.to(out.dtype), took_part[..., None])  # type: ignore[no-untyped-call]
    return torch.where(lost | up | down | spoilt[..., None], spoil, out)


class _Spoil(torch.autograd.Function):
    """A value that is not finite, whose gradient is NaN for all that took part."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, took_part: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, torch.where(grad == 0, 0.0, torch.nan).sum(-1, keepdim=True)
