"""What does attention know of the order of its tokens, with each encoding of positions and with none?

Untrained models read all orders of the five words of a sentence, and what they say of each word is put back into the
first order. What is left of a difference is what the model knows of the order.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._attend import measure_worst
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models import Transformer
from attnbook.models.transformer import POSITIONS, Positions

WORDS = ("犬", "が", "猫", "を", "追う")
SWAPPED = (2, 1, 0, 3, 4)
"""猫が犬を追う: the same tokens in another order, with another meaning."""


@experiment
def run(seed: int = 0, models: int = 12) -> dict[str, Any]:
    """`models` models of two layers for each encoding, all 120 orders."""
    open_ = {name: _moved(name, seed, models, is_causal=False) for name in POSITIONS}
    measure("position.orders", len(_orders()))
    measure_worst("position.permutation_error", open_["none"].amax(1))
    for name in POSITIONS[1:]:
        measure_mean(f"position.{name}_moves", open_[name].mean(1).tolist())
    causal = _moved("none", seed, models, is_causal=True)
    measure_mean("position.causal_moves", causal.mean(1).tolist())
    _last_of_one_layer(seed, models)
    _swapped(seed, models)
    _backwards(seed, models)
    moved = {"no positions": open_.pop("none"), "no positions, causal": causal, **open_}
    return {name: shares.mean(1) for name, shares in moved.items()}


def _model(positions: Positions, seed: int, **options: Any) -> Transformer:
    table = 2 * len(WORDS) if positions == "learned" else None
    options = {"n_layers": 2, "is_causal": False, **options}
    return Transformer(len(WORDS), d_model=32, positions=positions, max_positions=table, seed=seed, **options).eval()


def _orders() -> Tensor:
    """All orders of the words, (120, 5), the first of them 0 1 2 3 4."""
    return torch.tensor(list(permutations(range(len(WORDS)))))


@torch.no_grad()
def _moved(positions: Positions, seed: int, models: int, **options: Any) -> Tensor:
    """How far the outputs move, put back into the first order, as a share of their size: (models, 119)."""
    orders = _orders()
    moved = []
    for model in (_model(positions, seed + i, **options) for i in range(models)):
        out = model(orders)  # (120, 5, vocab)
        back = out.gather(1, orders.argsort(1)[..., None].expand_as(out))
        moved.append(_share(back[1:], out[0]))
    return torch.stack(moved)


def _share(changed: Tensor, out: Tensor) -> Tensor:
    """Difference over size, taken over the last two axes."""
    share: Tensor = torch.linalg.matrix_norm(changed - out) / torch.linalg.matrix_norm(out)
    return share


@torch.no_grad()
def _last_of_one_layer(seed: int, models: int) -> None:
    """With a causal mask, the last word's output for all orders of the four before it: one layer, and two."""
    before = torch.tensor([order for order in _orders().tolist() if order[-1] == len(WORDS) - 1])
    for name, layers in (("one", 1), ("two", 2)):
        last = torch.stack(
            [_model("none", seed + i, n_layers=layers, is_causal=True)(before)[:, -1:] for i in range(models)]
        )  # (models, 24, 1, vocab)
        moved = _share(last[:, 1:], last[:, :1])
        if layers == 1:
            measure_worst("position.last_of_one_layer", moved.amax(1))
        else:
            measure_mean(f"position.last_of_{name}_layers", moved.mean(1).tolist())


@torch.no_grad()
def _swapped(seed: int, models: int) -> None:
    """The verb's output in the two sentences, without positions."""
    both = torch.tensor([range(len(WORDS)), SWAPPED])
    outs = torch.stack([_model("none", seed + i)(both)[:, -1:] for i in range(models)])  # (models, 2, 1, vocab)
    measure_worst("position.verb_error", _share(outs[:, 1], outs[:, 0]))


@torch.no_grad()
def _backwards(seed: int, models: int) -> None:
    """The sentence read backwards, and the outputs turned round: without a mask, ALiBi does not notice."""
    both = torch.tensor([range(len(WORDS)), tuple(reversed(range(len(WORDS))))])
    for name in ("alibi", "rope"):
        moved = []
        for i in range(models):
            out = _model(name, seed + i)(both)
            moved.append(_share(out[1].flip(0), out[0]))
        if name == "alibi":
            measure_worst("position.alibi_backwards", torch.stack(moved))
        else:
            measure_mean("position.rope_backwards", moved)
