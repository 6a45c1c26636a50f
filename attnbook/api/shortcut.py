"""The short way through the door, for ordinary calls on the CPU that end at torch's own attention anyway.

The long way checks, chooses and runs; here one function asks as little as tells the same. What it costs is not what a
loop measures: between two calls of attention everything else has left the caches, and whatever runs then is slow. At
512 tokens, where torch's own function takes 4 ms, an attribute of a tensor costs about 0.5 µs, an operation 20 and one
that wakes the other threads 50; 3 % are 120. So the questions are few and in the order in which they are cheap, and a
NaN or inf is looked for where there is least to look at, in what comes out.

Each function returns None for what needs a closer look. The conventions are those of `sdpa` and `flash`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.api import flash
from attnbook.api.call import FLOATS, Call
from attnbook.api.exponents import ends_surely_finite
from attnbook.api.flash import HALF, REGISTER, finite
from attnbook.api.sdpa import lacks
from attnbook.api.traced import traced, transformed

FEW = 64
"""Queries below which `choose` may prefer `attnbook.tiled.decode`."""

STRIDED = torch.strided
flash_allowed = torch._C._get_flash_sdp_enabled
any_autocast = torch._C._is_any_autocast_enabled


def ordinary(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float | None) -> Tensor | None:
    """The output of a call without other options; not for Dynamo. A mode may make other tensors of it, of a trace."""
    try:
        return _ordinary(q, k, v, mask, is_causal, scale)
    except RuntimeError:
        return None  # a kind of tensor that torch refuses: the long way says by its name what is wrong


def _ordinary(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float | None) -> Tensor | None:
    if not (type(q) is type(k) is type(v) is Tensor and type(is_causal) is bool and q.is_cpu and k.is_cpu and v.is_cpu):
        return None
    of_q, of_k, dtype = q.shape, k.shape, q.dtype  # a nested tensor has no shape: RuntimeError
    if v.shape != of_k or len(of_k) != 4 or not (k.dtype is v.dtype is dtype and dtype in FLOATS):
        return None
    _, n_kv_heads, t_kv, head_dim = of_k
    t_q, grouped = t_kv, False
    if of_q != of_k:
        if len(of_q) != 4 or of_q[0] != of_k[0] or of_q[3] != head_dim:
            return None
        _, n_heads, t_q, _ = of_q
        grouped = n_heads != n_kv_heads
        if grouped and (n_kv_heads == 0 or n_heads % n_kv_heads or mask is not None or t_q < FEW):
            return None
    if head_dim == 0 or t_kv < REGISTER or not (scale is None or (type(scale) is float and math.isfinite(scale))):
        return None
    if any_autocast() or transformed() or (t_q < FEW and dtype in HALF):
        return None
    if mask is not None:
        return None if is_causal else _masked(q, k, v, mask, scale)
    if not is_causal or t_q == 1:
        if not (q.layout is k.layout is v.layout is STRIDED):
            return None
        return scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=grouped)
    # The forward pass of torch's flash kernel keeps NaN and inf in q and k where they belong, and it is taken for the
    # layouts asked for here (one that is not strided has no strides: RuntimeError), if no caller forbade it.
    if t_q != t_kv or not (q.stride(3) == k.stride(3) == v.stride(3) == 1 and flash_allowed()):
        return None
    out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
    # The last query sees every key, so a NaN or inf in v is in its output, whichever rows it has leaked into.
    if type(out) is not Tensor or not (ends_surely_finite(out) or finite(out.select(2, -1))):
        return None
    # A backward pass keeps NaN and inf where they belong only where there are none.
    return None if out.requires_grad and not (finite(q) and finite(k)) else out


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float | None) -> Tensor | None:
    """The same with a mask, by the kernel itself, which returns its lse too: `flash.forward` knows what it tells.

    In a backward pass 0 · inf would be NaN, so before one q and k are looked at. It is left to torch for booleans.
    """
    if type(mask) is not Tensor or not mask.is_cpu or mask.requires_grad or mask.ndim not in (2, 4):
        return None
    scores = (*q.shape[:3], k.shape[2])
    of_mask, boolean = mask.shape, mask.dtype is torch.bool
    if of_mask != scores[-len(of_mask) :]:
        for size, expected in zip(of_mask[::-1], scores[::-1], strict=False):
            if size != expected and size != 1:
                return None
    if not (boolean or mask.dtype is q.dtype) or flash.FORWARD is None or 0 in scores or not flash_allowed():
        return None
    if flash.recorded(q, k, v) and (not boolean or not (finite(q) and finite(k))):
        return None
    found = flash.forward(q, k, v, flash.How(mask, None, None, False, None, None, scale))
    return None if found is None else found[0]


def with_lse(call: Call) -> tuple[Tensor, Tensor] | None:
    """The output and lse of a checked call, where there is no backward pass to come."""
    q, k, v, how = call.q, call.k, call.v, flash.how_of(call)
    if traced(q) or transformed() or torch.is_autocast_enabled(q.device.type):
        return None
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, call.mask)):
        return None
    if call.sizes.t_q < FEW or lacks(call) is not None:
        return None
    found = flash.forward(q, k, v, how)
    if found is None or not (call.hides or finite(found[0])):
        return None
    return flash.laid_out(found[0]), flash.nothing_seen(found[1], how)
