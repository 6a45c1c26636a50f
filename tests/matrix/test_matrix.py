"""Any two values of two axes meet in some case of the default run, and each of its cases is right and sees garbage."""

import itertools

import numpy as np
import pytest
import torch

from tests.matrix import __main__ as command
from tests.matrix import check as checking
from tests.matrix.axes import AXES, IMPLEMENTATIONS, LAYOUTS, OPTIONS, Case, exists, met, pairs, product
from tests.matrix.check import check
from tests.matrix.layouts import in_layout
from tests.matrix.problem import key_of, problem
from tests.matrix.work import failures


@pytest.mark.parametrize("case", pairs(), ids=str)
def test_a_case_is_right_and_would_see_garbage(case):
    """Output, lse and every gradient are within the tolerance that the data give, and garbage is not."""
    check(case, controls=True)


def test_every_pair_meets():
    """Nothing is left out by hand: what the list misses of all pairs is what does not exist."""
    met_ = set().union(*(met(case) for case in pairs()))
    for (a, first), (b, second) in itertools.combinations(enumerate(AXES), 2):
        for x, y in itertools.product(first, second):
            if ((a, x), (b, y)) not in met_:
                assert not [case for case in product() if case[a] == x and case[b] == y]


def test_the_list_is_the_same_every_time():
    """The default run is no lottery."""
    assert pairs() == pairs()


def test_what_does_not_exist_is_named():
    """NumPy without bfloat16, torch's function without softcap and sinks: nothing else is left out."""
    missing = {case for case in itertools.starmap(Case, itertools.product(*AXES)) if not exists(case)}
    assert {case.implementation for case in missing} == {"reference in NumPy", "door: sdpa"}
    assert {case.dtype for case in missing if case.implementation == "reference in NumPy"} == {"bfloat16"}
    options = {case.options for case in missing if case.implementation == "door: sdpa"}
    assert options == {
        name for name in OPTIONS if {"softcap", "sinks", "everything"} & set(name.replace(",", "").split())
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_keeps_the_numbers(layout):
    """Equal to the original and, but for the contiguous one, laid out otherwise in memory."""
    x = torch.randn(1, 3, 7, 5).expand(2, 3, 7, 5)
    laid = in_layout(x, layout)
    assert torch.equal(laid, x)
    other = {"contiguous": False, "offset": laid.storage_offset() == 1}.get(layout, not laid.is_contiguous())
    assert other == (layout != "contiguous")


BREAKS = {
    "output": lambda out, lse: (out * 1.01, lse),
    "a row that sees nothing": lambda out, lse: (torch.where(lse.isinf()[..., None], 1e-3, out), lse),
    "lse": lambda out, lse: (out, lse + 1e-3),
    "base of the logarithm": lambda out, lse: (out, lse / np.log(2)),
    "dtype of lse": lambda out, lse: (out, lse.double()),
    "dtype of out": lambda out, lse: (out.double(), lse),
    "gradient": lambda out, lse: (out + (out * 0.01 - (out * 0.01).detach()), lse),
    "gradient of lse": lambda out, lse: (out, lse.detach().requires_grad_()),
    "NaN": lambda out, lse: (torch.where(torch.arange(out.shape[-1]) == 0, torch.nan, out), lse),
}


@pytest.mark.parametrize("what", BREAKS)
def test_what_is_broken_is_found(what, monkeypatch):
    """The check can fail: a wrong output, lse, dtype or gradient is refused."""
    case = Case("reference", "empty rows, causal", "float32", "small", "grouped", "contiguous")
    check(case)
    run = checking.run
    monkeypatch.setattr(checking, "run", lambda *given: BREAKS[what](*run(*given)))
    with pytest.raises(AssertionError):
        check(case)


def test_one_key_that_is_dropped_is_found(monkeypatch):
    """Each tensor that is given matters: without it the case is wrong."""
    run = checking.run
    for options, name in (
        ("sinks", "sinks"),
        ("alibi", "alibi_slopes"),
        ("float mask", "mask"),
        ("empty rows", "mask"),
    ):
        case = Case("reference", options, "float32", "small", "grouped", "contiguous")

        def without(which, tensors, settings, name=name):
            return run(which, tensors | {name: None}, settings)

        monkeypatch.setattr(checking, "run", without)
        with pytest.raises((AssertionError, RuntimeError)):
            check(case)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_counts_and_fails(capsys, jobs):
    """`python -m tests.matrix` says how many were right and exits 1 where none was run; over processes too."""
    small = "reference | scale | float32 | small | grouped | offset"
    assert command.main(["--only", small, "--jobs", jobs]) == 0
    assert "1 of 1 right" in capsys.readouterr().out
    assert command.main(["--only", "no such case", "--jobs", jobs]) == 1


def test_a_failure_is_told_with_its_case(monkeypatch):
    """What goes wrong in one case is told, and the next goes on."""
    monkeypatch.setattr("tests.matrix.check.run", lambda *given: 1 / 0)
    cases = [case for case in pairs() if case.implementation == "reference"][:2]
    found = failures(cases)
    assert [case for case, _ in found] == cases
    assert found[0][1] == "ZeroDivisionError: division by zero"


def test_a_case_leaves_the_problem_as_it_was():
    """The inputs are worked out once for many cases: no case may leave its mark on them."""
    case = Case("reference", "alibi", "float32", "small", "grouped", "contiguous")
    check(case)
    assert not any(x.requires_grad for x in problem(*key_of(case)).tensors.values())
    check(case._replace(implementation="reference in NumPy"))


def test_the_problem_of_a_repeated_layout_is_repeated():
    """With expanded memory all sequences are the same, and the gradient from above is one number everywhere."""
    asked = problem(*key_of(Case(IMPLEMENTATIONS[1], "none", "float32", "small", "grouped", "expanded")))
    assert torch.equal(asked.q[0], asked.q[1])
    assert set(asked.d_out.stride()) == {0}
