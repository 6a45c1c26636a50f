"""A trained model's scores: what the experiments read is what its attention uses, and wrong readings are seen."""

from __future__ import annotations

import pytest
import torch

from attnbook.experiments import smollm2_overflow, smollm2_scores
from attnbook.experiments._smollm2 import model
from attnbook.experiments.smollm2_scores import dot_products, visible

TEXT = "Water, flour, salt and time: wait an hour."


@pytest.fixture(scope="module")
def products() -> torch.Tensor:
    return dot_products(model(), TEXT)


def test_the_products_are_those_of_the_attention(products: torch.Tensor):
    """Divided, masked and through softmax they are the weights that the model's own attention gives."""
    weights = model().attention_weights(torch.tensor(model().tokenizer.encode(TEXT)))

    def off(scale: float, keys: torch.Tensor) -> float:
        score = (keys * scale).masked_fill(~visible(keys), -torch.inf)
        return float((score.softmax(-1) - weights).abs().max())

    assert off(1 / 8, products) < 1e-5
    assert off(1.0, products) > 0.1
    assert off(1 / 8, products.roll(1, dims=1)) > 0.1


def test_what_is_said_of_them_has_the_right_size(products: torch.Tensor):
    """Divided, the standard deviation is an eighth; every head counts once; a share is one."""
    found = smollm2_scores.run(texts=(TEXT,))
    assert found["scaling.trained_heads"] == 270
    assert found["scaling.trained_sd_plain"] == pytest.approx(8 * found["scaling.trained_sd_divided"], rel=1e-6)
    assert tuple(found.data["sd"].shape) == (1, 30, 9)
    t = products.shape[-1]
    seen = torch.cat([products[..., i, : i + 1] for i in range(t)], dim=-1)
    assert torch.allclose(found.data["sd"][0], seen.std(-1) / 8, rtol=1e-5)
    assert 0 < found["scaling.trained_saturated_divided"] < found["scaling.trained_saturated_plain"] < 1


def test_softmax_as_the_formula_has_it_breaks_where_exp_does():
    """In float16 above 11.09, in bfloat16 not, and in float32 only above 88.7."""
    score = torch.tensor([[11.0, 0.0], [11.2, 3.0]])[:, None, None].expand(-1, 1, 2, 2)  # two heads of one layer
    score = score.transpose(0, 1)
    assert smollm2_overflow.broken([score.half()]).tolist() == [[False, True]]
    assert smollm2_overflow.broken([score.bfloat16()]).tolist() == [[False, False]]
    assert smollm2_overflow.broken([score * 8]).tolist() == [[False, True]]
    assert smollm2_overflow.broken([score * 0, score.half()]).tolist() == [[False, True]]


def test_the_largest_score_decides(products: torch.Tensor):
    """The heads that break in float16 are those with a score above its limit."""
    found = smollm2_overflow.run(texts=(TEXT,))
    over = (found.data["largest"] > 11.0898).double().mean()
    assert found["softmax.trained_broken_float16"] == pytest.approx(float(over))
    assert found["softmax.trained_largest_score"] == pytest.approx(
        float((products / 8)[..., visible(products)].max()), rel=1e-6
    )
