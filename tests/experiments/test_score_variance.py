"""The spread of q·k: grows with √d, is 1 after the division, and the experiment notices another division."""

import math

import pytest

from attnbook.experiments import score_variance
from attnbook.reference import attention


def test_scores_spread_with_the_square_root_of_d_and_with_1_after_the_division():
    """Unit-normal components: standard deviation √d, variance 1 after dividing."""
    found = score_variance.run(dims=(5, 23), pairs=500, repeats=11)
    for d in (5, 23):
        assert found[f"scaling.score_sd_{d}"] == pytest.approx(math.sqrt(d), rel=0.06)
        assert found[f"scaling.variance_per_d_{d}"] == pytest.approx(1, rel=0.12)
        assert found[f"scaling.divided_variance_{d}"] == pytest.approx(1, rel=0.12)


def test_the_ratio_of_two_weights_is_the_exponential_of_the_difference_of_their_scores():
    """Scores 8 and −8: e¹⁶."""
    assert score_variance.run(dims=(5,), pairs=3, repeats=2)["scaling.score_ratio"] == pytest.approx(math.e**16)


def test_a_score_is_read_from_attention_exactly():
    """One key: the log-sum-exp is the score, here 3·5 + 4·6 = 39, divided by √2 by default."""
    import torch

    q, k = torch.tensor([[[[3.0, 4.0]]]]), torch.tensor([[[[5.0, 6.0]]]])
    assert score_variance.scores(q, k, scale=1.0).item() == 39
    assert score_variance.scores(q, k, scale=None).item() == pytest.approx(39 / math.sqrt(2))


@pytest.mark.parametrize("wrong", [lambda d: 1.0, lambda d: 1 / d])
def test_an_attention_that_divides_by_something_else_is_noticed(monkeypatch, wrong):
    """No division, and division by d, leave another variance than 1."""

    def broken(q, k, v, *, scale, return_lse):
        return attention(q, k, v, scale=wrong(q.shape[-1]) if scale is None else scale, return_lse=return_lse)

    monkeypatch.setattr(score_variance, "attention", broken)
    found = score_variance.run(dims=(23,), pairs=500, repeats=11)
    assert not 0.5 < found["scaling.divided_variance_23"] < 2
