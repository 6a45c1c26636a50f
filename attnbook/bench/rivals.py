"""What torch itself brings, as sides of a comparison: its attention by backend, FlexAttention, grouped products.

A side that cannot do a call is named with the reason. Only names that torch 2.11 has are used without asking.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention, silu

from attnbook.bench.case import Sides

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@dataclass
class Rivals:
    """Sides that ran once, and those that could not."""

    sides: Sides = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, run: Callable[[], Any]) -> None:
        """Take a side if it runs."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says in warnings why a backend refuses
                run()
        except Exception as error:  # whatever it is, it is a reason to go on without this side
            first = (str(error).strip().splitlines() or [""])[0]
            self.absent[name] = f"{type(error).__name__}: {first}"[:160]
        else:
            self.sides[name] = run


def sdpa(backend: str, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """Torch's attention by one backend only; grouped heads as its own option. Raises where the backend refuses."""
    with sdpa_kernel(BACKENDS[backend]):
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1])


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, window: int | None = None, with_flex: bool = True
) -> Mapping[str, Callable[..., Tensor]]:
    """Each of torch's ways to do this call as a function of q, k and v; a window only FlexAttention has.

    Bottom-right causal, which is torch's for t_q = t_kv; one query sees everything. FlexAttention has to be compiled
    for each call, 10 to 30 seconds.
    """
    masked = is_causal and q.shape[2] > 1
    ways: dict[str, Callable[..., Tensor]] = {}
    if window is None:
        for backend in BACKENDS:
            ways[backend] = lambda q, k, v, b=backend: sdpa(b, q, k, v, is_causal=masked)
    if with_flex:
        ways["flex"] = flex(q, k, is_causal=masked, window=window)
    return ways


def flex(
    q: Tensor,
    k: Tensor,
    *,
    is_causal: bool,
    window: int | None = None,
    document: Tensor | None = None,
) -> Callable[..., Tensor]:
    """FlexAttention, compiled for these shapes; `document` (t,): tokens of other documents are hidden, too."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    offset = k.shape[2] - q.shape[2]

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = j <= i + offset
        if window is not None:
            inside = inside & (i + offset - j < window)
        if document is not None:
            inside = inside & (document[i] == document[j])
        return inside

    keep_buffers()
    made: dict[str, Any] = {}

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not made:
            made["blocks"] = (
                create_block_mask(seen, None, None, q.shape[2], k.shape[2], device=str(q.device)) if is_causal else None
            )
            torch.compiler.reset()  # or the functions of the cases before count towards its limit of recompilations
            made["compiled"] = torch.compile(flex_attention, dynamic=False)
        out: Tensor = made["compiled"](q, k, v, block_mask=made["blocks"], enable_gqa=q.shape[1] != k.shape[1])
        return out

    return run


def keep_buffers() -> None:
    """Compiled code keeps what its backward needs, so that backward can run again and again and be timed."""
    import torch._functorch.config as config

    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False


def packed(q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int) -> Tensor:
    """Torch's own causal attention of packed sequences, (t, h, d); its option has had two names."""
    from torch.nn.attention.varlen import varlen_attn

    attend: Any = varlen_attn
    try:
        out: Tensor = attend(q, k, v, ends, ends, longest, longest, window_size=(-1, 0))
    except TypeError:
        out = attend(q, k, v, ends, ends, longest, longest, is_causal=True)
    return out


class GroupedExperts:
    """A mixture of experts from torch's parts: tokens sorted by expert, three grouped products, weighted sums.

    x (t, d), experts and weights (t, k), gate and up (e, d, f), down (e, f, d). Sorting belongs to it, as it does to
    ours.
    """

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor) -> None:
        self.gate, self.up, self.down = gate, up, down

    def __call__(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        flat, k = experts.flatten(), experts.shape[1]
        order = torch.argsort(flat, stable=True)
        # Without bincount, which waits for the device.
        counts = torch.zeros(len(self.gate), dtype=torch.int32, device=x.device)
        counts = counts.index_add(0, flat, torch.ones_like(flat, dtype=torch.int32))
        ends = counts.cumsum(0, dtype=torch.int32)
        rows = x[order // k]
        hidden = silu(torch._grouped_mm(rows, self.gate, offs=ends)) * torch._grouped_mm(rows, self.up, offs=ends)
        out = torch._grouped_mm(hidden, self.down, offs=ends) * weights.flatten()[order, None].to(x.dtype)
        return torch.zeros_like(x).index_add_(0, order // k, out)
