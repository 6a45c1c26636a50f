"""Chapter 8's norms: what they take together, and what their small choices do."""

import pytest
import torch

from attnbook.experiments import norms_axes, norms_numerics, norms_stream


@pytest.fixture(scope="module")
def axes():
    return norms_axes.run(seed=5, b=7, t=5, d=23, steps=31)


@pytest.fixture(scope="module")
def numerics():
    return norms_numerics.run(seed=5)


def test_each_norm_brings_its_own_numbers_to_variance_one(axes):
    """LayerNorm a token's components, BatchNorm a component's tokens."""
    assert axes["norm.layer_variance_error"] < 1e-3
    assert axes["norm.batch_variance_error"] < 1e-3
    tokens = axes.data["batch"].var(-1, correction=0)
    assert float((tokens - 1).abs().max()) > 0.1


def test_only_batch_norm_looks_at_other_tokens(axes):
    """A token alone, or a shorter sequence, changes its result and nobody else's."""
    for name in ("layer", "rms"):
        assert axes[f"norm.{name}_alone_error"] == axes[f"norm.{name}_short_error"] == 0
    assert axes["norm.batch_alone_error"] > 0.3
    assert axes["norm.batch_eval_alone_error"] == 0


def test_torch_gives_the_same(axes):
    """The three layers of the same names."""
    for name in ("torch_error", "torch_rms_error", "torch_batch_error"):
        assert axes[f"norm.{name}"] < 1e-5


def test_where_epsilon_stands_shows_on_small_tokens(numerics):
    """A variance of 1e-6 beside ε = 1e-5: √(1 / 11) inside the root, 100 / 101 outside."""
    assert numerics["norm.eps_inside_small"] == pytest.approx((1 / 11) ** 0.5, rel=1e-3)
    assert numerics["norm.eps_outside_small"] == pytest.approx(100 / 101, rel=1e-3)


def test_the_hand_example(numerics):
    """1, 3, 5, 7: mean 4, variance 5, mean of squares 21."""
    assert numerics["norm.hand_layer"] == pytest.approx(-3 / 5**0.5)
    assert numerics["norm.hand_rms"] == pytest.approx(21**-0.5)


def test_one_pass_loses_everything_far_from_zero(numerics):
    """And two passes lose nothing."""
    assert numerics["norm.far_one_pass_nan"] is True
    assert numerics["norm.far_two_pass_error"] < 1e-5


def test_the_stream_of_the_trained_model_is_what_its_last_norm_reads():
    """The last entry, normed, is the hidden state."""
    found = norms_stream.run(text="The harbour was quiet.")
    stream = found.data["stream"]
    assert stream.shape[0] == found["norm.stream_layers"]
    torch.testing.assert_close(found.data["size"], stream.square().mean(-1).sqrt())
