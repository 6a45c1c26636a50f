"""Does a trained language model's past stay where it is when the future changes?

The probe of `attnbook.probes` replaces one token at a time and looks at the logits of every earlier place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.experiments._smollm2 import model
from attnbook.measure import experiment, measure
from attnbook.probes import causal_leak

TEXT = "The student asked for a map of the river as it was before the bridge."


@experiment
def run(text: str = TEXT, positions: tuple[int, ...] = (1, 5, 8, 11, 14)) -> dict[str, Tensor]:
    """Change the tokens at some positions. Data: `moved` (positions, t), how far each place's logits moved."""
    tokens = torch.tensor([model().tokenizer.encode(text)])
    report = causal_leak(model(), tokens, positions=positions, draws=1, vocabulary=model().config.vocab)
    measure("mask.trained_probe_passes", report.ok)
    before = model()(tokens)
    moved = torch.stack([(model()(changed(tokens, j)) - before).abs().amax((0, 2)) for j in positions])
    rows = tuple(zip(moved, positions, strict=True))
    measure("mask.trained_past_moves", max(float(row[:j].max()) for row, j in rows))
    measure("mask.trained_future_moves", min(float(row[j:].min()) for row, j in rows))
    return {"moved": moved}


def changed(tokens: Tensor, position: int) -> Tensor:
    """Tokens (1, t) with the one at a position replaced by its neighbour in the vocabulary."""
    other = tokens.clone()
    other[0, position] += 1 if int(other[0, position]) == 0 else -1
    return other
