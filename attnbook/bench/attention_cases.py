"""The cases of dense attention: the door's overhead, windows, causal, decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attnbook import api
from attnbook.bench.case import CannotRun, Finding, Setting, Sides, compared

WINDOW = 512


def inputs(setting: Setting, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Standard normal tensors, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(setting.device, dtype) for shape in shapes]


def overhead(t: int) -> Callable[[Setting], Finding]:
    """What the door adds to torch's own attention, in percent: 8 heads, d 64, the worse of causal and not."""

    def run(setting: Setting) -> Finding:
        q, k, v = inputs(setting, *3 * [(1, 8, setting.length(t), 64)])
        worst = Finding(-100.0, {})
        for is_causal in (False, True):
            sides: Sides = {
                "auto": lambda c=is_causal: api.attention(q, k, v, is_causal=c),  # type: ignore[misc]
                "sdpa": lambda c=is_causal: sdpa(q, k, v, is_causal=c),  # type: ignore[misc]
            }
            times = compared(sides, setting, most=400)
            more = 100 * (times.ratio("auto", "sdpa") - 1)
            if more > worst.figure:
                ran = api.explain(q, k, v, is_causal=is_causal).impl
                worst = Finding(more, times.medians(), note="causal" if is_causal else "not causal", ran=ran)
        return worst

    return run


def overhead_more(kind: str) -> Callable[[Setting], Finding]:
    """The same at 512 tokens for other calls that torch's own attention does: a "mask", "groups", "training"."""

    def run(setting: Setting) -> Finding:
        t = setting.length(512)
        q, k, v = inputs(setting, (1, 8, t, 64), *2 * [(1, 2 if kind == "groups" else 8, t, 64)])
        options: dict[str, Any] = {"is_causal": True}
        theirs = options | ({"enable_gqa": True} if kind == "groups" else {})
        if kind == "mask":
            mask = torch.rand(t, t, device=q.device) < 0.9
            options, theirs = {"mask": mask}, {"attn_mask": mask}
        leaves = [x.requires_grad_(kind == "training") for x in (q, k, v)]

        def side(run: Callable[..., Tensor], given: dict[str, Any]) -> Callable[[], Any]:
            def training() -> tuple[Tensor, ...]:
                return torch.autograd.grad(run(*leaves, **given).sum(), leaves)

            return training if kind == "training" else lambda: run(*leaves, **given)

        times = compared({"auto": side(api.attention, options), "sdpa": side(sdpa, theirs)}, setting, most=400)
        ran = api.explain(*leaves, **options).impl
        return Finding(100 * (times.ratio("auto", "sdpa") - 1), times.medians(), ran=ran)

    return run


def window_mask(t: int, window: int, device: str) -> Tensor:
    """The booleans (t, t) that a user of torch's attention has to make for a causal window; nothing larger is made."""
    return torch.ones(t, t, dtype=torch.bool, device=device).tril_().triu_(1 - window)


def window_forward(setting: Setting) -> Finding:
    """A causal window of 512 of 16 384 tokens, 8 heads, d 64, float32, against SDPA with a mask."""
    t = setting.length(16_384)
    q, k, v = inputs(setting, *3 * [(1, 8, t, 64)])
    window = setting.length(WINDOW)
    mask = window_mask(t, window, setting.device)
    sides: Sides = {
        "attnbook": lambda: api.attention(q, k, v, is_causal=True, window=window),
        "sdpa, mask": lambda: sdpa(q, k, v, attn_mask=mask),
    }
    times = compared(sides, setting)
    ran = api.explain(q, k, v, is_causal=True, window=window).impl
    return Finding(times.ratio("sdpa, mask", "attnbook"), times.medians(), ran=ran)


def window_training(setting: Setting) -> Finding:
    """The same window forward and backward, 8 192 tokens."""
    t = setting.length(8_192)
    q, k, v, d_out = inputs(setting, *4 * [(1, 8, t, 64)])
    leaves = [x.requires_grad_() for x in (q, k, v)]
    window = setting.length(WINDOW)
    mask = window_mask(t, window, setting.device)

    def both(forward: Callable[[], Tensor]) -> Callable[[], tuple[Tensor, ...]]:
        def run() -> tuple[Tensor, ...]:
            out = forward()
            return out.detach(), *torch.autograd.grad(out, leaves, d_out)

        return run

    sides: Sides = {
        "attnbook": both(lambda: api.attention(q, k, v, is_causal=True, window=window)),
        "sdpa, mask": both(lambda: sdpa(q, k, v, attn_mask=mask)),
    }
    times = compared(sides, setting)
    ran = api.explain(q, k, v, is_causal=True, window=window).impl
    return Finding(times.ratio("sdpa, mask", "attnbook"), times.medians(), ran=ran)


def window_flex(setting: Setting) -> Finding:
    """The same window, 16 384 tokens, against FlexAttention compiled with its block mask."""
    t = setting.length(16_384)
    q, k, v = inputs(setting, *3 * [(1, 8, t, 64)])
    window = setting.length(WINDOW)
    flex = compiled_flex(t, window, setting.device)
    sides: Sides = {
        "attnbook": lambda: api.attention(q, k, v, is_causal=True, window=window),
        "flex, compiled": lambda: flex(q, k, v),
    }
    times = compared(sides, setting)
    ran = api.explain(q, k, v, is_causal=True, window=window).impl
    return Finding(times.ratio("flex, compiled", "attnbook"), times.medians(), ran=ran)


def compiled_flex(t: int, window: int, device: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """FlexAttention for a causal window, compiled and warm; raises CannotRun where it can't be compiled."""
    from torch._inductor.exc import InductorError, InvalidCxxCompiler
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i - j < window)

    blocks = create_block_mask(seen, None, None, t, t, device=device)
    compiled = torch.compile(flex_attention)

    def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = compiled(q, k, v, block_mask=blocks)
        return out

    try:
        with torch.no_grad():
            flex(*(torch.zeros(1, 8, t, 64, device=device) for _ in "qkv"))
    except Exception as error:
        if isinstance(error, InvalidCxxCompiler) or "InvalidCxxCompiler" in str(error):
            raise CannotRun("needs a C++ compiler") from error
        if isinstance(error, InductorError):
            raise CannotRun(f"FlexAttention does not compile here: {str(error).splitlines()[0]}") from error
        raise
    return flex


def causal_forward(setting: Setting) -> Finding:
    """The tiles by name, causal, 8 192 tokens, 8 heads, d 64, against SDPA's own flash attention in C++."""
    q, k, v = inputs(setting, *3 * [(1, 8, setting.length(8_192), 64)])
    sides: Sides = {
        "tiled": lambda: api.attention(q, k, v, is_causal=True, impl="tiled"),
        "sdpa, flash": lambda: sdpa(q, k, v, is_causal=True),
    }
    times = compared(sides, setting)
    ran = api.explain(q, k, v, is_causal=True, impl="tiled").impl
    return Finding(times.ratio("sdpa, flash", "tiled"), times.medians(), ran=ran)


def decoding(dtype: str, b: int) -> Callable[[Setting], Finding]:
    """One new token for each of b sequences of 8 192, 32 query and 8 key/value heads, d 128."""

    def run(setting: Setting) -> Finding:
        t, kind = setting.length(8_192), getattr(torch, dtype)
        q, k, v = inputs(setting, (b, 32, 1, 128), (b, 8, t, 128), (b, 8, t, 128), dtype=kind)
        sides: Sides = {
            "attnbook": lambda: api.attention(q, k, v),
            "tiled": lambda: api.attention(q, k, v, impl="tiled"),
            "sdpa, enable_gqa": lambda: sdpa(q, k, v, enable_gqa=True),
        }
        times = compared(sides, setting)
        figure, tiled = (times.ratio("sdpa, enable_gqa", side) for side in ("attnbook", "tiled"))
        return Finding(figure, times.medians(), note=f"tiled {tiled:.2f}x", ran=api.explain(q, k, v).impl)

    return run
