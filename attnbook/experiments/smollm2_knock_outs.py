"""What breaks when one head is switched off? All heads in turn, on random tokens that are repeated.

The first half cannot be predicted; the second can, by whoever looks back. A head's effect is the rise of the loss over
the second half when the head's output is replaced by 0. It is compared with what the weights alone would make one
expect: how much the head looks where the answer stands.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook.experiments import _smollm2 as shared
from attnbook.experiments.smollm2_heads import induction_scores, previous_scores, rank_correlation
from attnbook.measure import experiment, measure

QUIET = 0.1
"""A rise of less than this, in nats, is called none."""


@experiment
def run(seed: int = 0, half: int = 16) -> dict[str, Any]:
    """Knock out every head. Data: `rise` (n_layers, n_heads), `induction` and `previous`, the scores beside it."""
    tokens = shared.repeated(torch.Generator().manual_seed(seed), 1, half)
    begin = half + 2  # the second half's first token is random too, as nobody knows yet that it is one
    whole, losses = shared.knock_outs(tokens, begin)
    rise = losses - whole
    (maps,) = shared.attention_maps(tokens)
    previous, induction = previous_scores(maps), induction_scores(maps, half)

    measure("smollm2.repeat_loss", whole)
    measure("smollm2.random_loss", shared.loss(tokens[:, : half + 1]))
    first, second = shared.best(previous, 2)
    measure("smollm2.off_previous", rise[first])
    measure("smollm2.off_second_previous", rise[second].abs())
    four = shared.best(induction, 4)
    most = max(rise[head].item() for head in four)
    measure("smollm2.off_most_of_four", most)
    measure("smollm2.off_least_of_four", min(rise[head].item() for head in four))
    measure("smollm2.least_of_four_score", min(induction[head].item() for head in four))
    measure("smollm2.previous_is_strongest_above", shared.best(rise[2:], 1)[0] == (first[0] - 2, first[1]))
    measure("smollm2.early_is_strong_too", float(rise[:2].max()) > most / 2)
    measure("smollm2.quiet_heads", (rise.abs() < QUIET).double().mean(), unit="ratio")
    measure("smollm2.weight_effect_ranks", rank_correlation(induction, rise))
    return {"rise": rise, "induction": induction, "previous": previous}
