"""What the tests of the mixture of experts share: inputs between guards, poisoned outputs, the definition, garbage."""

import numpy as np
import torch

from attnbook.kernels import outputs
from tests.kernels.device import DEVICE
from tests.tolerance import as_float64, worst

GUARD = 64
"""Elements before and behind everything that a kernel may touch; a multiple of 16 bytes."""

NAMES = ("x", "weights", "w_gate", "w_up", "w_down")
"""The inputs with gradients, in the order in which `experts_backward` returns them."""


def guarded(x, fill=torch.nan):
    """The same numbers as a view into a longer piece of memory that is otherwise `fill`; contiguous."""
    memory = torch.full((x.numel() + 2 * GUARD,), fill, dtype=x.dtype, device=DEVICE)
    view = memory[GUARD : GUARD + x.numel()].view(x.shape)
    view.copy_(x)
    return view


class Poison:
    """Stands in for `outputs.empty`: NaN wherever no kernel wrote, and guards that show a write beside the memory."""

    def __init__(self):
        self.memory = []

    def empty(self, shape, like, dtype=None):
        """Memory of this shape filled with NaN, whole numbers with 0, in the midst of more of the same.

        0 is a token and an assignment that exist: who reads a number that is undefined gets finite ones, and where it
        writes those shows.
        """
        dtype = like.dtype if dtype is None else dtype
        fill = torch.nan if dtype.is_floating_point else 0
        size = int(np.prod(shape))
        memory = torch.full((size + 2 * GUARD,), fill, dtype=dtype, device=like.device)
        self.memory.append((memory, tuple(shape)))
        return memory[GUARD : GUARD + size].view(shape)

    def untouched(self):
        """Are all guards as they were?"""
        ends = [end for memory, _ in self.memory for end in (memory[:GUARD], memory[-GUARD:])]
        return all(bool((end.isnan() if end.dtype.is_floating_point else end == 0).all()) for end in ends)

    def beyond(self, n, kept):
        """Was a row written, of a matrix with one for each of n assignments, behind those that are not dropped?"""
        rows = [memory for memory, shape in self.memory if len(shape) == 2 and shape[0] == n]
        return any(not bool(memory[GUARD:-GUARD].view(n, -1)[kept:].isnan().all()) for memory in rows)

    def __enter__(self):
        self.real, outputs.empty = outputs.empty, self.empty
        return self

    def __exit__(self, *_):
        outputs.empty = self.real


def definition(x, experts, weights, w_gate, w_up, w_down, *, swap=False, turn=0, backwards=False):
    """y by the definition, expert by expert, every step in the dtype of x; differentiable in all but `experts`.

    `swap` exchanges gate and up, `turn` gives each expert's tokens to another one: garbage for the controls.
    `backwards` adds in the other order, over tokens as over components.
    """
    y = torch.zeros_like(x)
    n_experts = w_gate.shape[0]
    for e in range(n_experts):
        row, slot = torch.where(experts == e)
        gate, up, down = (w[(e + turn) % n_experts] for w in (w_gate, w_up, w_down))
        gate, up = (up, gate) if swap else (gate, up)
        if backwards:
            row, slot = row.flip(0), slot.flip(0)
        z, more = _product(x[row], gate, backwards), _product(x[row], up, backwards)
        out = _product(z * torch.sigmoid(z) * more, down, backwards)
        y = y.index_add(0, row, weights[row, slot, None].to(x.dtype) * out)
    return y


def _product(a, b, backwards):
    """The product a @ b, the sums in the other order for `backwards`."""
    return a.flip(-1) @ b.flip(-2) if backwards else a @ b


def plain_gradients(right, grad_y, dtype, *inputs):
    """As `gradients`, for each the worse of two orders of summation: one lucky rounding is not the measure.

    right: what they are in float64, by name. Three tokens leave a sum of two or three numbers, whose error in one order
    may be much less than in the other.
    """
    ways = [
        {name: a.cpu() for name, a in gradients(grad_y, dtype, *inputs, backwards=b).items()} for b in (False, True)
    ]
    return {name: worst(right[name], *(way[name] for way in ways)) for name in ways[0]}


def gradients(grad_y, dtype, x, experts, weights, w_gate, w_up, w_down, **garbage):
    """Y and its gradients by name, of the definition, every step in this dtype."""
    given = dict(zip(NAMES, (x, weights, w_gate, w_up, w_down), strict=True))
    leaves = {name: a.detach().to(dtype).requires_grad_() for name, a in given.items()}
    x, weights, *matrices = leaves.values()
    y = definition(x, experts, weights, *matrices, **garbage)
    found = torch.autograd.grad((y * grad_y.to(dtype)).sum(), list(leaves.values()), allow_unused=True)
    zeros = (torch.zeros_like(a) if g is None else g for g, a in zip(found, leaves.values(), strict=True))
    return {"y": y.detach()} | dict(zip(leaves, zeros, strict=True))


def garbage(grad_y, *inputs):
    """Wrong results by name, each a dict as from `gradients`, in float64."""
    x, experts, weights, *matrices = inputs
    mean = weights.double().mean(1, keepdim=True).expand_as(weights)
    wrong = {
        "gate and up swapped": gradients(grad_y, torch.float64, *inputs, swap=True),
        "experts permuted": gradients(grad_y, torch.float64, *inputs, turn=1),
        "mean weights": gradients(grad_y, torch.float64, x, experts, mean, *matrices),
        "weights of the next slot": gradients(grad_y, torch.float64, x, experts, weights.roll(1, 1), *matrices),
        "weights as large again": gradients(grad_y, torch.float64, x, experts, 2 * weights, *matrices),
        "nothing dropped": gradients(grad_y, torch.float64, x, experts.clamp(min=0), weights, *matrices),
        "the last token forgotten": gradients(
            grad_y, torch.float64, x, torch.cat([experts[:-1], torch.full_like(experts[-1:], -1)]), weights, *matrices
        ),
    }
    return {name: {of: as_float64(a.cpu()) for of, a in result.items()} for name, result in wrong.items()}
