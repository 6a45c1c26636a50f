"""The oracle of the tests is itself checked: two ways of writing the truth agree, and garbage is far from it."""

import numpy as np
import pytest
import torch

from tests.tolerance import (
    as_float64,
    assert_refuses,
    assert_right,
    exact,
    garbage,
    plain,
    plain_gradients,
    truth,
    visible,
)

OPTIONS = {
    "none": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 4},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi_slopes": torch.tensor([0.5, 0.3, 0.2, 0.1, 0.7, 0.9])},
    "alibi of each sequence": {"alibi_slopes": torch.arange(12.0).reshape(2, 6) / 7, "is_causal": True},
    "sinks": {"sinks": torch.tensor([0.5, 2.0, -1.0, 0.0, 3.0, 1.0])},
    "scale": {"scale": 0.7},
    "everything": {
        "is_causal": True,
        "window": 5,
        "softcap": 2.0,
        "scale": 0.6,
        "alibi_slopes": torch.tensor([0.5, 0.3, 0.2, 0.1, 0.7, 0.9]),
        "sinks": torch.tensor([0.5, 2.0, -1.0, 0.0, 3.0, 1.0]),
    },
}


def inputs(t_q=7, t_kv=11, dtype=torch.float64):
    """q, k, v with grouped heads and another d_v."""
    make = torch.Generator().manual_seed(3)
    shapes = ((2, 6, t_q, 5), (2, 2, t_kv, 5), (2, 2, t_kv, 3))
    return [torch.randn(shape, generator=make, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("t_q", "t_kv"), [(7, 11), (11, 7), (1, 5), (5, 0), (0, 5)])
def test_two_ways_to_write_the_truth_agree(name, t_q, t_kv):
    """One query at a time over the keys it sees, and all at once with masks: the same out and lse."""
    q, k, v = inputs(t_q, t_kv)
    make = np.random.default_rng(5)
    allowed = make.random((2, 6, t_q, t_kv)) < 0.7
    bias = make.standard_normal((2, 6, t_q, t_kv))
    out, lse = truth(q, k, v, allowed=allowed, bias=bias, **OPTIONS[name])
    found = exact(q, k, v, allowed=allowed, bias=bias, **OPTIONS[name])
    np.testing.assert_allclose(found["out"], out, atol=1e-12)
    np.testing.assert_allclose(found["lse"], lse, atol=1e-12)


def test_the_gradients_of_the_oracle_are_right():
    """The oracle's gradients agree with differences of the definition, for a number of every input."""
    q, k, v = inputs()
    options = OPTIONS["everything"] | {"bias": torch.randn(2, 6, 7, 11, dtype=torch.float64)}
    make = torch.Generator().manual_seed(4)
    d_out, d_lse = (torch.randn(shape, generator=make, dtype=torch.float64) for shape in ((2, 6, 7, 3), (2, 6, 7)))
    found = exact(q, k, v, d_out=d_out, d_lse=d_lse, **options)
    everything = {"q": q, "k": k, "v": v} | options

    def total(name, step):
        moved = everything[name].to(torch.float64).clone()
        moved.view(-1)[-1] += step  # the last of each: seen by the last query
        out, lse = truth(**(everything | {name: moved}))
        return (as_float64(d_out) * out).sum() + (as_float64(d_lse) * lse).sum()

    for name in ("q", "k", "v", "bias", "alibi_slopes", "sinks"):
        difference = (total(name, 1e-6) - total(name, -1e-6)) / 2e-6
        assert abs(difference) > 1e-3, f"{name}: nothing to see"
        assert found[name].flat[-1] == pytest.approx(difference, rel=1e-6), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_plain_calculation_is_right_and_garbage_is_not(name, dtype):
    """The rule accepts the plain calculation itself and refuses every kind of garbage, in every dtype."""
    q, k, v = inputs(dtype=dtype)
    right, baseline = exact(q, k, v, **OPTIONS[name])["out"], plain(q, k, v, **OPTIONS[name])
    assert_right(baseline, right, baseline)
    wrong = garbage(q, k, v, **OPTIONS[name])
    assert len(wrong) >= 8
    assert_refuses(wrong, right, baseline)


def test_what_is_right_would_not_be_refused():
    """The check of the garbage can fail: a right result among it is named."""
    q, k, v = inputs()
    right, baseline = exact(q, k, v)["out"], plain(q, k, v)
    with pytest.raises(AssertionError, match="the truth would be let through"):
        assert_refuses({"zeros": 0 * right, "the truth": right}, right, baseline)


def test_garbage_drops_every_option_once():
    """Each option of the call is dropped in some garbage, so a test that lets one pass is no test."""
    q, k, v = inputs()
    allowed = np.random.default_rng(5).random((2, 6, 7, 11)) < 0.7
    bias = torch.randn(2, 6, 7, 11, generator=torch.Generator().manual_seed(1))
    kinds = set(garbage(q, k, v, allowed=allowed, bias=bias, **OPTIONS["everything"]))
    dropped = {"window", "softcap", "bias", "alibi_slopes", "sinks", "mask"}
    assert {f"{name} dropped" for name in dropped} <= kinds
    assert {"not causal", "aligned at the top left", "groups interleaved", "window one longer"} <= kinds


def test_gradients_of_the_baseline_are_about_right():
    """The baseline of a short dtype is near the truth and not equal to it."""
    q, k, v = inputs(dtype=torch.bfloat16)
    d_out = torch.ones(2, 6, 7, 3)
    right = exact(q, k, v, d_out=d_out, **OPTIONS["everything"])
    baseline = plain_gradients(q, k, v, d_out=d_out, **OPTIONS["everything"])
    for name in ("q", "k", "v", "alibi_slopes", "sinks"):
        error = np.abs(right[name] - baseline[name]).max() / np.abs(right[name]).max()
        assert 1e-5 < error < 0.1, name


def test_visible_by_hand():
    """Window 2 of 3 queries and 4 keys, drawn."""
    seen = visible((3, 4), is_causal=True, window=2).astype(int).tolist()
    assert seen == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_baseline_of_a_gradient_that_cancels_is_not_exactly_right(dtype):
    """One key: d_q is 0 by cancelling. A way that takes the sum from the output errs a little, and may."""
    q, k, _ = inputs(7, 1, dtype)
    make = torch.Generator().manual_seed(2)
    v = torch.randn(2, 2, 1, 101, generator=make, dtype=torch.float64).to(dtype)
    d_out = torch.randn(2, 6, 7, 101, generator=make, dtype=torch.float64).to(dtype)
    right = exact(q, k, v, d_out=d_out)
    assert np.abs(right["q"]).max() < 1e-15
    assert np.abs(plain_gradients(q, k, v, d_out=d_out)["q"]).max() > 0


def test_float64_is_judged_with_more_digits():
    """The truth for float64 input has an error of its own far below float64's rounding."""
    q, k, v = inputs()
    error = np.abs(exact(q, k, v)["out"] - as_float64(plain(q, k, v))).max()
    assert 1e-18 < error < 1e-14
