"""Can a model without any encoding of positions tell where a token stands, and which of two came first?

Trained with a causal mask and without one, with one layer and with two: the mask is the only thing in which past and
future differ. What a single layer's last token sees is the same for every order of the tokens before it, so the order
needs a second layer; the place needs none.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook.experiments import _unplaced as task
from attnbook.measure import experiment, measure, measure_mean

SETTINGS = {"open_one": (False, 1), "open_two": (False, 2), "causal_one": (True, 1), "causal_two": (True, 2)}


@experiment
def run(
    seed: int = 0, models: int = 5, steps: int = 200, batch: int = 32, rate: float = 1e-2, asked: int = 1000
) -> dict[str, Any]:
    """`models` models a setting, each with weights and data of its own, and `asked` fresh sequences each."""
    data: dict[str, Any] = {}
    places = torch.arange(1, task.LENGTH - 1)
    for number, (name, (is_causal, layers)) in enumerate(SETTINGS.items()):
        generator = torch.Generator().manual_seed(seed + number)
        trained = task.Models.fresh(generator, models, layers=layers, is_causal=is_causal)
        task.train(trained, generator, steps=steps, batch=batch, rate=rate)
        named, order = task.judge(trained, generator, batch=asked)
        right = (named == places).double().mean((1, 2))
        measure_mean(f"position.{name}_place", right.tolist(), unit="ratio")
        measure_mean(f"position.{name}_order", order.tolist(), unit="ratio")
        data |= {f"{name}_place": right, f"{name}_order": order, f"{name}_named": named}
    measure("position.place_chance", 1 / len(places), unit="ratio")
    return data
