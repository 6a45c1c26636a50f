"""The leak probe is quiet on causal functions and loud on every way that we know of seeing the future."""

import pytest
import torch
from torch import nn

from attnbook.errors import ShapeError
from attnbook.probes import causal_leak
from attnbook.reference import attention, causal_mask, softmax

T = 7


@pytest.fixture
def x():
    """Two sequences of 7 vectors."""
    return torch.randn(2, T, 5, generator=torch.Generator().manual_seed(0))


def attend(mask, *, late=False):
    """Self-attention of x with itself under a boolean mask (True = may attend), before or after softmax."""

    def fn(x):
        if late:
            return softmax(x @ x.mT / x.shape[-1] ** 0.5) * mask @ x
        return attention(x[:, None], x[:, None], x[:, None], mask=mask)[:, 0]

    return fn


CAUSAL = causal_mask(T, like=torch.zeros(1))
LEAKS = {
    "no mask": attend(torch.ones(T, T, dtype=torch.bool)),
    "one key too many": attend(CAUSAL.roll(-1, 0) | CAUSAL),
    "inverted: True meant drop": attend(~CAUSAL),
    "triu with True = drop, where True = keep": attend(torch.ones(T, T, dtype=torch.bool).triu(1)),
    "multiplied by 0 after softmax": attend(CAUSAL, late=True),
    "mean over time": lambda x: x - x.mean(1, keepdim=True),
    "running in reverse": lambda x: x.flip(1).cumsum(1).flip(1),
}
CAUSALS = {
    "attention": attend(CAUSAL),
    "strictly causal": attend(CAUSAL & ~torch.eye(T, dtype=torch.bool)),
    "cumulative sum": lambda x: x.cumsum(1),
    "per token": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "delayed": lambda x: torch.cat([x[:, :1] * 0, x[:, :-1]], dim=1),
}


@pytest.mark.parametrize("name", CAUSALS)
def test_causal_functions_pass(x, name):
    """Nothing is found, and the report says what was done."""
    report = causal_leak(CAUSALS[name], x)
    assert report.ok
    assert report.findings == ()
    assert str(report) == "causal leak: ok (7 of 7 positions changed 2 times, tolerance 0)"


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_found(x, name):
    """Each finding is an output and a later input."""
    report = causal_leak(LEAKS[name], x)
    assert not report.ok
    assert all(finding.kind == "leak" and finding.output < finding.input for finding in report.findings)
    assert "FOUND" in str(report)


def test_an_off_by_one_is_seen_as_one_ahead(x):
    """Every output but the last sees exactly one position ahead, and the text says so."""
    report = causal_leak(LEAKS["one key too many"], x)
    assert [(f.output, f.input) for f in report.findings] == [(i, i + 1) for i in range(T - 1)]
    assert str(report.findings[2]).startswith("output 2 moved by ")
    assert str(report.findings[2]).endswith(" when only input 3 changed: it sees 1 ahead")
    assert str(report).splitlines()[-2] == "  and 1 more"
    assert str(report).splitlines()[-1].startswith("  look at: the mask")


def test_a_leak_to_one_position_only(x):
    """The last input reaching the first output is found, and missed where that input is not tried."""

    def fn(x):
        y = x.clone()
        y[:, 0] += x[:, -1]
        return y

    report = causal_leak(fn, x)
    assert [(f.output, f.input) for f in report.findings] == [(0, T - 1)]
    assert causal_leak(fn, x, positions=range(T - 1)).ok


def test_a_leak_between_sequences_of_a_batch_is_a_leak_too(x):
    """Statistics over the batch in training mode carry the future."""
    norm = nn.BatchNorm1d(5)
    assert not causal_leak(lambda x: norm(x.mT).mT, x).ok
    norm.eval()
    assert causal_leak(lambda x: norm(x.mT).mT, x).ok


def test_tokens():
    """Integer inputs are replaced by other tokens of the vocabulary, never by themselves."""
    seen = []
    table = torch.randn(11, 3, generator=torch.Generator().manual_seed(1))

    def fn(tokens):
        seen.append(tokens)
        return table[tokens].cumsum(1)

    tokens = torch.tensor([[0, 1, 10], [3, 3, 3]])
    assert causal_leak(fn, tokens, draws=5).ok
    for changed in seen[2:]:
        assert (changed != tokens).sum() == 2  # the position that was changed, in both sequences
        assert changed.max() < 11
    assert not causal_leak(lambda tokens: table[tokens].flip(1).cumsum(1).flip(1), tokens).ok


def test_tokens_without_an_alternative():
    """Only token 0: the error says what to pass."""
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"^x holds 1 kind of token: pass vocabulary= at least 2"):
        causal_leak(lambda x: x, tokens)
    assert causal_leak(lambda x: x, tokens, vocabulary=2).ok


def test_constant_input_is_still_changed():
    """x of equal numbers has no spread; the step is 1 then."""
    assert causal_leak(lambda x: x.cumsum(1), torch.zeros(1, 3, 2)).ok
    assert not causal_leak(lambda x: x.flip(1).cumsum(1), torch.zeros(1, 3, 2)).ok


def test_a_random_function_cannot_be_judged(x):
    """Dropout left on: said so, instead of hundreds of leaks."""
    report = causal_leak(nn.Dropout(0.5), x)
    assert [f.kind for f in report.findings] == ["not repeatable"]
    assert str(report.findings[0]).endswith(": switch off dropout, fn.eval()")


def test_nan_is_found_before_and_after(x):
    """NaN at the start can't be judged; NaN that the future brings is a leak."""
    report = causal_leak(lambda x: x / (x[:, :1] * 0), x * 0)
    assert [f.kind for f in report.findings] == ["nan"]

    def fn(x):
        return torch.where(x[:, -1:] > 1e6, torch.nan, x)

    x[:, -1] = 1e6
    report = causal_leak(fn, x, draws=5)
    assert {f.kind for f in report.findings} == {"leak"}
    assert report.findings[0].amount == torch.inf


def test_a_function_that_ignores_its_input_does_not_pass(x):
    """Nothing moves, so nothing was tested."""
    report = causal_leak(torch.zeros_like, x)
    assert [f.kind for f in report.findings] == ["unreached"]


def test_the_input_is_left_alone(x):
    """fn may write into what it gets; x stays."""
    before = x.clone()
    causal_leak(lambda x: x.mul_(2), x)
    assert torch.equal(x, before)


def test_parameters(x):
    """Tolerance lets small leaks pass, seed changes amounts, draws the number of calls, positions the places."""
    calls = []

    def slight(x):
        calls.append(x)
        return x + 1e-3 * x.mean(1, keepdim=True)

    assert not causal_leak(slight, x, tolerance=1e-5).ok
    assert len(calls) == 2 + 2 * T
    assert causal_leak(slight, x, tolerance=1.0).ok
    assert causal_leak(slight, x, seed=1).findings[0].amount != causal_leak(slight, x).findings[0].amount
    calls.clear()
    assert {f.input for f in causal_leak(slight, x, draws=3, positions=[5]).findings} == {5}
    assert len(calls) == 2 + 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes(x, dtype):
    """The dtype of x is what fn gets."""
    assert causal_leak(CAUSALS["attention"], x.to(dtype)).ok
    assert not causal_leak(LEAKS["no mask"], x.to(dtype)).ok


def test_errors_name_what_came(x):
    """Shapes, positions and draws."""
    with pytest.raises(ShapeError, match=r"^x has shape \(3,\): expected \(b, t, \.\.\.\) with t at least 1$"):
        causal_leak(lambda x: x, torch.zeros(3))
    with pytest.raises(ShapeError, match=r"^fn returned shape \(2, 6, 5\): expected .* \(b, t\) = \(2, 7\)$"):
        causal_leak(lambda x: x[:, 1:], x)
    with pytest.raises(ShapeError, match=r"^fn returned dict: expected a tensor"):
        causal_leak(lambda x: {"out": x}, x)
    for bad in ({"positions": [7]}, {"positions": []}, {"positions": [-1]}, {"draws": 0}):
        with pytest.raises(ValueError, match=r"expected positions from 0 to 6 and at least 1 draw$"):
            causal_leak(lambda x: x, x, **bad)


def test_sums_in_another_order_are_no_leak(x):
    """Moved by a rounding everywhere: told, and no finding; a little more is one, and so is a tolerance of 0."""

    def fn(x, step=2.0**-23):
        y = x.cumsum(1)
        return y * (1 + step * (x[:, -1:, :1] > 0))

    report = causal_leak(fn, x, draws=8)
    assert report.ok
    assert report.checked.endswith(", which is rounding")
    assert not causal_leak(fn, x, draws=8, tolerance=0.0).ok
    assert not causal_leak(lambda x: fn(x, step=2.0**-16), x, draws=8).ok
