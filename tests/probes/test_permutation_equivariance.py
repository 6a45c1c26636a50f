"""What knows no order passes, and every way to know it is found."""

import pytest
import torch

from attnbook.errors import ShapeError
from attnbook.probes import permutation_equivariance
from attnbook.reference import attention, rope, sinusoidal_positions

T = 11


@pytest.fixture
def x():
    """Three sequences of 11 vectors."""
    return torch.randn(3, T, 6, generator=torch.Generator().manual_seed(2))


def attend(x, **options):
    return attention(x[:, None], x[:, None], x[:, None], **options)[:, 0]


def turned(x):
    y = rope(x[:, None], torch.arange(T))
    return attention(y, y, x[:, None])[:, 0]


EQUIVARIANT = {
    "attention": attend,
    "per token": torch.tanh,
    "minus the mean over time": lambda x: x - x.mean(1, keepdim=True),
    "a tuple": lambda x: (attend(x), None),
}
ORDERED = {
    "positions added": lambda x: attend(x + sinusoidal_positions(T, 6, like=x)),
    "rope": turned,
    "alibi": lambda x: attend(x, alibi_slopes=torch.full((1,), 0.5, dtype=x.dtype)),
    "a causal mask alone": lambda x: attend(x, is_causal=True),
    "a window": lambda x: attend(x, is_causal=True, window=3),
    "the first position only": lambda x: torch.cat([x[:, :1] * 2, x[:, 1:]], 1),
    "two neighbours changed places": lambda x: torch.cat([x[:, :4], x[:, 5:6], x[:, 4:5], x[:, 6:]], 1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", EQUIVARIANT)
def test_no_order_passes(x, name, dtype):
    """What moved is rounding, and the report says how much it was."""
    report = permutation_equivariance(EQUIVARIANT[name], x.to(dtype))
    assert report.ok, report
    assert report.checked.startswith("5 permutations of 11 positions, largest difference ")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ORDERED)
def test_order_is_found(x, name, dtype):
    """In every dtype, with a place to look at."""
    report = permutation_equivariance(ORDERED[name], x.to(dtype))
    assert not report.ok
    assert {finding.kind for finding in report.findings} == {"order"}
    assert str(report).splitlines()[-1].startswith("  look at: what knows the order")


def test_a_finding_says_who_moved_and_whither(x):
    """The output of a position, and where it was read instead."""
    report = permutation_equivariance(ORDERED["the first position only"], x)
    assert 0 in [finding.output for finding in report.findings]
    finding = next(finding for finding in report.findings if finding.output == 0)
    assert finding.input != 0
    assert finding.text.startswith("the output of position 0 moved by ")
    assert finding.text.endswith(f" when it was read at position {finding.input}")


def test_every_position_leaves_its_place():
    """So one draw is enough for an fn that treats one position in its own way."""
    seen = []

    def fn(x):
        seen.append(x)
        return x

    x = torch.arange(T, dtype=torch.float64)[None, :, None]
    assert permutation_equivariance(fn, x, draws=3).ok
    for permuted in seen[3:]:  # after two calls as it is, and the reversal, whose middle stays
        assert (permuted != x).all()


def test_what_makes_it_worthless_is_a_finding(x):
    """Dropout, and NaN."""
    noisy = permutation_equivariance(lambda x: x + torch.rand_like(x), x)
    assert [finding.kind for finding in noisy.findings] == ["not repeatable"]
    nan = permutation_equivariance(lambda x: x * torch.nan, x)
    assert [finding.kind for finding in nan.findings] == ["nan"]


def test_errors_name_what_came(x):
    """Shapes and draws."""
    with pytest.raises(ShapeError, match=r"^x has shape \(3, 1, 6\): expected \(b, t, \.\.\.\) with t at least 2$"):
        permutation_equivariance(attend, x[:, :1])
    with pytest.raises(ShapeError, match=r"^fn returned shape \(3, 1, 6\): expected a tensor \(b, t, \.\.\.\)"):
        permutation_equivariance(lambda x: x[:, :1], x)
    with pytest.raises(ValueError, match=r"^draws is 0: expected at least 1$"):
        permutation_equivariance(attend, x, draws=0)
