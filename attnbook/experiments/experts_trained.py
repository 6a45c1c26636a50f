"""What do experts specialise in, when nobody tells them to?

A token is one of four rules and a number, such as B5. Its answer is what rule B makes of the number before: a random
permutation of the numbers for each rule. So a token has three properties: its rule, its own number, which the answer
does not need (the next token needs it), and the number before, which attention must fetch. How much of the router's
choice does each of them tell? Before training, and after, with the balance loss and without it. At last one expert
after another is switched off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from attnbook.experiments._experts import explained
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models import IGNORE, Transformer, train
from attnbook.models.training import Batch
from attnbook.models.transformer import SparseMLP

RULES, NUMBERS, T = 4, 8, 16
EXPERTS = 4
BALANCE = 0.05
PROPERTIES = ("rule", "own", "before")


@dataclass(frozen=True)
class Seen:
    """What a model does on texts that it was not trained on."""

    right: Tensor
    """(n,) for each token that has one before it."""
    choice: Tensor
    """(n,) its expert."""
    properties: dict[str, Tensor]
    """(n,) its rule, its own number, the number before."""
    shares: Tensor
    """(e,) how many of the tokens each expert gets, the largest first."""


@experiment
def run(models: int = 3, steps: int = 150, batch: int = 32, seed: int = 0) -> dict[str, Any]:
    """Train `models` models with the balance loss and as many without, one expert of four a token.

    Data: `explained` maps a kind ("untrained", "plain", "balanced") and a property to shares (models,); `shares` maps a
    kind to (models, e); `table` maps a kind to the first model's (number before, expert) shares of each row.
    """
    kinds: dict[str, list[Seen]] = {"untrained": [], "plain": [], "balanced": []}
    lost: list[float] = []
    kept = True
    for i in range(models):
        rules = permutations(torch.Generator().manual_seed(1000 * seed + i))
        for kind, balance in (("plain", 0.0), ("balanced", BALANCE)):
            model, generator = fresh(1000 * seed + i), torch.Generator().manual_seed(1000 * seed + i)
            if kind == "plain":
                kinds["untrained"].append(look(model, rules, seed))
            train(model, partial(draw, generator, rules, batch), steps=steps, rate=0.01, balance=balance)
            kinds[kind].append(look(model, rules, seed))
        served, others = _switched_off(model, rules, kinds["balanced"][-1], seed)
        lost.append(float(kinds["balanced"][-1].right.double().mean()) - served)
        kept = kept and others
    for kind, seen in kinds.items():
        for name in PROPERTIES:
            measure_mean(f"experts.{kind}_{name}", [explained(one.choice, one.properties[name]) for one in seen],
                         unit="ratio")  # fmt: skip
        measure_mean(f"experts.{kind}_busiest", [one.shares[0] for one in seen], unit="ratio")
        measure_mean(f"experts.{kind}_idlest", [one.shares[-1] for one in seen], unit="ratio")
        if kind != "untrained":
            measure_mean(f"experts.{kind}_right", [one.right.double().mean() for one in seen], unit="ratio")
    measure_mean("experts.switched_off_fall", [100 * share for share in lost], unit="point")
    measure("experts.switched_off_others", kept)
    return {
        "shares": {kind: torch.stack([one.shares for one in seen]) for kind, seen in kinds.items()},
        "explained": {
            kind: {name: [explained(one.choice, one.properties[name]) for one in seen] for name in PROPERTIES}
            for kind, seen in kinds.items()
        },
        "table": {kind: table(seen[0]) for kind, seen in kinds.items()},
    }


def fresh(seed: int) -> Transformer:
    """An untrained model of one layer: attention, then four experts. The weight of the one chosen is its score."""
    return Transformer(
        RULES * NUMBERS, d_model=24, n_layers=1, n_heads=2, mlp="experts", n_experts=EXPERTS, top_k=1, d_ff=8,
        renormalize=False, seed=seed,
    )  # fmt: skip


def experts_of(model: Transformer) -> SparseMLP:
    """The experts of its only layer."""
    return cast(SparseMLP, model.blocks[0].mlp)


def permutations(generator: torch.Generator) -> Tensor:
    """What each rule makes of each number, (rules, numbers)."""
    return torch.stack([torch.randperm(NUMBERS, generator=generator) for _ in range(RULES)])


def draw(generator: torch.Generator, rules: Tensor, b: int) -> Batch:
    """Random tokens (b, t), rule · NUMBERS + number, and their answers; the first has nothing before it."""
    tokens = torch.randint(RULES * NUMBERS, (b, T), generator=generator)
    before = (tokens % NUMBERS).roll(1, 1)
    answers = rules[tokens // NUMBERS, before]
    answers[:, 0] = IGNORE
    return tokens, answers


@torch.no_grad()
def look(model: Transformer, rules: Tensor, seed: int) -> Seen:
    """Read 64 texts that training did not draw."""
    tokens, answers = draw(torch.Generator().manual_seed(seed + 999_999), rules, 64)
    right = model(tokens).argmax(-1) == answers
    routing = experts_of(model).routing
    assert routing is not None
    choice = routing.experts[..., 0]
    properties = {"rule": tokens // NUMBERS, "own": tokens % NUMBERS, "before": (tokens % NUMBERS).roll(1, 1)}
    asked = answers != IGNORE
    loads = torch.bincount(choice[asked], minlength=EXPERTS).double()
    return Seen(
        right[asked], choice[asked], {name: value[asked] for name, value in properties.items()},
        (loads / loads.sum()).sort(descending=True).values,
    )  # fmt: skip


def _switched_off(model: Transformer, rules: Tensor, before: Seen, seed: int) -> tuple[float, bool]:
    """Each expert in turn gives 0 -> how many of its own tokens stay right; do all others stay as they were?"""
    down = experts_of(model).w_down
    right, others = [], True
    for e in range(EXPERTS):
        kept = down[e].detach().clone()
        with torch.no_grad():
            down[e] = 0.0
            after = look(model, rules, seed)
            down[e] = kept
        mine = before.choice == e
        right.append(after.right[mine])
        others = others and torch.equal(after.right[~mine], before.right[~mine])
    return float(torch.cat(right).double().mean()), others


def table(seen: Seen) -> Tensor:
    """For each number before, how often each expert is chosen: (numbers, e), rows sum to 1."""
    counts = torch.zeros(NUMBERS, EXPERTS, dtype=torch.float64)
    counts.index_put_((seen.properties["before"], seen.choice), torch.ones((), dtype=counts.dtype), accumulate=True)
    return counts / counts.sum(1, keepdim=True)
