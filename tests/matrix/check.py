"""One case of the matrix: the call, and the verdict on output, lse and every gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.matrix.axes import Case
from tests.matrix.implementations import run
from tests.matrix.layouts import in_layout
from tests.matrix.problem import Problem, Truth, key_of, problem, truth
from tests.tolerance import as_float64, assert_refuses, assert_right, garbage


def wide(case: Case) -> float:
    """How many times the error of a plain calculation the whole product allows, instead of twice.

    It compares some 300 000 tensors, and in float32 and float64 the gradients of torch's own kernel are up to three
    times as wrong as plain ones: twice would fail a few hundred cases that nothing is wrong with. The controls show
    that garbage is refused even so.
    """
    return 4 if case.dtype in ("float32", "float64") else 2


def check(case: Case, *, controls: bool = False, times: float = 2) -> None:
    """Fails with an AssertionError unless the case is right; with controls also unless garbage would be refused."""
    asked, known = problem(*key_of(case)), truth(*key_of(case))
    # Detached, because a layout may be the very tensor, which other cases ask about too.
    given = {name: in_layout(x, case.layout).detach() for name, x in asked.tensors.items()}
    if case.implementation == "reference in NumPy":
        arrays = {name: x.numpy() for name, x in given.items()}
        out, lse = run(case.implementation, arrays, asked.settings)
        check_values(case, torch.from_numpy(out), torch.from_numpy(lse), known, times)
    else:
        leaves = {name: x.requires_grad_(x.dtype != torch.bool) for name, x in given.items()}
        out, lse = run(case.implementation, leaves, asked.settings)
        check_values(case, out.detach(), None if lse is None else lse.detach(), known, times)
        check_gradients(case, out, lse, leaves, asked, known, times)
    if controls and 0 not in out.shape:
        wrong = garbage(asked.q, asked.k, asked.v, **asked.oracle)
        assert_refuses(wrong, known.right["out"], known.baseline["out"], times=wide(case))


def check_values(case: Case, out: torch.Tensor, lse: torch.Tensor | None, known: Truth, times: float) -> None:
    """Output and lse are right and of the right dtype; rows that see nothing are 0 and −inf."""
    assert str(out.dtype) == f"torch.{case.dtype}", f"out has dtype {out.dtype}"
    assert_right(out, known.right["out"], known.baseline["out"], times=times)
    finite = np.isfinite(known.right["lse"])
    assert (as_float64(out)[~finite] == 0).all(), "a row that sees nothing is not 0"
    if lse is not None:
        assert lse.dtype == (torch.float64 if case.dtype == "float64" else torch.float32), f"lse has dtype {lse.dtype}"
        assert (as_float64(lse)[~finite] == -np.inf).all(), "the lse of a row that sees nothing is not −inf"
        right, baseline = known.right["lse"][finite], as_float64(known.baseline["lse"])[finite]
        assert_right(lse[torch.from_numpy(finite)], right, baseline, roundings=2, times=times)


def check_gradients(
    case: Case,
    out: torch.Tensor,
    lse: Any,
    leaves: dict[str, torch.Tensor],
    asked: Problem,
    known: Truth,
    times: float,
) -> None:
    """The gradient of every floating input is right and has its dtype."""
    total = (out * in_layout(asked.d_out, case.layout)).sum()
    if lse is not None:
        total = total + (torch.where(lse.isfinite(), lse, 0.0) * asked.d_lse).sum()
    wanted = {name: x for name, x in leaves.items() if x.requires_grad}
    gradients = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
    for (name, x), gradient in zip(wanted.items(), gradients, strict=True):
        expected = "d bias" if name == "mask" else f"d {name}"
        if gradient is None and not known.right[expected].any():
            continue  # where nothing is seen, nothing need be connected
        assert gradient is not None, f"no gradient reaches {name}"
        assert gradient.dtype == x.dtype, f"the gradient of {name} has dtype {gradient.dtype}"
        try:
            assert_right(gradient, known.right[expected], known.baseline[expected], times=times)
        except AssertionError as error:
            raise AssertionError(f"gradient of {name}: {error}") from None
