"""What do the heads of a trained model look at? Every head is scored for four habits; nobody says where to look.

- *previous*: weight on the token just before, on random tokens, where nothing else is to be known.
- *induction* (Olsson et al. 2022): on random tokens that are repeated, weight on what followed this token last time.
- *bracket*: weight of a closing bracket on the one that it closes, in nested brackets between random words.
- *first*: weight on the first token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._smollm2 import attention_maps, best, model, repeated, start, text_tokens
from attnbook.measure import experiment, measure, measure_mean

WORDS = "house river green paper letter winter garden music table window silver bread friend stone number yellow"
KINDS = ((" (", ")"), (" [", "]"))
"""Opening and closing, as the model's vocabulary has them, one token each."""


@experiment
def run(seed: int = 0, draws: int = 4, half: int = 24, sentences: int = 8) -> dict[str, Any]:
    """Score all heads. Data: `scores`, by habit (n_layers, n_heads); `example`, maps of two heads on one draw."""
    generator = torch.Generator().manual_seed(seed)
    maps = attention_maps(repeated(generator, draws, half))  # (draws, layers, heads, t, t)
    habits = {"previous": previous_scores(maps), "induction": induction_scores(maps, half)}
    right, other = bracket_scores(generator, sentences)
    habits["bracket"] = right
    for name, each in habits.items():
        mean = each.mean(0)
        found, second = best(mean, 2)
        measure(f"smollm2.{name}_layer", found[0])
        measure(f"smollm2.{name}_head", found[1])
        measure_mean(f"smollm2.{name}_score", each[:, *found])
        measure_mean(f"smollm2.{name}_second", each[:, *second], quote=name != "bracket")
        measure(f"smollm2.{name}_median", mean.median())
    found = best(right.mean(0), 1)[0]
    measure("smollm2.bracket_prefers_its_own", (right > other)[:, *found].double().mean(), unit="ratio")

    group = model().config.n_heads // model().config.n_kv_heads
    four = best(habits["induction"].mean(0), 4)
    measure("smollm2.induction_next_three_share_keys", len({(layer, head // group) for layer, head in four[1:]}) == 1)
    measure("smollm2.induction_next_layer", four[1][0])
    first = first_scores(attention_maps(text_tokens()))
    measure("smollm2.first_mean", first.mean())
    measure("smollm2.first_over_half", (first > 0.5).double().mean(), unit="ratio")
    scores = {name: each.mean(0) for name, each in habits.items()} | {"first": first[0]}
    layers = [best(scores[name], 1)[0] for name in ("previous", "induction")]
    return {"scores": scores, "example": [maps[0, *found] for found in layers]}


def previous_scores(maps: Tensor) -> Tensor:
    """Mean weight on the token before: (b, layers, heads, t, t) -> (b, layers, heads)."""
    return maps.diagonal(-1, dim1=-2, dim2=-1)[..., 1:].mean(-1)  # from the third token on: the second has no choice


def induction_scores(maps: Tensor, half: int) -> Tensor:
    """Mean weight, in the second half, on the token behind the first appearance of the token that is read."""
    place = torch.arange(half + 1, 2 * half + 1)
    return maps[..., place, place - half + 1].mean(-1)


def first_scores(maps: Tensor) -> Tensor:
    """Mean weight on the first token, of all places behind it."""
    return maps[..., 1:, 0].mean(-1)


def bracket_scores(generator: torch.Generator, sentences: int) -> tuple[Tensor, Tensor]:
    """Weights of closing brackets that have the opening one of an inner pair nearer to them, (closings, layers, heads).

    The first tensor is the weight on the bracket that it closes, the second the largest on another of the same kind.
    """
    right, other = [], []
    for _ in range(sentences):
        tokens, triples = nested(generator)
        (maps,) = attention_maps(tokens)
        for close, own, others in triples:
            right.append(maps[..., close, own])
            other.append(maps[..., close, others].amax(-1))
    return torch.stack(right), torch.stack(other)


def nested(generator: torch.Generator) -> tuple[Tensor, list[tuple[int, int, list[int]]]]:
    """Random words with one pair of brackets in another, (1, t); and (closing, its opening, the other openings).

    Only the outer pair is listed: for it, looking at the last opening bracket would be wrong.
    """
    encode = model().tokenizer.encode
    words = [token for word in WORDS.split() for token in encode(" " + word)]

    def draw(n: int) -> int:
        return int(torch.randint(n, (1,), generator=generator))

    def some() -> list[int]:
        return [words[draw(len(words))] for _ in range(2 + draw(4))]

    found, tokens = [], [start()]
    for kind in KINDS:
        opening, closing = (encode(bracket)[0] for bracket in kind)
        places = []
        for piece in ([opening], [opening], [closing], [closing]):
            tokens += some()
            places.append(len(tokens))
            tokens += piece
        found.append((places[3], places[0], [places[1]]))
    return torch.tensor([tokens]), found


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's: the correlation of the ranks. Ties do not occur in what it is used for."""
    ranks = [values.flatten().argsort().argsort().double() for values in (x, y)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])
