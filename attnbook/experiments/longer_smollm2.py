"""SmolLM2 beyond its trained length, at the price of a short text: a text, a hole in the positions, the text again.

    positions   0   1 2 … 32 | 33 + gap … 64 + gap
    tokens      ·   a b … z  | a b … z

The second part is known to whoever still finds the first: its loss says whether the model does. Nothing stands in the
hole. So this measures the distance alone, and not what many more keys would do; a pass costs what 65 tokens cost.
The first token is the one that stood between documents in training.

The texts are random tokens, which nothing but the first part predicts, and a paragraph of English.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnbook.experiments import _smollm2
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models import SmolLM2
from attnbook.reference.rope_scaling import LinearScaling, NTKScaling, YarnScaling

PROSE = (
    "The ferry left at seven, an hour late, because the captain had lost his keys in the market. Nobody minded. "
    "A woman sold plums from a basket, two boys played cards on a suitcase, and the dog slept under the only chair."
)
"""Written for this experiment, so that no model has it by heart."""


@experiment
def run(
    gaps: tuple[int, ...] = (0, 4096, 8192, 16384),
    far: int = 16384,
    factor: int = 4,
    half: int = 32,
    repeats: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Read `repeats` random texts and one of English, `half` tokens twice, with every gap, and stretched with two gaps.

    Data: `gaps`, `random` (gaps, repeats) and `prose` (gaps,) the losses of the second part, `first` the first part's.
    """
    model = _smollm2.model()
    context = model.config.context
    words = model.tokenizer.encode(PROSE)[:half]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(17, model.config.vocab, (repeats, half), generator=generator)
    text = torch.cat([drawn, torch.tensor([words])])
    measure("longer.read_twice", text.shape[1], unit="token")
    by_gap = [second_half(model, text, gap) for gap in gaps]
    for gap, loss in zip(gaps, by_gap, strict=True):
        measure(f"longer.hole_{gap}", gap, quote=False)
        between = 0 < gap < context  # there some texts are found again and others not: no mean says how it is
        measure_mean(f"longer.gap_random_{gap}", loss[:-1].tolist(), quote=not between)
        measure(f"longer.gap_prose_{gap}", loss[-1])
    alone = first_half(model, text)
    measure_mean("longer.alone_random", alone[:-1].tolist())
    measure("longer.alone_prose", alone[-1])
    ways = {
        "linear": LinearScaling(factor), "ntk": NTKScaling(factor), "yarn": YarnScaling(factor, context),
        "unsharpened": YarnScaling(factor, context, attention_factor=1.0),
    }  # fmt: skip
    at_far = {}
    for way, scaling in ways.items():
        stretched = model.with_scaling(scaling)
        for gap in (0, far):
            loss = second_half(stretched, text, gap)
            measure_mean(f"longer.{way}_random_{gap}", loss[:-1].tolist(), quote=gap == 0)
            measure(f"longer.{way}_prose_{gap}", loss[-1])
        at_far[way] = float(loss[-1])  # the last gap is `far`
    prose = [float(loss[-1]) for loss in by_gap]
    _compare(prose, [loss for gap, loss in zip(gaps, prose, strict=True) if gap >= context], float(alone[-1]), at_far)
    return {"gaps": gaps, "random": torch.stack(by_gap)[:, :-1], "prose": torch.stack(by_gap)[:, -1], "alone": alone}


def _compare(prose: list[float], beyond: list[float], alone: float, stretched: dict[str, float]) -> None:
    """Statements on the English text: its losses by gap, those past the trained length, alone, and stretched."""
    measure("longer.perplexity_near", math.exp(prose[0]))
    measure("longer.perplexity_far", math.exp(prose[-1]))
    measure("longer.beyond_is_worse_than_alone", min(beyond) > alone)
    found = {way for way, loss in stretched.items() if loss < alone / 2}
    lost = {way for way, loss in stretched.items() if loss > 0.9 * alone}
    measure("longer.only_yarn_finds_it", found == {"yarn", "unsharpened"} and lost == {"linear", "ntk"})
    measure("longer.unsharpened_is_better_here", stretched["unsharpened"] < stretched["yarn"])


def second_half(model: SmolLM2, text: Tensor, gap: int) -> Tensor:
    """Mean loss in nats of each text's second reading, `gap` positions after its first: text (b, n) -> (b,)."""
    n = text.shape[1]
    position = torch.arange(2 * n + 1)
    position[n + 1 :] += gap
    x = model.hidden(torch.cat([_start(model, text), text, text], 1), positions=position)
    return _loss(model, x[:, n + 1 : -1], text[:, 1:])  # its first token lies across the hole: not asked for


def first_half(model: SmolLM2, text: Tensor) -> Tensor:
    """The same of each text read once: (b,)."""
    return _loss(model, model.hidden(torch.cat([_start(model, text), text], 1))[:, 1:-1], text[:, 1:])


def _start(model: SmolLM2, text: Tensor) -> Tensor:
    (token,) = model.tokenizer.encode("<|endoftext|>")
    return torch.full((len(text), 1), token)


def _loss(model: SmolLM2, x: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of each row: what the model had in mind (b, t, d_model), what came (b, t) -> (b,)."""
    return cross_entropy((x @ model.head).mT, targets, reduction="none").mean(1)
