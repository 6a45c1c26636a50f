"""One contract, two implementations: the reference's and the tiled mixture of experts, by the definition."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.moe import moe as reference
from attnbook.tiled.moe import moe as tiled
from tests.moe_truth import garbage, plain, truth
from tests.tolerance import as_float64, assert_refuses, assert_right

T, D, E, F = 23, 7, 5, 11
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
OPTIONS = {
    "plain": {},
    "scores as they are": {"renormalize": False},
    "sigmoid": {"scoring": "sigmoid"},
    "sigmoid, as it is": {"scoring": "sigmoid", "renormalize": False, "routed_scale": 2.5},
    "softmax over the chosen": {"top_k_before_scoring": True},
    "bias on scores": {"scoring": "sigmoid", "selection_bias": torch.tensor([0.0, 0.5, -0.5, 0.25, -1.0])},
    "bias on logits": {"top_k_before_scoring": True, "selection_bias": torch.tensor([0.0, 5.0, -0.5, 2.0, -1.0])},
    "capacity": {"capacity_factor": 0.75},
    "everything": {
        "scoring": "sigmoid", "renormalize": False, "routed_scale": 0.5, "capacity_factor": 1.0, "shared": 2,
        "selection_bias": torch.tensor([0.0, 0.25, -0.5, 0.25, 1.0]),
    },
}  # fmt: skip


@pytest.fixture(params=[reference, tiled], ids=["reference", "tiled"])
def moe(request):
    return request.param


def inputs(dtype=torch.float64, *, t=T, d=D, f=F, seed=7, options=None):
    """x, router_weight, w_gate, w_up, w_down; and the options, with weights for `shared` experts."""
    rng = np.random.default_rng(seed)
    shapes = [(t, d), (E, d), (E, d, f), (E, d, f), (E, f, d)]
    arrays = [torch.from_numpy(rng.standard_normal(shape)).to(dtype) for shape in shapes]
    options = dict(options or {})
    if options.get("shared"):
        s = options["shared"]
        shapes = [(s, d, 3), (s, d, 3), (s, 3, d)]
        options["shared"] = tuple(torch.from_numpy(rng.standard_normal(shape)).to(dtype) for shape in shapes)
    return arrays, options


# Right, by the definition


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_option_in_every_dtype(moe, dtype, name):
    """Output and routing are those of the definition, token by token; garbage is refused."""
    arrays, options = inputs(dtype, options=OPTIONS[name])
    right = truth(*arrays, top_k=2, **options)
    y, info = moe(*arrays, top_k=2, **options)
    same_dtype = plain(*arrays, right=right, **options)
    assert y.dtype == dtype
    assert_right(y, right.y, same_dtype)
    assert_refuses(garbage(*arrays, top_k=2, **options), right.y, same_dtype)
    np.testing.assert_array_equal(info.experts, right.experts)
    np.testing.assert_array_equal(info.loads, right.loads)
    np.testing.assert_array_equal(info.dropped, right.dropped)
    working = torch.float64 if dtype == torch.float64 else torch.float32
    assert (info.experts.dtype, info.loads.dtype, info.dropped.dtype) == (torch.int64, torch.int64, torch.bool)
    for got, exact in ((info.weights, right.weights), (info.aux_loss, right.aux_loss), (info.z_loss, right.z_loss)):
        assert got.dtype == working
        np.testing.assert_allclose(got, exact, rtol=16 * torch.finfo(working).eps)
    assert int(info.loads.sum()) == 2 * T
    assert bool(info.dropped.any()) == ("capacity_factor" in options)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gradients_in_shorter_dtypes(moe, dtype, name):
    """The gradients of x and of every expert's weights are as near to float64's as a plain calculation's."""
    arrays, options = inputs(dtype, options=OPTIONS[name])
    right = truth(*arrays, top_k=2, **options)
    d_y = torch.from_numpy(np.random.default_rng(3).standard_normal((T, D)))

    def gradients(function, to):
        # The router is held: its share of x's gradient is tested by gradcheck, and plain has none.
        leaves = [a.detach().to(to).requires_grad_() for a in (arrays[0], *arrays[2:])]
        total = (function(leaves[0], arrays[1].to(to), *leaves[1:]) * d_y.to(to)).sum()
        return torch.autograd.grad(total, leaves[1:])

    held = {k: tuple(w.double() for w in o) if k == "shared" else o for k, o in options.items()}
    exact = gradients(lambda *a: reference(*a, top_k=2, **held)[0], torch.float64)
    same_dtype = gradients(lambda *a: plain(*a, right=right, **options), dtype)
    for got, wanted, baseline in zip(
        gradients(lambda *a: moe(*a, top_k=2, **options)[0], dtype), exact, same_dtype, strict=True
    ):
        assert got.dtype == dtype
        assert_right(got, as_float64(wanted), baseline)
        assert_refuses({"zeros": torch.zeros_like(got), "half": got / 2}, as_float64(wanted), baseline)


@pytest.mark.parametrize("name", OPTIONS)
def test_gradcheck(moe, name):
    """The gradients of all weights, x and the router's included, are those of finite differences; the losses' too."""
    arrays, options = inputs(t=5, d=3, f=2, options=OPTIONS[name])
    shared = options.pop("shared", ())
    leaves = [a.requires_grad_() for a in (*arrays, *shared)]

    def everything(*leaves):
        y, info = moe(*leaves[:5], top_k=2, shared=leaves[5:] or None, **options)
        return y, info.aux_loss, info.z_loss

    assert torch.autograd.gradcheck(everything, leaves)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_both_implementations_are_the_definition(data):
    """For any sizes and options: same experts, same drops, same output; also where no token goes to some expert."""
    t, e, d, f = (data.draw(st.integers(low, high)) for low, high in ((0, 13), (1, 7), (1, 5), (1, 5)))
    options = {
        "top_k": data.draw(st.integers(1, e)),
        "renormalize": data.draw(st.booleans()),
        "scoring": data.draw(st.sampled_from(["softmax", "sigmoid"])),
        "top_k_before_scoring": data.draw(st.booleans()),
        "routed_scale": data.draw(st.sampled_from([1.0, 2.5])),
        "capacity_factor": data.draw(st.sampled_from([None, 0.1, 0.5, 1.0, 1.1, 2.0])),
    }
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [torch.from_numpy(rng.standard_normal(s)) for s in ((t, d), (e, d), (e, d, f), (e, d, f), (e, f, d))]
    right = truth(*arrays, **options)
    for moe in (reference, tiled):
        y, info = moe(*arrays, **options)
        np.testing.assert_allclose(y, right.y, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(info.experts, right.experts)
        np.testing.assert_array_equal(info.dropped, right.dropped)
        np.testing.assert_allclose(info.aux_loss, right.aux_loss, rtol=1e-12)


def test_sequences_are_one_row_of_tokens(moe):
    """x (b, t, d) is x (b · t, d) with its axes kept, in the routing too; capacity counts over all of it."""
    (x, *weights), options = inputs(options={"capacity_factor": 0.75}, t=22)
    y, info = moe(x.reshape(2, 11, D), *weights, top_k=2, **options)
    flat, flat_info = moe(x, *weights, top_k=2, **options)
    assert torch.equal(y, flat.reshape(2, 11, D))
    for name in ("weights", "experts", "dropped"):
        assert torch.equal(getattr(info, name), getattr(flat_info, name).reshape(2, 11, 2))
    assert torch.equal(info.loads, flat_info.loads)


def test_transposed_and_expanded_inputs(moe):
    """Any strides: as with contiguous copies; a gradient of stride 0 too."""
    arrays, _ = inputs()
    other = [a.mT.contiguous().mT.requires_grad_() for a in arrays]
    arrays = [a.requires_grad_() for a in arrays]
    y, same = moe(*arrays, top_k=2)[0], moe(*other, top_k=2)[0]
    np.testing.assert_allclose(same.detach(), y.detach(), rtol=1e-12)
    for got, wanted in zip(
        torch.autograd.grad(same.sum(), other), torch.autograd.grad((y * torch.ones_like(y)).sum(), arrays), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


# Routing


def test_softmax_then_top_k_then_renormalise_is_top_k_then_softmax(moe):
    """Top-2 of 3: renormalised softmax scores are the softmax of the chosen logits; without, another result."""
    x = torch.eye(1, D, dtype=torch.float64)
    router = torch.zeros(3, D, dtype=torch.float64)
    router[:, 0] = torch.log(torch.tensor([1.0, 3.0, 4.0]))  # scores 1/8, 3/8, 4/8
    weights = [a[:3] for a in inputs()[0][2:]]
    for options, expected in (
        ({}, [4 / 7, 3 / 7]),
        ({"top_k_before_scoring": True}, [4 / 7, 3 / 7]),
        ({"renormalize": False}, [4 / 8, 3 / 8]),
        ({"top_k_before_scoring": True, "renormalize": False}, [4 / 7, 3 / 7]),
    ):
        _, info = moe(x, router, *weights, top_k=2, **options)
        assert info.experts.tolist() == [[2, 1]]
        np.testing.assert_allclose(info.weights[0], expected, rtol=1e-6)
    y, y_scores = (moe(x, router, *weights, top_k=2, renormalize=b)[0] for b in (True, False))
    assert (y - y_scores).abs().max() > 0.01


@pytest.mark.parametrize("low", [-100.0, -1000.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sigmoid_scores_that_underflow(moe, dtype, low):
    """All logits near −100: the weights are finite, sum to 1 and keep their ratio, exp of the logits' difference."""
    x = torch.ones(3, 1, dtype=dtype)
    router = torch.tensor([low, low - 8, low - 16, low], dtype=dtype)[:, None].requires_grad_()
    experts = [torch.ones(4, 1, 1, dtype=dtype) for _ in range(3)]
    y, info = moe(x, router, *experts, top_k=3, scoring="sigmoid")
    logits = as_float64(router)[:, 0]
    expected = np.exp(logits[[0, 3, 1]] - logits[0])
    np.testing.assert_allclose(info.weights.detach()[0], expected / expected.sum(), rtol=1e-4)
    assert torch.isfinite(y).all()
    (info.weights[:, 0].sum() + info.aux_loss).backward()
    assert torch.isfinite(router.grad).all()


def test_saturated_sigmoids_are_no_tie(moe):
    """Logits 40 and 41 have the same sigmoid in any float: the larger one is chosen."""
    x, router = torch.ones(1, 1), torch.tensor([[40.0], [41.0], [39.0]])
    experts = [torch.ones(3, 1, 1) for _ in range(3)]
    assert moe(x, router, *experts, top_k=2, scoring="sigmoid")[1].experts.tolist() == [[1, 0]]


def test_of_equal_scores_the_lower_expert_is_chosen(moe):
    """Ties are broken by number, in every row, also where all are equal, −inf or NaN."""
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [torch.nan, 0.0]])
    router = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]).repeat(8, 1)
    experts = [torch.ones(32, 2, 2) for _ in range(3)]
    _, info = moe(x, router, *experts, top_k=3)
    assert info.experts.tolist() == [[0, 1, 2], [1, 3, 5], [0, 1, 2]]


def test_a_bias_changes_the_choice_and_never_a_weight(moe):
    """The weights are the scores of whatever was chosen; a bias without effect on the choice has none at all."""
    arrays, _ = inputs()
    options = {"top_k": 2, "scoring": "sigmoid", "renormalize": False}
    y, info = moe(*arrays, **options)
    same = moe(*arrays, **options, selection_bias=torch.full((E,), 0.25))
    assert torch.equal(same[0], y)
    _, moved = moe(*arrays, **options, selection_bias=torch.tensor([0.0, 0, 0, 0, 9]))
    assert (moved.experts[:, 0] == 4).all()
    score = torch.sigmoid(arrays[0] @ arrays[1].mT)
    np.testing.assert_allclose(moved.weights, score.gather(1, moved.experts), rtol=1e-12)
    assert int(info.loads[4]) < int(moved.loads[4]) == T


def test_uniform_routing_has_loss_1(moe):
    """Switch's form is 1 for equal loads and scores, whatever k is; all tokens to the same k experts gives e / k."""
    x = torch.eye(E, dtype=torch.float64)
    router = torch.eye(E, dtype=torch.float64) * 1e-9
    experts = [torch.ones(E, E, E, dtype=torch.float64) for _ in range(3)]
    for k in (1, E):
        _, info = moe(x, router, *experts, top_k=k)
        assert info.loads.tolist() == [k] * E
        np.testing.assert_allclose(info.aux_loss, 1.0, rtol=1e-8)
    for k in (1, 2):
        _, info = moe(torch.ones_like(x), torch.diag(torch.tensor([1e3] * k + [0.0] * (E - k))).double(), *experts,
                      top_k=k, scoring="softmax")  # fmt: skip
        np.testing.assert_allclose(info.aux_loss, E / k, rtol=1e-8)


def test_the_loss_pushes_towards_equal_loads(moe):
    """Steps against its gradient make the loads more equal."""
    x, router, *experts = inputs(t=211)[0]
    x, router = x + 1.0, router.clone()
    first = moe(x, router, *experts, top_k=1)[1]
    for _ in range(60):
        router.requires_grad_()
        (step,) = torch.autograd.grad(moe(x, router, *experts, top_k=1)[1].aux_loss, router)
        router = (router - 2 * step).detach()
    last = moe(x, router, *experts, top_k=1)[1]
    assert last.aux_loss < first.aux_loss
    assert last.loads.double().std() < first.loads.double().std() / 2


def test_later_tokens_are_dropped(moe):
    """Capacity ⌈factor · t · k / e⌉: the first tokens of an expert stay, the others' slots give 0, loads count all."""
    arrays, _ = inputs()
    x = arrays[0][:1].repeat(7, 1)  # all alike: both their experts are asked for by all
    y, info = moe(x, *arrays[1:], top_k=2, capacity_factor=1.1)  # 1.1 · 14 / 5 = 3.08: four
    whole, _ = moe(x, *arrays[1:], top_k=2)
    assert info.dropped.tolist() == [[False] * 2] * 4 + [[True] * 2] * 3
    assert info.loads.sum() == 14
    assert torch.equal(y[:4], whole[:4])
    assert (y[4:] == 0).all()
    assert (info.weights[4:] == 0).all()
    assert not moe(x[:5], *arrays[1:], top_k=2, capacity_factor=2.5)[1].dropped.any()  # exactly five


def test_a_factor_counts_as_the_fraction_that_was_meant(moe):
    """1.1 · 10 is 11, not 11.000000000000002 rounded up to 12."""
    x = torch.ones(20, 1)
    experts = [torch.ones(2, 1, 1) for _ in range(3)]
    _, info = moe(x, torch.tensor([[1.0], [0.0]]), *experts, top_k=1, capacity_factor=1.1)
    assert int((~info.dropped).sum()) == 11


# Edges


def test_an_expert_without_tokens_has_gradient_0(moe):
    """Exactly 0, and finite everywhere, also where its weights are NaN: it is not multiplied."""
    arrays, _ = inputs()
    bias = torch.tensor([0.0, 0, -1e9, 0, 0])
    for a in arrays[2:]:
        a[2] = torch.nan
    leaves = [a.requires_grad_() for a in arrays]
    y, info = moe(*leaves, top_k=2, selection_bias=bias)
    assert info.loads[2] == 0
    assert torch.isfinite(y).all()
    for gradient in torch.autograd.grad(y.sum(), leaves)[2:]:
        assert (gradient[2] == 0).all()
        assert torch.isfinite(gradient).all()
        assert (gradient[0] != 0).any()


def test_nan_stays_in_its_token(moe):
    """A NaN or inf in a token reaches its own row of y and of the weights, no other, and no other's gradient."""
    arrays, _ = inputs()
    clean, _ = moe(*arrays, top_k=2)
    for bad in (torch.nan, torch.inf):
        x = arrays[0].clone()
        x[3, 1] = bad
        x.requires_grad_()
        y, info = moe(x, *arrays[1:], top_k=2)
        others = torch.arange(T) != 3
        np.testing.assert_allclose(y[others].detach(), clean[others], rtol=1e-12)
        assert y[3].isnan().any()
        assert info.weights[others].isfinite().all()
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert gradient[others].isfinite().all()


def test_no_tokens(moe):
    """t = 0 and b = 0: empty results, losses 0, gradients 0."""
    for shape in ((0, D), (0, 3, D), (3, 0, D)):
        _, *weights = inputs()[0]
        leaves = [w.requires_grad_() for w in weights]
        y, info = moe(torch.zeros(shape, dtype=torch.float64), *leaves, top_k=2, capacity_factor=1.0)
        assert y.shape == shape
        assert info.weights.shape == (*shape[:-1], 2)
        assert info.loads.tolist() == [0] * E
        assert (info.aux_loss.item(), info.z_loss.item()) == (0.0, 0.0)
        for gradient in torch.autograd.grad(y.sum() + info.aux_loss + info.z_loss, leaves):
            assert (gradient == 0).all()


def test_one_expert_is_a_plain_network(moe):
    """e = k = 1: weight 1, SwiGLU of every token."""
    x, router, *experts = inputs()[0]
    y, info = moe(x, router[:1], *(w[:1] for w in experts), top_k=1)
    assert (info.weights == 1).all()
    gate, up, down = (w[0] for w in experts)
    np.testing.assert_allclose(y, (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down, rtol=1e-12)


def test_the_order_of_experts_does_not_matter(moe):
    """Router rows and experts permuted together: the same output."""
    x, router, *experts = inputs()[0]
    turn = [3, 0, 4, 1, 2]
    y, _ = moe(x, router, *experts, top_k=2)
    turned, _ = moe(x, router[turn], *(w[turn] for w in experts), top_k=2)
    np.testing.assert_allclose(turned, y, rtol=1e-12, atol=1e-13)


def test_the_router_works_in_float32(moe):
    """bfloat16 tokens whose logits differ by one part in 2000 go to the right expert, under autocast too."""
    x = torch.ones(1, 2, dtype=torch.bfloat16)
    router = torch.tensor([[1.0, 0.0], [1.0, 2**-11]], dtype=torch.bfloat16)
    experts = [torch.ones(2, 2, 2, dtype=torch.bfloat16) for _ in range(3)]
    assert moe(x, router, *experts, top_k=1)[1].experts.tolist() == [[1]]
    assert moe(x, router.float(), *experts, top_k=1)[1].experts.tolist() == [[1]]
    whole = [a.float() for a in (x, router, *experts)]
    with torch.autocast("cpu", torch.bfloat16):
        y, info = moe(*whole, top_k=1)
    assert info.experts.tolist() == [[1]]
    assert info.weights.dtype == torch.float32
    assert torch.equal(y, moe(*whole, top_k=1)[0])


def test_outputs_are_added_up_in_float32(moe):
    """401 experts that give about 1 each, in bfloat16: added up there, the sum would stay at 256."""
    x = torch.ones(1, 1, dtype=torch.bfloat16)
    gate, up, down = (torch.full((401, 1, 1), value, dtype=torch.bfloat16) for value in (20.0, 0.05, 1.0))
    one = float(torch.nn.functional.silu(gate[0]) * up[0] * down[0])
    y, _ = moe(x, torch.zeros(401, 1, dtype=torch.bfloat16), gate, up, down, top_k=401, scoring="sigmoid",
               renormalize=False, routed_scale=2.0)  # fmt: skip
    np.testing.assert_allclose(as_float64(y), 401 * one, rtol=2**-7)


# Bad input


def replaced(**changes):
    (x, router_weight, w_gate, w_up, w_down), _ = inputs()
    arguments = {"x": x, "router_weight": router_weight, "w_gate": w_gate, "w_up": w_up, "w_down": w_down, "top_k": 2}
    return arguments | changes


def zeros(*shape, dtype=torch.float64, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


BAD = [
    ({"x": zeros(D)}, ShapeError, "x has 1 axes (7,): expected 2, (t, d), or 3, (b, t, d)"),
    ({"router_weight": zeros(D)}, ShapeError,
     "router_weight has 1 axes (7,): expected 2, (e, d): experts, components"),
    ({"router_weight": zeros(E, 6)}, ShapeError,
     "router_weight has 6 components (axis d) but x has 7: they must be equal"),
    ({"w_gate": zeros(E, D)}, ShapeError,
     "w_gate has 2 axes (5, 7): expected 3, (e, d, f): experts, components, components inside an expert"),
    ({"w_gate": zeros(4, D, F)}, ShapeError,
     "w_gate has 4 experts (axis e) but router_weight has 5: they must be equal"),
    ({"w_up": zeros(E, D, 12)}, ShapeError, "w_up has 12 components (axis f) but w_gate has 11: they must be equal"),
    ({"w_down": zeros(E, D, F)}, ShapeError, "w_down has 11 components (axis d) but x has 7: they must be equal"),
    ({"w_down": zeros(E, 12, D)}, ShapeError,
     "w_down has 12 components (axis f) but w_gate has 11: they must be equal"),
    ({"top_k": 6}, ValueError, "top_k is 6 but router_weight has 5 experts (axis e): expected 1 to 5"),
    ({"top_k": 0}, ValueError, "top_k is 0 but router_weight has 5 experts (axis e): expected 1 to 5"),
    ({"top_k": 2.0}, ValueError, "top_k is 2.0: expected a whole number of experts"),
    ({"top_k": True}, ValueError, "top_k is True: expected a whole number of experts"),
    ({"scoring": "relu"}, ValueError, "scoring is 'relu': expected 'softmax' or 'sigmoid'"),
    ({"renormalize": "no"}, ValueError, "renormalize is 'no': expected True or False"),
    ({"renormalize": None}, ValueError, "renormalize is None: expected True or False"),
    ({"top_k_before_scoring": "yes"}, ValueError, "top_k_before_scoring is 'yes': expected True or False"),
    ({"x": zeros(T, D).to_sparse()}, TypeError, "x is of layout torch.sparse_coo: expected a dense tensor"),
    ({"w_up": zeros(E, D, F).to_sparse()}, TypeError, "w_up is of layout torch.sparse_coo: expected a dense tensor"),
    ({"routed_scale": torch.inf}, ValueError, "routed_scale is inf: expected a finite number"),
    ({"capacity_factor": 0}, ValueError, "capacity_factor is 0: expected a finite number above 0, or None"),
    ({"selection_bias": zeros(E, 1)}, ShapeError, "selection_bias has 2 axes (5, 1): expected 1, (e): experts"),
    ({"selection_bias": zeros(4)}, ShapeError,
     "selection_bias has 4 experts (axis e) but router_weight has 5: they must be equal"),
    ({"selection_bias": zeros(E, dtype=torch.int64)}, DTypeError,
     "selection_bias has dtype torch.int64: expected a floating-point dtype"),
    ({"shared": (zeros(1, D, 3), zeros(1, D, 3))}, ValueError,
     "shared holds 2 arrays: expected 3, (w_gate, w_up, w_down)"),
    ({"shared": (zeros(1, D, 3), zeros(2, D, 3), zeros(1, 3, D))}, ShapeError,
     "shared[1] (w_up) has 2 experts (axis e) but shared[0] (w_gate) has 1: they must be equal"),
    ({"shared": (zeros(1, D, 3), zeros(1, D, 3), zeros(1, 4, D))}, ShapeError,
     "shared[2] (w_down) has 4 components (axis f) but shared[0] (w_gate) has 3: they must be equal"),
    ({"x": zeros(T, D, dtype=torch.int64)}, DTypeError, "x has dtype torch.int64: expected a floating-point dtype"),
    ({"w_up": zeros(E, D, F, dtype=torch.float32)}, DTypeError,
     "w_up has dtype torch.float32 but x has torch.float64: they must be equal"),
    ({"shared": (zeros(1, D, 3), zeros(1, D, 3), zeros(1, 3, D, dtype=torch.bfloat16))}, DTypeError,
     "shared[2] has dtype torch.bfloat16 but x has torch.float64: they must be equal"),
    ({"router_weight": zeros(E, D, dtype=torch.float32)}, DTypeError,
     "router_weight has dtype torch.float32 but x has torch.float64: expected torch.float64"),
    ({"x": np.zeros((T, D))}, TypeError, "x is a ndarray: expected a torch tensor"),
    ({"router_weight": np.zeros((E, D))}, TypeError, "router_weight is a ndarray: expected a torch tensor"),
    ({"shared": (np.zeros((1, D, 3)), zeros(1, D, 3), zeros(1, 3, D))}, TypeError,
     "shared[0] is a ndarray: expected a torch tensor"),
    ({"w_up": zeros(E, D, F, device="meta")}, ValueError, "w_up is on device meta but x on cpu: they must be equal"),
    ({"router_weight": zeros(E, D, device="meta")}, ValueError,
     "router_weight is on device meta but x on cpu: they must be equal"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "text"), BAD, ids=[text[:40] for _, _, text in BAD])
def test_errors_name_axis_expectation_and_value(moe, changes, error, text):
    """Each wrong argument is one clear error, the same of both implementations."""
    with pytest.raises(error, match="^" + re.escape(text) + "$"):
        moe(**replaced(**changes))


def test_a_router_in_half_precision_says_what_it_may_be(moe):
    """For bfloat16 x the router may be bfloat16 or float32, nothing else."""
    arrays, _ = inputs(torch.bfloat16)
    with pytest.raises(DTypeError, match=r"but x has torch.bfloat16: expected torch.bfloat16 or torch.float32$"):
        moe(arrays[0], arrays[1].double(), *arrays[2:], top_k=2)
