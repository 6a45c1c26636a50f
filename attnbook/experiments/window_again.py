"""Does a trained model find again, through its layers, what stands beyond one window? Random tokens, read twice.

Nothing but the first reading predicts the second. With a window of half a reading, layer upon layer still reaches it;
no single layer does.
"""

from __future__ import annotations

import torch

from attnbook.experiments import _smollm2, _window_text
from attnbook.measure import experiment, measure_mean


@experiment
@torch.no_grad()
def run(window: int = 16, half: int = 32, draws: int = 3, seed: int = 0) -> None:
    """`draws` texts of `half` tokens, twice each: the loss of the second reading, without a window and with one."""
    twice = _smollm2.repeated(torch.Generator().manual_seed(seed), draws, half)
    for name, mask in (("full", None), ("window", _window_text.mask(twice.shape[1], window, (0,)))):
        hidden = _smollm2.model().hidden(twice, mask=mask)
        measure_mean(f"window.again_{name}", _smollm2.losses(hidden, twice, half + 2))
