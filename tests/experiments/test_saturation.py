"""The largest weight of a row and the Jacobian beside it, with and without the division by √d."""

import pytest
import torch

import attnbook
from attnbook.experiments import saturation
from attnbook.reference import attention


@pytest.fixture(scope="module")
def found():
    return saturation.run(sequences=((16, 64), (128, 16)), dims=(16, 64, 256))


def test_without_the_division_the_share_of_saturated_rows_grows_with_d(found):
    """And with it no row is saturated."""
    shares = [found[f"scaling.saturated_plain_n16_d{d}"] for d in (16, 64, 256)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.4 > shares[0]
    assert found["scaling.no_divided_row_saturates"] is True


def test_with_the_division_nothing_depends_on_d(found):
    """Largest weight and Jacobian stay within a few per cent while d grows 16 times."""
    for what in ("max_weight", "jacobian"):
        values = [found[f"scaling.{what}_divided_n128_d{d}"] for d in (16, 64, 256)]
        assert max(values) < 1.08 * min(values)


def test_which_jacobian_is_larger_turns_round_when_keys_are_many(found):
    """16 keys: larger with the division. 128 keys: larger without."""
    assert found["scaling.jacobian_reverses"] is True
    assert found["scaling.share_matters_more"] is True
    assert found["scaling.jacobian_falls_with_d"] is True


def test_the_norm_is_that_of_the_jacobian_autograd_finds():
    """The closed formula against the matrix itself, row by row."""
    score = torch.randn(3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    for row, norm in zip(score, saturation.jacobian_norm(attnbook.softmax(score)), strict=True):
        matrix = torch.autograd.functional.jacobian(attnbook.softmax, row)
        assert norm.item() == pytest.approx(matrix.norm().item(), rel=1e-12)


def test_the_bound_on_the_jacobian_is_not_void(found):
    """It holds for every row, and a bound half as large would not."""
    assert found["scaling.jacobian_below_twice_the_rest"] is True
    top, norm = (found.data[name][16, 256, False] for name in ("largest", "jacobian"))
    assert not (norm <= 1 - top).all()


@pytest.mark.parametrize("wrong", [1.0, 1 / 64])
def test_an_attention_that_divides_by_something_else_is_noticed(monkeypatch, wrong):
    """The mean of the largest weight at n = 16, d = 64 leaves 0.24 to 0.25."""

    def broken(q, k, v, *, scale):
        return attention(q, k, v, scale=wrong if scale is None else scale)

    monkeypatch.setattr(saturation, "attention", broken)
    q = torch.randn(32, 1, 32, 64, generator=torch.Generator().manual_seed(1))
    k = torch.randn(32, 1, 16, 64, generator=torch.Generator().manual_seed(2))
    assert not 0.2 < saturation.weights(q, k, divided=True).amax(-1).mean() < 0.3
