"""What do the heads of a trained model look at? Every head is scored for four habits; nobody says where to look.

- *previous*: weight on the token just before, on random tokens, where nothing else is to be known.
- *induction* (Olsson et al. 2022): on random tokens that are repeated, weight on what followed this token last time.
- *bracket*: weight of a closing bracket on the one that it closes, in nested brackets between random words.
- *quote*: the same of quotation marks, where those of the inner pair are of another kind, as in print.
- *first*: weight on the first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._smollm2 import attention_maps, best, model, repeated, start, text_tokens
from attnbook.measure import experiment, measure, measure_mean

WORDS = "house river green paper letter winter garden music table window silver bread friend stone number yellow"
Marks = tuple[str, str]
"""Opening and closing, as the model's vocabulary has them, one token each."""
ROUND, SQUARE = (" (", ")"), (" [", "]")
DOUBLE, SINGLE, CURLY, CURLY_SINGLE = (' "', '"'), (" '", "'"), (" “", "”"), (" ‘", "’")
BRACKETS = ((ROUND, ROUND), (SQUARE, SQUARE))
"""Which marks stand outside, and which inside."""
QUOTES = ((DOUBLE, SINGLE), (CURLY, CURLY_SINGLE))
SAME_QUOTES = ((DOUBLE, DOUBLE), (CURLY, CURLY))


@experiment
def run(seed: int = 0, draws: int = 4, half: int = 24, sentences: int = 8) -> dict[str, Any]:
    """Score all heads. Data: `scores`, by habit (n_layers, n_heads); `example`, maps of two heads on one draw."""
    generator = torch.Generator().manual_seed(seed)
    maps = attention_maps(repeated(generator, draws, half))  # (draws, layers, heads, t, t)
    habits = {"previous": previous_scores(maps), "induction": induction_scores(maps, half)}
    kinds = {"bracket": BRACKETS, "quote": QUOTES}
    pairs = {name: pair_scores(generator, marks, sentences) for name, marks in kinds.items()}
    habits |= {name: own for name, (own, _, _) in pairs.items()}
    for name, each in habits.items():
        mean = each.mean(0)
        found, second = best(mean, 2)
        measure(f"smollm2.{name}_layer", found[0])
        measure(f"smollm2.{name}_head", found[1])
        measure_mean(f"smollm2.{name}_score", each[:, *found])
        measure_mean(f"smollm2.{name}_second", each[:, *second], quote=name != "bracket")
        measure(f"smollm2.{name}_median", mean.median())
    for name, (own, inner, shuffled) in pairs.items():
        found = best(own.mean(0), 1)[0]
        measure(f"smollm2.{name}_prefers_its_own", (own > inner)[:, *found].double().mean(), unit="ratio")
        measure(f"smollm2.{name}_shuffled", shuffled.mean(0).max())
    found = best(habits["quote"].mean(0), 1)[0]
    measure_mean("smollm2.quote_same_kind", pair_scores(generator, SAME_QUOTES, sentences)[0][:, *found])
    measure("smollm2.quote_head_is_second_of_brackets", best(habits["bracket"].mean(0), 2)[1] == found)

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


def pair_scores(
    generator: torch.Generator, marks: Sequence[tuple[Marks, Marks]], sentences: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of closing marks that have the opening one of an inner pair nearer to them, (closings, layers, heads).

    On the mark that it closes, on the opening mark of the inner pair, and on a word drawn from those before it: what
    the best of many heads reaches there is luck and general habit, and says nothing about marks.
    """
    drawn = [nested(generator, outer, inner) for _ in range(sentences) for outer, inner in marks]
    longest = max(len(tokens) for tokens, _ in drawn)
    padded = torch.tensor([tokens + [start()] * (longest - len(tokens)) for tokens, _ in drawn])  # behind: not seen
    weights = attention_maps(padded)  # (closings, layers, heads, t, t)
    rows = torch.arange(len(drawn))
    close, *places = torch.tensor([places for _, places in drawn]).unbind(-1)
    own, inner, word = (weights[rows, :, :, close, place] for place in places)
    return own, inner, word


def nested(generator: torch.Generator, outer: Marks, inner: Marks) -> tuple[list[int], list[int]]:
    """Tokens of random words with one pair of marks in another, and four places in them.

    The places: the outer pair's closing mark and its opening one, the inner pair's opening mark, and some word before.
    Only the outer pair is looked at: for it, the last opening mark would be wrong.
    """
    encode = model().tokenizer.encode
    words = [token for word in WORDS.split() for token in encode(" " + word)]

    def draw(n: int) -> int:
        return int(torch.randint(n, (1,), generator=generator))

    tokens, places = [start()], []
    for mark in (outer[0], inner[0], inner[1], outer[1]):
        tokens += [words[draw(len(words))] for _ in range(2 + draw(4))]
        places.append(len(tokens))
        tokens += encode(mark)
    plain = [place for place in range(1, places[3]) if place not in places]
    return tokens, [places[3], places[0], places[1], plain[draw(len(plain))]]


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's: the correlation of the ranks. Ties do not occur in what it is used for."""
    ranks = [values.flatten().argsort().argsort().double() for values in (x, y)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])
