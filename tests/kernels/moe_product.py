"""The experts' products and gradients: every dtype × shape × choice of experts × way the memory lies."""

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import torch

from attnbook.kernels import moe
from tests.kernels.device import DEVICE
from tests.kernels.moe_cases import NAMES, Poison, garbage, gradients, guarded, plain_gradients
from tests.tolerance import as_float64, assert_refuses, assert_right

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# (t, d, f, e, k): odd. "tiles" has more than one along every axis; the interpreter's have 64 rows and 128 columns.
SHAPES = {
    "small": (23, 7, 11, 5, 2),
    "tiles": (67, 131, 137, 3, 2),
    "one token": (1, 37, 41, 5, 2),
    "more experts than tokens": (3, 17, 67, 13, 2),
    "one expert": (29, 13, 17, 1, 1),
    "all experts": (19, 5, 3, 3, 3),
}
CHOICES = ("at random", "one gets all", "one gets none", "some dropped", "no experts")
LAYOUTS = ("contiguous", "transposed", "sliced", "of one matrix")


class Case(NamedTuple):
    """One cell of the product."""

    dtype: str
    shape: str
    choice: str
    layout: str

    def __str__(self) -> str:
        return "moe: " + " | ".join(self)


AXES = (tuple(DTYPES), tuple(SHAPES), CHOICES, LAYOUTS)


def cases() -> Iterator[Case]:
    """Every case there is."""
    return itertools.starmap(Case, itertools.product(*AXES))


def pairs(seed: int = 0) -> list[Case]:
    """Cases in which every two values of two axes meet: greedy, the same list for the same seed."""
    choose = random.Random(seed)
    missing = {pair for case in cases() for pair in met(case)}
    chosen: list[Case] = []
    while missing:
        best = max(choose.sample(list(cases()), 60), key=lambda case: len(missing & met(case)))
        missing -= met(best)
        chosen.append(best)
    return chosen


def met(case: Case) -> set[tuple]:
    """The pairs of values that meet in a case."""
    return set(itertools.combinations(enumerate(case), 2))


def check(case: Case) -> str | None:
    """What is wrong with a case; None where nothing is."""
    grad_y, inputs = made(case)
    kept = [a.clone() for a in (grad_y, *inputs)]
    with Poison() as poison:
        y = moe.experts_forward(*inputs)
        found = {"y": y} | dict(zip(NAMES, moe.experts_backward(grad_y, *inputs), strict=True))
    if not poison.untouched():
        return "a kernel wrote beside its memory"
    chosen = inputs[1]
    # With one slot a token, y has as many rows as there are assignments, and all are written.
    if chosen.shape[1] > 1 and poison.beyond(chosen.numel(), int((chosen >= 0).sum())):
        return "a kernel wrote a row that is no expert's"
    if not all(torch.equal(a, b) for a, b in zip(kept, (grad_y, *inputs), strict=True)):
        return "a kernel changed an input"

    dtype = DTYPES[case.dtype]
    exact = {name: as_float64(a.cpu()) for name, a in gradients(grad_y, torch.float64, *inputs).items()}
    plain = plain_gradients(exact, grad_y, dtype, *inputs)
    for name, got in found.items():
        wanted = torch.float32 if name == "weights" else dtype
        if got.dtype != wanted or not got.is_contiguous():
            return f"{name} has dtype {got.dtype} and strides {got.stride()}"
        try:
            assert_right(got.cpu().to(plain[name].dtype), exact[name], plain[name])
        except AssertionError as error:
            return f"{name}: {error}"
    # Another result is garbage only where it is another one; of the large shape `test_moe` asks for three cases.
    for wrong, of in garbage(grad_y, *inputs).items() if case.shape != "tiles" else ():
        for name, result in of.items():
            if abs(result - exact[name]).max(initial=0) > 0.05 * abs(exact[name]).max(initial=0):
                assert_refuses({f"{name}, {wrong}": result}, exact[name], plain[name])
    return None


def made(case: Case) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """grad_y, and (x, experts, weights, w_gate, w_up, w_down), between guards."""
    t, d, f, e, k = SHAPES[case.shape]
    draw = torch.Generator().manual_seed(7)

    def normal(*shape, size=1.0):
        return (torch.randn(*shape, generator=draw) * size).to(DTYPES[case.dtype])

    x, grad_y = normal(t, d), normal(t, d)
    gate, up, down = normal(e, d, f, size=d**-0.5), normal(e, d, f, size=d**-0.5), normal(e, f, d, size=f**-0.5)
    wanted = torch.rand(t, e, generator=draw)
    if case.choice == "one gets all":
        wanted[:, e // 2] += 1
    if case.choice == "one gets none":
        wanted[:, e // 2] -= 1
    experts = wanted.topk(k).indices
    if case.choice == "one gets none":
        experts[experts == e // 2] = moe.NOBODY  # also where there is no other to go to
    if case.choice == "some dropped":
        experts[torch.rand(t, k, generator=draw) < 0.4] = moe.NOBODY
    if case.choice == "no experts":
        experts[:] = moe.NOBODY
    weights = torch.rand(t, k, generator=draw) + 0.1
    gate, up, down = laid_out(case.layout, gate, up, down)
    return guarded(grad_y), [guarded(x), guarded(experts, 0), guarded(weights), gate, up, down]


def laid_out(layout: str, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> list[torch.Tensor]:
    """The same matrices in other memory; what lies between their numbers is NaN."""
    if layout == "transposed":  # as nn.Linear has them
        return [guarded(w.mT.contiguous()).mT for w in (gate, up, down)]
    if layout == "sliced":
        return [sliced(w) for w in (gate, up, down)]
    if layout == "of one matrix":  # gate and up side by side, as many models store them
        both = guarded(torch.cat([gate, up], -1))
        return [both[..., : gate.shape[-1]], both[..., gate.shape[-1] :], guarded(down)]
    return [guarded(w) for w in (gate, up, down)]


def sliced(w: torch.Tensor) -> torch.Tensor:
    """Every other column of every other row."""
    wide = torch.full((w.shape[0], 2 * w.shape[1], 2 * w.shape[2]), torch.nan, dtype=w.dtype, device=DEVICE)
    wide[:, ::2, ::2] = w
    return wide[:, ::2, ::2]
