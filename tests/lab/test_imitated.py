"""Mistakes with several imitations: when a function counts as imitated, and which input then shows it."""

import numpy as np
import pytest

from attnbook.lab.imitated import CLOSE, agrees, any_of, first_failure, imitates
from attnbook.lab.step import Case, Failure, Outcome


class Done:
    """A reader's function that has been called on one number a case."""

    def __init__(self, function, *arguments):
        self.cases = tuple(Case((np.array([float(a)]),), ("x",)) for a in arguments)
        self.outcomes = tuple(Outcome(np.asarray(function(*case.arguments))) for case in self.cases)

    def call(self, *arguments):
        raise AssertionError("nothing is called again")


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ([100.0, 0.0], [100.0, 0.9 * 100 * CLOSE], True),
        ([100.0, 0.0], [100.0, 1.1 * 100 * CLOSE], False),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [np.nan, 1.0], False),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([[1.0]], [1.0], False),
        ([1.0 + 0j], [1.0], False),
        ([0.0], [0.0], True),
    ],
)
def test_what_counts_as_the_same(got, expected, same):
    """Close as a share of the largest entry, the same shape, NaN and infinities in the same places; never complex."""
    assert agrees(Outcome(np.array(got)), np.array(expected)) is same


def test_a_failure_agrees_with_nothing():
    """Neither with a number nor with NaN."""
    assert not agrees(Outcome(failure=Failure("none")), np.array([np.nan]))


def test_an_imitation_holds_on_every_case():
    """One case that differs is enough, and so is one that was not reached."""
    doubled = Done(lambda x: 2 * x, 1, 2)
    assert imitates(doubled, lambda x: 2 * x)
    assert not imitates(doubled, lambda x: x + 1)  # the same for 1
    doubled.outcomes = doubled.outcomes[:1]
    assert not imitates(doubled, lambda x: 2 * x)


def test_any_of_several_is_the_mistake_and_the_first_failure_shows_it():
    """The case at which the mistake makes no difference is not shown."""
    squared = Done(lambda x: x * x, 1, 3)
    found = any_of("squared", lambda x: x, [lambda x: 2 * x, lambda x: x**2]).see(squared)
    assert found.case is squared.cases[1]
    assert (found.expected, found.outcome.value) == (3, 9)
    assert any_of("doubled", lambda x: x, [lambda x: 2 * x]).see(squared) is None
    assert first_failure(squared, lambda x: x * x) is None
