"""Is it these heads, or would any heads do? Found heads off together, against random heads of the same layers.

The random ones are as many in every layer as the found ones, and none of them is among the found. Both are judged on
repeated random tokens, which need looking back, and on plain English, which does not.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook.experiments import _smollm2 as shared
from attnbook.experiments.smollm2_heads import induction_scores, previous_scores
from attnbook.measure import experiment, measure, measure_mean


@experiment
def run(seed: int = 0, draws: int = 4, half: int = 16, heads: int = 6, others: int = 8) -> dict[str, Any]:
    """Switch `heads` induction heads off, and `others` random choices. Data: `repeat` and `text`, by choice, rises."""
    generator = torch.Generator().manual_seed(seed)
    searched, tokens = shared.repeated(generator, 2, half), shared.repeated(generator, draws, half)
    text = shared.text_tokens()
    maps = shared.attention_maps(searched)
    found = shared.best(induction_scores(maps, half).mean(0), heads)
    previous = shared.best(previous_scores(maps).mean(0), 1)
    choices = {"none": [], "previous": previous, "found": found}
    choices |= {f"random {i}": elsewhere(found, generator) for i in range(others)}

    repeat = {name: shared.loss(tokens, half + 2, off) for name, off in choices.items()}  # (draws,) each
    plain = {name: float(shared.loss(text, 1, off)) for name, off in choices.items()}
    rise = {name: each - repeat["none"] for name, each in repeat.items()}
    text_rise = {name: each - plain["none"] for name, each in plain.items()}
    random = [name for name in choices if name.startswith("random")]
    measure_mean("smollm2.group_none_loss", repeat["none"], quote=False)
    measure("smollm2.group_size", heads)
    measure_mean("smollm2.group_found", rise["found"])
    measure_mean("smollm2.group_random", [rise[name].mean() for name in random])
    worst = max(float(rise[name].mean()) for name in random)
    measure("smollm2.group_found_beats_all_random", float(rise["found"].mean()) > 2 * worst)
    measure("smollm2.group_found_text", text_rise["found"])
    measure("smollm2.group_previous_text", abs(text_rise["previous"]))
    measure("smollm2.group_previous", float(rise["previous"].mean()))
    # The two kinds work one after the other: without the first, the second no longer finds its token.
    without = induction_scores(shared.attention_maps(searched, previous), half)
    measure_mean("smollm2.induction_with_previous", induction_scores(maps, half)[:, *found[0]])
    measure_mean("smollm2.induction_without_previous", without[:, *found[0]])
    return {"repeat": rise, "text": text_rise}


def elsewhere(found: list[tuple[int, int]], generator: torch.Generator) -> list[tuple[int, int]]:
    """As many heads in every layer as `found` has there, and none of them."""
    n_heads = shared.model().config.n_heads
    drawn = []
    for layer in sorted({layer for layer, _ in found}):
        taken = [head for at, head in found if at == layer]
        free = [head for head in range(n_heads) if head not in taken]
        order = torch.randperm(len(free), generator=generator)[: len(taken)]
        drawn += [(layer, free[int(i)]) for i in order]
    return drawn
