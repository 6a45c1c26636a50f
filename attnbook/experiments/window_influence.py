"""A trained model under a window reaches past the beginning of the text: how much of that moves its answers?

SmolLM2 with a window and its first token kept. The influence of a token is the length of the gradient, by its
embedding, of the next token's log-probability; beside it the same without a window.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _smollm2, _window_text
from attnbook.measure import experiment, measure, measure_mean


@experiment
def run(window: int = 16, most: int = 129, asked: int = 3) -> dict[str, Any]:
    """Gradients of `asked` tokens near the end. Data: `pull` by the way, (distances,); `window`."""
    layers = _smollm2.model().config.n_layers
    reach = layers * (window - 1) + 1
    measure("window.trained_reach", reach)
    text = _window_text.tokens(most)
    t = text.shape[1]
    measure("window.trained_tokens", t)
    measure("window.trained_reaches_all", reach >= t)
    pull = {
        "window": pulls(text, _window_text.mask(t, window, (0,)), asked),
        "full": pulls(text, None, asked),
    }
    for name, share in pull.items():
        measure_mean(f"window.pull_{name}_near", share[:, :window].sum(1), unit="ratio")
        measure_mean(f"window.pull_{name}_far", share[:, 4 * window :].sum(1), unit="ratio")

    return {"pull": {name: share.mean(0) for name, share in pull.items()}, "window": window}


def pulls(text: Tensor, mask: Tensor | None, asked: int) -> Tensor:
    """Each distance's share of the gradients' lengths, (asked, distances): 0 is the token that answers itself.

    The first token of the text is left out: what it does is not what it says.
    """
    model, t = _smollm2.model(), text.shape[1]
    x = model.embedding[text].clone().requires_grad_()
    hidden = model.from_layer(0, x, mask=mask)
    places = [t - 2 - 4 * i for i in range(asked)]
    rows = []
    for place in places:
        chance = (hidden[:, place] @ model.head).log_softmax(-1)[0, text[0, place + 1]]
        (gradient,) = torch.autograd.grad(chance, x, retain_graph=True)
        length = gradient[0].norm(dim=-1)[1 : place + 1].flip(0)[: places[-1]]
        rows.append(length / length.sum())
    return torch.stack(rows)
