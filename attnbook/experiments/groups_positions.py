"""A cache that is one off: where does a new token stand, and does it see itself? SmolLM2 reads on with each mistake.

The first `start` tokens of a text are read at once, then one token after another against the cache. New tokens stand,
in turn, where they belong, one place further, all in the first new place, and from 0 again. The last mistake attends
before it appends, so that a token doesn't see its own key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.api.cache import KVCache
from attnbook.experiments import _smollm2 as shared
from attnbook.measure import experiment, measure

MISTAKES: dict[str, Callable[[int, int], int]] = {
    "right": lambda start, i: start + i,
    "one_further": lambda start, i: start + i + 1,
    "standing_still": lambda start, i: start,
    "from_zero": lambda start, i: i,
}
"""Where new token i stands behind a prompt of `start` tokens."""


@experiment
def run(text: str = shared.TEXT, start: int = 31, new: int = 25) -> dict[str, Any]:
    """Data: `losses`, by mistake the loss of each of the `new` tokens that are read one by one (new,)."""
    tokens = shared.text_tokens(text)[:, : start + new + 1]
    whole = shared.model().hidden(tokens)[:, start:-1]
    places = torch.tensor([[f(start, i) for i in range(tokens.shape[1] - start)] for f in MISTAKES.values()])
    read = read_on(tokens, start, [KVCache() for _ in shared.model().layers], places)
    measure("groups.read_on_error", (read[0] - whole[0]).abs().max() / whole.abs().max())
    late = read_on(tokens, start, [Late() for _ in shared.model().layers], places[:1])
    names = (*MISTAKES, "late")
    losses = dict(zip(names, token_losses(torch.cat([read, late]), tokens[:, start + 1 :]), strict=True))
    for name, each in losses.items():
        measure(f"groups.position_{name}", each.mean())
    measure("groups.position_alone", token_losses(alone(tokens, start), tokens[:, start + 1 :]).mean())
    further = losses["one_further"].mean() - losses["right"].mean()
    measure("groups.position_further_rise", further.abs())
    measure("groups.position_further_error", (read[1] - whole[0]).abs().max() / whole.abs().max())
    return {"losses": losses}


class Late(KVCache):
    """Shows what it was given the last time but not this time: `append` comes after attention."""

    _waiting: tuple[Tensor, Tensor] | None = None

    def append(self, k: Tensor, v: Tensor) -> None:
        """Keep a prompt at once, and later tokens one call too late."""
        if len(self) == 0:
            return super().append(k, v)
        if self._waiting is not None:
            super().append(*self._waiting)
        self._waiting = k, v
        return None


def read_on(tokens: Tensor, start: int, cache: Sequence[KVCache], places: Tensor) -> Tensor:
    """Read tokens (1, t), the first `start` at once and the others one by one at places (b, t − start).

    -> what the head reads at each of them but the last, (b, t − start − 1, d_model); the b readings are a batch.
    """
    b, new = places.shape
    model, rows = shared.model(), tokens.expand(b, -1)
    model.hidden(rows[:, :start], cache=cache)
    return torch.cat([
        model.hidden(rows[:, start + i : start + i + 1], positions=places[:, i : i + 1], cache=cache)
        for i in range(new - 1)
    ], dim=1)  # fmt: skip


def alone(tokens: Tensor, start: int) -> Tensor:
    """The tokens from `start` on, read without the others."""
    return shared.model().hidden(tokens[:, start:])[:, :-1]


def token_losses(hidden: Tensor, targets: Tensor) -> Tensor:
    """Hidden (b, t, d_model), targets (1, t) -> −log p of each, in nats, (b, t)."""
    logits = hidden @ shared.model().head
    right = logits.gather(-1, targets[..., None].expand(len(hidden), -1, -1))[..., 0]
    return logits.logsumexp(-1) - right
