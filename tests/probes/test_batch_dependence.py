"""A sequence's answer is its own: quiet where it is, loud where neighbours or the batch's size reach it."""

import pytest
import torch
from torch import nn

from attnbook.errors import ShapeError
from attnbook.probes import batch_dependence
from attnbook.reference import attention

T = 7


@pytest.fixture
def x():
    """Three sequences of 7 vectors."""
    return torch.randn(3, T, 5, generator=torch.Generator().manual_seed(4))


def attend(x):
    return attention(x[:, None], x[:, None], x[:, None], is_causal=True)[:, 0]


def norm(*, training):
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(5)
    layer.train(training)
    return lambda x: layer(x.mT.float()).mT.to(x)


def crowded(x):
    """Two places for all sequences together: who comes later gets nothing, as with experts of fixed capacity."""
    wants = (x[:, 0, 0] > -10).cumsum(0) <= 2
    return x * wants[:, None, None]


def by_size(x):
    """Something that a batch of one does otherwise."""
    return attend(x) * (1.01 if len(x) == 1 else 1.0)


OWN = {
    "attention": attend,
    "one vector a sequence": lambda x: x.sum(1),
    "BatchNorm in evaluation mode": norm(training=False),
    "a matrix product": lambda x: x @ x.mT,
}
SHARED = {
    "BatchNorm in training mode": norm(training=True),
    "minus the mean of the batch": lambda x: x - x.mean(0),
    "a softmax over the batch": lambda x: x.softmax(0),
    "b and t mixed": lambda x: x.transpose(0, 1).reshape(x.shape),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OWN)
def test_own_answers_pass(x, name, dtype):
    """The report says how far outputs moved all the same."""
    report = batch_dependence(OWN[name], x.to(dtype))
    assert report.ok, report
    assert report.checked.startswith("3 sequences; with other neighbours outputs moved by at most 0, alone by ")


@pytest.mark.parametrize("name", SHARED)
def test_neighbours_that_are_heard(x, name):
    """Each sequence that moved is a finding."""
    report = batch_dependence(SHARED[name], x)
    assert not report.ok
    assert {finding.kind for finding in report.findings} == {"neighbours"}
    assert str(report).splitlines()[-1].startswith("  look at: norms over the batch")


def test_the_place_in_the_batch_shows_only_alone(x):
    """The third comes too late, whoever the others are; alone it comes in time."""
    report = batch_dependence(crowded, x)
    assert [(finding.kind, finding.output) for finding in report.findings] == [("size", 2)]


def test_a_size_that_matters(x):
    """Above rounding it is a finding, which a wider tolerance takes away."""
    report = batch_dependence(by_size, x)
    assert [finding.kind for finding in report.findings] == ["size"] * 3
    assert " was read alone: more than rounding (" in report.findings[0].text
    assert batch_dependence(by_size, x, tolerance=1.0).ok


def test_one_sequence_that_listens(x):
    """Only the second hears the last; the others are not accused."""

    def fn(x):
        y = attend(x)
        y[1:2] += x[-1:] * (len(x) > 1)
        return y

    report = batch_dependence(fn, x)
    assert {finding.output for finding in report.findings if finding.kind == "neighbours"} == {1}


def test_dropout_is_told_apart(x):
    """It would look like everything at once."""
    report = batch_dependence(nn.Dropout(0.5), x)
    assert [finding.kind for finding in report.findings] == ["not repeatable"]


def test_errors_name_what_came(x):
    """Too few sequences, all the same, another number of them."""
    with pytest.raises(ShapeError, match=r"^x has shape \(1, 7, 5\): expected \(b, \.\.\.\) with b at least 2$"):
        batch_dependence(attend, x[:1])
    with pytest.raises(ValueError, match=r"^x holds the same sequence 3 times: expected others"):
        batch_dependence(attend, x[:1].expand(3, -1, -1))
    with pytest.raises(
        ShapeError, match=r"^fn returned shape \(1, 5\): expected a tensor \(b, \.\.\.\) with b = \(3,\)$"
    ):
        batch_dependence(lambda x: x.sum(1)[:1], x)
