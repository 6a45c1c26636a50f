"""Two places at once: what does one softmax manage, and what takes two heads?

In a row of random numbers each place asks about the number one place before it (a) and the number three before (b).
Asked for a + b, one head should do: half its weight here, half there. Asked for a − b it gets into trouble: weights are
never negative and a head has one map for values, so that what is added for a is added for b. If the answer is read off
by a linear map, the outputs that mean "0" form a convex set. Where a = b the output is the value of a, whatever the two
weights. So all values mean 0, and so does every mixture of them: whoever is right on all ties says 0 for everything.
Therefore positions go into queries and keys alone: a value that told its place would give the shares away, and shares
are e to the difference of two scores (`heads_ratio`). In a first version a few single heads found that.

Trained are several models of each kind, side by side along a leading axis s: one head, two heads with the same number
of parameters, and the ways out that are not two heads: a head twice as long, a second layer, an MLP after the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from attnbook.experiments._attend import attend, weights
from attnbook.experiments.scaling_training import Adam
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models.tasks import two_places
from attnbook.reference import merge_heads, split_heads

SYMBOLS, T, BACK = 6, 12, (1, 3)
WIDTH, BATCH, RATE = 32, 32, 5e-3
ANSWERS = 2 * SYMBOLS - 1
ASKED = slice(max(BACK), None)
"""The places that have a number three before them."""


@dataclass(frozen=True)
class Kind:
    """What a model is made of, and what it is asked."""

    n_heads: int = 1
    head_dim: int = WIDTH
    n_layers: int = 1
    mlp: bool = False
    answer: Literal["difference", "sum"] = "difference"


KINDS = {
    "sum": Kind(answer="sum"),
    "one": Kind(),
    "two": Kind(n_heads=2, head_dim=WIDTH // 2),
    "wide": Kind(head_dim=2 * WIDTH),
    "layers": Kind(n_layers=2),
    "mlp": Kind(mlp=True),
}

SCATTERED = ("one", "wide")
"""Kinds that do not learn it: where they get stuck differs from model to model."""


@experiment
def run(steps: int = 400, models: int = 8, seed: int = 0) -> dict[str, Any]:
    """Train `models` models of each kind, twice as many where results scatter most; how often are answers right?

    Data: `right` maps kinds to shares (s,); `looks` maps kinds to the mean weight on the two places, per model, layer
    and head (s, layers, heads, 2); `tokens` (t,) and `heads` (heads, t, t): one example seen by the clearest model with
    two heads.
    """
    data: dict[str, Any] = {"right": {}, "looks": {}}
    for index, (name, kind) in enumerate(KINDS.items()):
        many = 2 * models if name in SCATTERED else models
        trained = Trained.of(kind, steps=steps, models=many, seed=seed * len(KINDS) + index)
        data["right"][name], data["looks"][name] = trained.right, trained.looks
        measure_mean(f"heads.right_{name}", trained.right, unit="ratio")
        if name == "one":
            _measure_ties(trained)
        if name == "two":
            measure("heads.parameters_trained_two", trained.parameters)
            data |= {"tokens": trained.tokens, "heads": trained.example}
    _measure_statements(data)
    return data


def _measure_ties(one: Trained) -> None:
    """Of one head: its size, its best model, and that no model is right both where a = b and where not."""
    measure("heads.parameters_trained_one", one.parameters)
    measure("heads.right_one_best", one.right.max(), unit="ratio")
    worse = torch.minimum(one.right_ties, one.right_others)
    measure_mean("heads.right_one_worse_side", worse, unit="ratio")


def _measure_statements(data: dict[str, Any]) -> None:
    looks = data["looks"]
    for name in ("sum", "mlp"):
        at = looks[name][:, 0, 0]  # (s, 2)
        measure_mean(f"heads.smaller_weight_{name}", at.amin(-1), unit="ratio")
        measure_mean(f"heads.larger_weight_{name}", at.amax(-1), unit="ratio")
    clear = clearness(looks["two"])
    measure("heads.clearest_two", clear.max())
    measure_mean("heads.mean_clear_two", clear)


def clearness(looks: Tensor) -> Tensor:
    """How far two heads have shared out the places: (s, 1, 2, 2) -> (s,), 1 = one head sees a alone, the other b."""
    at = looks[:, 0]
    return torch.maximum(torch.minimum(at[:, 0, 0], at[:, 1, 1]), torch.minimum(at[:, 0, 1], at[:, 1, 0]))


class Stack:
    """`models` models of one kind; every weight has them as its first axis."""

    def __init__(self, kind: Kind, models: int, generator: torch.Generator) -> None:
        self.kind = kind

        def normal(*shape: int, std: float) -> Tensor:
            return torch.randn(models, *shape, generator=generator) * std

        inner = kind.n_heads * kind.head_dim
        self.start = {"token": normal(SYMBOLS, WIDTH, std=0.5), "position": normal(T, WIDTH, std=0.5)}
        for layer in range(kind.n_layers):
            for name in "qkv":
                self.start[f"{name}{layer}"] = normal(WIDTH, inner, std=WIDTH**-0.5)
            self.start[f"o{layer}"] = normal(inner, WIDTH, std=inner**-0.5)
        if kind.mlp:
            self.start |= {"up": normal(WIDTH, WIDTH, std=WIDTH**-0.5), "down": normal(WIDTH, WIDTH, std=WIDTH**-0.5)}
            self.start["bend"] = normal(1, WIDTH, std=0.0)
        self.start |= {"answer": normal(WIDTH, ANSWERS, std=WIDTH**-0.5), "bias": normal(1, ANSWERS, std=0.0)}

    def __call__(self, weight: dict[str, Tensor], tokens: Tensor, seen: list[Tensor] | None = None) -> Tensor:
        """Tokens (s, b, t) -> logits (s, b, t, answers); to `seen` goes each layer's weights (s, b, h, t, t)."""
        s, b, t = tokens.shape
        models = torch.arange(s)[:, None, None]
        x = weight["token"][models, tokens].flatten(1, 2)  # (s, b·t, width)
        place = weight["position"].repeat(1, b, 1)
        for layer in range(self.kind.n_layers):
            q, k, v = (
                split_heads((source @ weight[f"{name}{layer}"]).view(s * b, t, -1), self.kind.n_heads)
                for name, source in (("q", x + place), ("k", x + place), ("v", x))
            )
            out = merge_heads(attend(q, k, v, is_causal=True)).reshape(s, b * t, -1)
            x = x + out @ weight[f"o{layer}"]
            if seen is not None:
                seen.append(weights(q, k, is_causal=True).view(s, b, self.kind.n_heads, t, t))
        if self.kind.mlp:
            x = x + torch.relu(x @ weight["up"] + weight["bend"]) @ weight["down"]
        return (x @ weight["answer"] + weight["bias"]).view(s, b, t, ANSWERS)


@dataclass(frozen=True)
class Trained:
    """What several models of one kind have learned."""

    right: Tensor
    """(s,) share of right answers, on sequences that were not trained on."""
    right_ties: Tensor
    """(s,) the same where a = b."""
    right_others: Tensor
    """(s,) the same elsewhere."""
    looks: Tensor
    """(s, layers, heads, 2) mean weight on the place of a and on that of b."""
    parameters: int
    """Numbers in the maps for q, k, v and the output of one layer of one model."""
    tokens: Tensor
    """(t,) one example."""
    example: Tensor
    """(heads, t, t) the weights of the first layer on it, of the model whose heads are shared out most clearly."""

    @classmethod
    def of(cls, kind: Kind, *, steps: int, models: int, seed: int) -> Trained:
        """Train and examine."""
        generator = torch.Generator().manual_seed(seed)
        stack = Stack(kind, models, generator)
        names = list(stack.start)
        optimiser = Adam(list(stack.start.values()), torch.full((models,), RATE))
        for _ in range(steps):
            tokens, targets = draw(generator, models, BATCH, kind)
            logits = stack(dict(zip(names, optimiser.parameters, strict=True)), tokens)[:, :, ASKED]
            loss = -logits.log_softmax(-1).gather(-1, targets[..., None]).mean(dim=(1, 2, 3))
            optimiser.step(loss.sum())  # models share no weight: none of them feels the others
        return cls._examine(stack, dict(zip(names, optimiser.parameters, strict=True)), generator)

    @classmethod
    @torch.no_grad()
    def _examine(cls, stack: Stack, weight: dict[str, Tensor], generator: torch.Generator) -> Trained:
        models = len(weight["token"])
        tokens, targets = draw(generator, models, 128, stack.kind)
        seen: list[Tensor] = []
        hits = (stack(weight, tokens, seen)[:, :, ASKED].argmax(-1) == targets).double()
        ties = (targets == SYMBOLS - 1).double()
        place = torch.arange(T)[ASKED]
        looks = torch.stack([torch.stack([layer[..., place, place - back] for back in BACK], -1) for layer in seen], 1)
        looks = looks.mean(dim=(2, 4))  # over sequences and places
        clearest = int(clearness(looks).argmax()) if stack.kind.n_heads == 2 else 0
        return cls(
            right=hits.mean(dim=(1, 2)),
            right_ties=(hits * ties).sum(dim=(1, 2)) / ties.sum(dim=(1, 2)),
            right_others=(hits * (1 - ties)).sum(dim=(1, 2)) / (1 - ties).sum(dim=(1, 2)),
            looks=looks,
            parameters=sum(weight[name][0].numel() for name in ("q0", "k0", "v0", "o0")),
            tokens=tokens[clearest, 0],
            example=seen[0][clearest, 0],
        )


def draw(generator: torch.Generator, models: int, batch: int, kind: Kind) -> tuple[Tensor, Tensor]:
    """Sequences of its own for each model: tokens (s, b, t), targets (s, b, places asked)."""
    tokens, targets = two_places(generator, models * batch, T, symbols=SYMBOLS, back=BACK, answer=kind.answer)
    return tokens.view(models, batch, T), targets.view(models, batch, T)[..., ASKED]
