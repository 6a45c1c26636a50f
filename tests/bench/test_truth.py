"""What the bench holds kernels to: the formula agrees with the tests' own truth, and its limit refuses garbage."""

import math

import pytest
import torch

from attnbook.bench import truth
from attnbook.bench.case import Disagree, Setting
from attnbook.bench.kernel_checks import SAMPLES, Sample, Worst, make, must_refuse
from tests import exact, moe_truth

OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 5},
    "softcap and scale": {"softcap": 3.0, "scale": 0.3},
    "slopes and sinks": {
        "is_causal": True,
        "alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0]),
        "sinks": torch.randn(4),
    },
}


def normal(*shapes, dtype=torch.float64):
    """Tensors that are the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.parametrize("name", OPTIONS)
def test_in_float64_it_is_the_truth(name):
    """Out and lse, with grouped heads, more keys than queries and fewer, d_v unlike d."""
    for t_q, t_kv in ((7, 11), (11, 7)):
        q, k, v = normal((2, 4, t_q, 5), (2, 2, t_kv, 5), (2, 2, t_kv, 3))
        out, lse = truth.dense(q, k, v, **OPTIONS[name])
        right, right_lse = exact.truth(q, k, v, **OPTIONS[name])
        torch.testing.assert_close(out, torch.from_numpy(right), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(lse, torch.from_numpy(right_lse), rtol=1e-12, atol=1e-12)


def test_masks_hide_or_are_added():
    """Booleans and floats; a row that sees nothing gives 0 and −inf."""
    q, k, v, bias = normal((1, 2, 3, 5), (1, 1, 7, 5), (1, 1, 7, 5), (1, 2, 3, 7))
    allowed = bias > -0.5
    allowed[:, :, 1] = False
    for mask, given in ((allowed, {"allowed": allowed.numpy()}), (bias, {"bias": bias})):
        out, lse = truth.dense(q, k, v, mask=mask)
        right, right_lse = exact.truth(q, k, v, **given)
        torch.testing.assert_close(out, torch.from_numpy(right), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(lse, torch.from_numpy(right_lse), rtol=1e-12, atol=1e-12)


def test_gradients_are_those_worked_out_by_hand():
    """Of every floating input, in float64."""
    q, k, v, grad, sinks = normal((1, 4, 5, 3), (1, 2, 7, 3), (1, 2, 7, 3), (1, 4, 5, 3), (4,))

    def run(q, k, v, sinks):
        return truth.dense(q, k, v, is_causal=True, sinks=sinks)[0]

    right = exact.exact(q, k, v, d_out=grad, is_causal=True, sinks=sinks)
    found = truth.gradients(run, (q, k, v, sinks), grad, torch.float64)
    for name, gradient in zip(("q", "k", "v", "sinks"), found, strict=True):
        expected = torch.from_numpy(right[name].astype(float))
        torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-11)


def test_experts_are_those_of_the_tests():
    """With an assignment dropped and an expert that nobody chose."""
    x, router, gate, up, down = normal((11, 5), (4, 5), (4, 5, 3), (4, 5, 3), (4, 3, 5))
    router[-1] = -100 * x.abs().sum()
    right = moe_truth.truth(x, router, gate, up, down, top_k=2, capacity_factor=0.5)
    chosen = torch.from_numpy(right.experts).masked_fill(torch.from_numpy(right.dropped), -1)
    found = truth.experts(x, chosen, torch.from_numpy(right.weights), gate, up, down)
    assert (chosen == -1).any()
    torch.testing.assert_close(found, torch.from_numpy(right.y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_is_allowed_comes_from_the_data(dtype):
    """A result as good as the plain one passes, one three times as far off does not; nor does what is not finite."""
    right = torch.linspace(-1, 1, 101, dtype=torch.float64)
    plain = right.to(dtype)
    eps = torch.finfo(dtype).eps
    assert truth.excess(plain, right, plain) <= 1
    assert truth.excess((right + 4 * eps).to(dtype), right, plain) > 1
    for bad in (math.nan, math.inf):
        assert truth.excess(torch.where(right > 0.5, bad, right).to(dtype), right, plain) == math.inf
    with pytest.raises(Disagree, match=r"^shape \(100,\), expected \(101,\)"):
        truth.excess(plain[1:], right, plain)


def test_an_lse_of_minus_infinity_must_be_one():
    """Of a row that sees nothing; where there is one, nothing else is allowed."""
    right = torch.tensor([0.5, -math.inf], dtype=torch.float64)
    assert truth.excess(right.float(), right, right.float()) == 0
    assert truth.excess(torch.tensor([0.5, -1e30]), right, right.float()) == math.inf
    assert truth.excess(torch.tensor([-math.inf, -math.inf]), right, right.float()) == math.inf


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_sample_refuses_garbage(sample, dtype):
    """As large as the checks are where they must be quick."""
    made = make(sample, dtype, Setting(quick=True))
    right = made.call(torch.float64)(*(x.double() for x in made.given))[0]
    plain = made.call(dtype)(*made.given)[0]
    must_refuse(made, right, plain)
    names = [name for name, _ in truth.wrong(*(x.double() for x in made[:3]), right, made.how)]
    assert {"zeros", "mean of v", "one NaN", "scale 1/d", "key and value heads permuted"} <= set(names)
    assert ("not causal" in names) == made.how["is_causal"]


def test_tame_inputs_are_found_out():
    """Where all values are equal, their mean is no mistake, and a check on them proves nothing."""
    made = make(Sample("tame"), torch.float32, Setting(quick=True))
    made = made._replace(v=torch.ones_like(made.v))
    right = made.call(torch.float64)(*(x.double() for x in made.given))[0]
    with pytest.raises(Disagree, match=r"^the check itself would let mean of v through"):
        must_refuse(made, right, made.call(torch.float32)(*made.given)[0])


def test_the_worst_error_is_the_figure():
    """With its place; nothing checked is no pass, and more than is allowed is wrong."""
    right = torch.ones(3, dtype=torch.float64)
    worst = Worst()
    with pytest.raises(Disagree, match="nothing was checked"):
        worst.finding()
    worst.add("first", right.float(), right, right.float())
    worst.add("second", right.float() + 1e-7, right, right.float())
    found = worst.finding()
    assert 0 < found.figure <= 1
    assert found.note == "2 results, worst second"
    with pytest.raises(Disagree, match=r"^third: the error is \S+ times what rounding explains"):
        worst.add("third", right.float() + 1e-5, right, right.float())
