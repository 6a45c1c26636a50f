"""The gradient that reaches queries and keys: larger on average without the division, but for few of them."""

import pytest
import torch

from attnbook.experiments import gradient_reach
from attnbook.reference import attention


@pytest.fixture(scope="module")
def found():
    return gradient_reach.run(dims=(16, 256), sequences=48)


def test_the_mean_gradient_does_not_vanish_without_the_division(found):
    """It is larger at every d, for queries and for keys."""
    assert found["scaling.grad_mean_larger_plain"] is True
    assert found["scaling.grad_k_mean_larger_plain"] is True


def test_without_the_division_the_gradient_gathers_in_few_queries_as_d_grows(found):
    """More queries are forgotten, and the best served tenth takes a larger share."""
    for what in ("forgotten", "top_tenth"):
        assert found[f"scaling.grad_{what}_plain_d256"] > 1.5 * found[f"scaling.grad_{what}_plain_d16"]
    assert found["scaling.grad_median_plain_d256"] < 0.3 * found["scaling.grad_median_plain_d16"]


def test_with_the_division_no_query_is_forgotten_and_the_share_stays(found):
    """Equal shares would give the best tenth 10 %; it gets less than 25 %."""
    assert found["scaling.no_divided_query_forgotten"] is True
    assert 0.1 < found["scaling.grad_top_tenth_divided_d256"] < 0.25
    assert found["scaling.top_tenth_moves_divided"] < 5


def test_the_gradient_is_the_formula_of_the_chapter():
    """∂L/∂q = c Kᵀ J V g, for one query."""
    generator = torch.Generator().manual_seed(1)
    q, k, v, g = (torch.randn(1, 1, t, 5, generator=generator) for t in (1, 7, 7, 1))
    w = (q @ k.mT / 5**0.5).softmax(-1)[0, 0, 0]
    jacobian = torch.diag(w) - torch.outer(w, w)
    expected = k[0, 0].T @ jacobian @ v[0, 0] @ g[0, 0, 0] / 5**0.5
    to_q, _ = gradient_reach.gradients(q, k, v, g, divided=True)
    assert to_q.item() == pytest.approx(expected.norm().item(), rel=1e-5)


def test_an_attention_without_the_division_is_noticed(monkeypatch):
    """The same gradient with and without: neither is larger."""
    monkeypatch.setattr(gradient_reach, "attention", lambda q, k, v, *, scale: attention(q, k, v, scale=1.0))
    assert gradient_reach.run(dims=(16,), sequences=8)["scaling.grad_mean_larger_plain"] is False
