"""A function of NumPy arrays or tensors as the attention of SmolLM2, beside ours. Experiments and the lab share it.

Three copies of a prompt go through the model as one batch and are gone on with, each by its own most probable tokens:
one with our attention, one with the other function, one with ours in float64. The weights are read once for all three,
so that the comparison costs hardly more than one text; and how far the third lies from the first is what rounding in
attention alone does, which is the measure for the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from attnbook.api.attention import attention
from attnbook.models import SmolLM2

Function: TypeAlias = Callable[[Any, Any, Any], Any]
"""q (n_heads, t_q, d), k and v (n_kv_heads, t_kv, d) -> (n_heads, t_q, d), as arrays, tensors or lists."""

OURS, THEIRS, EXACT = range(3)
"""The rows of the batch."""

MARGIN = 10.0
"""Ten times what rounding in ours does is still rounding: others add up in another order."""


class Apart(NamedTuple):
    """Where the other function's output first differs by more than rounding, on the inputs that it got itself."""

    reading: int
    """0 while the prompt is read; i when the i-th new token is read."""
    layer: int
    head: int
    error: float
    """The largest difference of the head's output from float64's, as a share of the largest output of all heads."""


@dataclass(frozen=True)
class Compared:
    """What came out. tokens, logits: of the rows `OURS`, `THEIRS`, `EXACT`.

    tokens (3, n), logits (3, n, vocab): each row's most probable next tokens, and what they were chosen by.
    """

    tokens: Tensor
    logits: Tensor
    apart: Apart | None

    @property
    def parted(self) -> int | None:
        """The first new token in which the other function's text differs from ours; None where it is the same."""
        differ = (self.tokens[THEIRS] != self.tokens[OURS]).nonzero()
        return int(differ[0]) if len(differ) else None

    @property
    def comparable(self) -> int:
        """For so many tokens both had read the same before."""
        return self.tokens.shape[1] if self.parted is None else self.parted + 1

    def off(self) -> Tensor:
        """The largest difference of each token's logits from ours, as far as they are comparable: (comparable,)."""
        theirs, ours = self.logits[[THEIRS, OURS], : self.comparable]
        off: Tensor = (theirs - ours).abs().amax(-1).nan_to_num(nan=torch.inf)
        return off

    @property
    def allowed(self) -> float:
        """How far logits may be off: `MARGIN` times what float64 in place of float32 moves any of them.

        As long as the exact text is ours, which it is but where two tokens are as probable.
        """
        differ = (self.tokens[EXACT] != self.tokens[OURS]).nonzero()
        exact, ours = self.logits[[EXACT, OURS], : int(differ[0]) + 1 if len(differ) else None]
        return MARGIN * float((exact - ours).abs().max())


class _Three:
    """The attention of the batch of three: each row gets its own."""

    def __init__(self, function: Function, n_layers: int, *, tensors: bool) -> None:
        self.function, self.n_layers, self.tensors = function, n_layers, tensors
        self.calls = 0
        self.apart: Apart | None = None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ours = attention(q[:EXACT], k[:EXACT], v[:EXACT], is_causal=True)  # both rows: what is theirs to be
        exact = attention(q[THEIRS:].double(), k[THEIRS:].double(), v[THEIRS:].double(), is_causal=True)
        theirs = self._called(q[THEIRS], k[THEIRS], v[THEIRS])
        if self.apart is None:
            self._compare(theirs, ours[THEIRS], exact[0])
        self.calls += 1
        return torch.stack([ours[OURS], theirs, exact[1].to(q.dtype)])

    def _called(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The other function on copies, in which it may write."""
        copies = [x.clone() if self.tensors else x.numpy().copy() for x in (q, k, v)]
        out = self.function(*copies)
        out = out if isinstance(out, Tensor) else torch.from_numpy(np.asarray(out))
        if out.shape != q.shape:
            raise ValueError(f"attention returned {tuple(out.shape)} inside the model: expected {tuple(q.shape)}")
        return out.detach().to(q.dtype)

    def _compare(self, theirs: Tensor, ours: Tensor, exact: Tensor) -> None:
        size = float(exact.abs().max())
        rounding = float((ours - exact).abs().max()) + torch.finfo(ours.dtype).eps * size
        errors = (theirs - exact).abs().amax((-2, -1)).nan_to_num(nan=torch.inf)  # (n_heads,)
        if float(errors.max()) > MARGIN * rounding:
            reading, layer = divmod(self.calls, self.n_layers)
            head = int((errors > MARGIN * rounding).nonzero()[0])
            self.apart = Apart(reading, layer, head, float(errors[head]) / size)


@torch.inference_mode()
def compare(model: SmolLM2, function: Function, prompt: Tensor, n: int, *, tensors: bool = False) -> Compared:
    """Let the model go on with `prompt` (t,) by `n` tokens with each of the three; `tensors`: what `function` takes.

    Raises ValueError for another shape of its result, and whatever it raises.
    """
    three = _Three(function, model.config.n_layers, tensors=tensors)
    inside = model.with_attention(three)
    cache = inside.new_cache(len(prompt) + n)
    tokens = prompt.expand(3, -1)
    chosen, logits = [], []
    for _ in range(n):
        logits.append(inside.hidden(tokens, cache=cache)[:, -1] @ model.head)
        tokens = logits[-1].argmax(-1, keepdim=True)
        chosen.append(tokens)
    return Compared(torch.cat(chosen, 1), torch.stack(logits, 1), three.apart)
