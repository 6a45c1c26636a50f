"""Trained on 32 tokens, asked in up to 256: what each way to tell positions makes of a text longer than any it saw.

Two tests for the same models. In the first a long text is like the short ones, with the answer mostly near by. In the
second the answer stands at the very beginning, and nothing about the variable follows until the question at the end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _latest as task
from attnbook.experiments._latest import ENCODINGS, LONGEST, TRAINED
from attnbook.measure import experiment, measure, measure_mean


@experiment
def run(seed: int = 0, models: int = 4, steps: int = 300, batch: int = 16, tested: int = 24) -> dict[str, Any]:
    """Train `models` models for each encoding; `tested` texts of each length.

    Data: `times` the lengths in multiples of the trained one, `usual` and `once` the accuracies by encoding
    (lengths, models), `chance`.
    """
    measure("longer.trained_length", TRAINED)
    measure("longer.chance", 1 / task.VALUES, unit="ratio")
    times = [2**i for i in range(LONGEST.bit_length())]
    found: dict[str, dict[str, Tensor]] = {"usual": {}, "once": {}}
    same = True
    for encoding in ENCODINGS:
        model = task.trained(encoding, seed, models, steps, batch)
        generator = torch.Generator().manual_seed(seed + 1)  # the same texts for every encoding
        for kind, draw in (("usual", task.usual), ("once", _far)):
            lengths = [task.accuracy(model, draw(generator, models, tested, n * TRAINED)) for n in times]
            found[kind][encoding] = torch.stack(lengths)
            for n, shares in zip(times, lengths, strict=True):
                quote = kind == "usual" or n in (1, LONGEST)
                measure_mean(f"longer.{kind}_{encoding}_{n}x", shares.tolist(), unit="ratio", quote=quote)
        texts = task.usual(generator, models, tested, TRAINED)
        moved = task.accuracy(model, texts, start=(LONGEST - 1) * TRAINED)
        added = encoding in ("sinusoidal", "learned")
        measure_mean(f"longer.moved_{encoding}", moved.tolist(), unit="ratio", quote=added)
        if not added:
            same = same and float((moved - task.accuracy(model, texts)).abs().max()) < 0.01
        if encoding == "rope":
            texts = task.usual(generator, models, tested, LONGEST * TRAINED)
            held = task.accuracy(model, texts, window=TRAINED)
            measure_mean("longer.windowed_rope", held.tolist(), unit="ratio")
    measure("longer.moved_changes_nothing", same)
    _compare({kind: {name: shares[-1] for name, shares in by.items()} for kind, by in found.items()})
    return {"times": times, **found, "chance": 1 / task.VALUES}


def _compare(longest: dict[str, dict[str, Tensor]]) -> None:
    """Which encoding is ahead at the longest length: every model of it, of what each of the others gives on average."""
    for kind, ahead in (("usual", "alibi"), ("once", "none")):
        others = max(float(shares.mean()) for name, shares in longest[kind].items() if name != ahead)
        measure(f"longer.{ahead}_best_of_{kind}", float(longest[kind][ahead].min()) > others)


def _far(generator: torch.Generator, models: int, batch: int, t: int) -> task.Texts:
    return task.at_end(task.once(generator, models, 2 * batch, t))
