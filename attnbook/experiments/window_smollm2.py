"""A model trained with full attention reads an English text through a window: what is lost, and what gives it back?

The same text each time, nothing trained. What is compared is the loss of the tokens far enough from the beginning that
the first token left the window long ago. Beside the window, single tokens are kept in sight: the first one, the first
few, or others; or no token at all but a sink, one number a head, as gpt-oss learns it. Here nobody learned it: it is
the mean of what the head gave the first token when it still saw it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _smollm2, _window_text
from attnbook.measure import experiment, measure

OTHERS = (20, 21, 22, 23)
"""Places of tokens that are kept in place of the first four, to see whether keeping any would do."""


@experiment
def run(window: int = 16, most: int = 193) -> dict[str, Any]:
    """Read up to `most` tokens in every way. Data: `losses`, by the way, of each token (t − 1,); `window`."""
    text = _window_text.tokens(most)
    t = text.shape[1]
    begin = 2 * window
    measure("window.text_tokens", t)
    measure("window.text_window", window)
    ways: dict[str, Tensor | None] = {
        "full": None,
        "window": _window_text.mask(t, window),
        "first": _window_text.mask(t, window, (0,)),
        "two": _window_text.mask(t, window, (0, 1)),
        "four": _window_text.mask(t, window, (0, 1, 2, 3)),
        "others": _window_text.mask(t, window, OTHERS),
        "wider": _window_text.mask(t, window + 4),
        "double": _window_text.mask(t, 2 * window),
        "double_first": _window_text.mask(t, 2 * window, (0,)),
    }
    found = {name: each_loss(text, mask=mask) for name, mask in ways.items()}
    found["sinks"] = each_loss(text, mask=ways["window"], sinks=scores_of_first(text, window))
    mean = {name: float(loss[begin:].mean()) for name, loss in found.items() if "double" not in name}
    for name, loss in mean.items():
        measure(f"window.loss_{name}", loss)
    # A window twice as wide is judged twice as late, and so is the one it is compared with.
    late = {name: float(loss[2 * begin :].mean()) for name, loss in found.items()}
    for name in ("full", "window", "first", "double", "double_first"):
        measure(f"window.late_{name}", late[name])
    for name in ("full", "window", "first"):
        measure(f"window.perplexity_{name}", math.exp(mean[name]))
    damage = mean["window"] - mean["full"]
    for name in ("first", "four", "sinks"):
        measure(f"window.{name}_gives_back", (mean["window"] - mean[name]) / damage, unit="ratio")
    measure("window.same_before_the_edge", (found["window"] - found["full"])[: window - 1].abs().max())
    measure("window.after_the_edge", (found["window"] - found["full"])[window : 2 * window].mean())
    return {"losses": found, "window": window}


@torch.no_grad()
def each_loss(text: Tensor, **how: Any) -> Tensor:
    """The loss of each token but the first, in nats: text (1, t) -> (t − 1,)."""
    logits = _smollm2.model().hidden(text, **how)[0, :-1] @ _smollm2.model().head
    right = logits.gather(-1, text[0, 1:, None])[:, 0]
    return logits.logsumexp(-1) - right


@torch.no_grad()
def scores_of_first(text: Tensor, window: int) -> Tensor:
    """For each layer and head the mean score that tokens beyond the window give the first one, with all in sight."""
    c = _smollm2.model().config
    seen: dict[str, Tensor] = {}
    means: list[Tensor] = []

    def see(layer: int, name: str, x: Tensor) -> None:
        seen[name] = x
        if name == "k":
            first = x[0, :, :1].repeat_interleave(c.n_heads // c.n_kv_heads, 0)  # (n_heads, 1, head_dim)
            scores = seen["q"][0, :, window:] @ first.mT / c.head_dim**0.5
            means.append(scores[..., 0].mean(-1))

    _smollm2.model().hidden(text, watch=see)
    return torch.stack(means)
