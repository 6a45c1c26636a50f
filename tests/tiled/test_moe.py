"""What is the tiled mixture's own: no product that the router did not choose, little kept, a router to be traced.

That it is right is in `tests/test_moe.py`, together with the reference.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from attnbook.reference.moe import moe as reference
from attnbook.tiled.experts import NOBODY
from attnbook.tiled.moe import experts_backward, experts_forward, moe, moe_through, route
from attnbook.tiled.routing import largest, places
from tests.moe_truth import expert

T, D, E, F, K = 29, 7, 11, 5, 3


def inputs(dtype=torch.float64, *, t=T):
    """x, router_weight, w_gate, w_up, w_down."""
    rng = np.random.default_rng(11)
    shapes = [(t, D), (E, D), (E, D, F), (E, D, F), (E, F, D)]
    return [torch.from_numpy(rng.standard_normal(shape)).to(dtype) for shape in shapes]


def assignments(*, t=T):
    """Experts and weights (t, K) of any choice, some dropped."""
    rng = np.random.default_rng(13)
    experts = torch.from_numpy(np.stack([rng.permutation(E)[:K] for _ in range(t)]))
    experts[torch.from_numpy(rng.random((t, K)) < 0.2)] = NOBODY
    return experts, torch.from_numpy(rng.standard_normal((t, K)))


def by_hand(x, experts, weights, w_gate, w_up, w_down):
    """The sum over the slots, one token at a time, differentiable."""
    silu = torch.nn.functional.silu
    rows = []
    for i in range(x.shape[0]):
        terms = [
            w * ((silu(x[i] @ w_gate[e]) * (x[i] @ w_up[e])) @ w_down[e])
            for e, w in zip(experts[i].tolist(), weights[i], strict=True)
            if e != NOBODY
        ]
        rows.append(torch.stack([torch.zeros_like(x[i]), *terms]).sum(0))
    return torch.stack(rows)


def test_the_functions_behind_the_operator():
    """experts_forward and experts_backward, on plain tensors: the sum over slots and its gradients; dropped give 0."""
    x, _, *matrices = inputs()
    experts, weights = assignments()
    leaves = [a.requires_grad_() for a in (x, weights, *matrices)]
    d_y = torch.from_numpy(np.random.default_rng(1).standard_normal((T, D)))
    y = by_hand(leaves[0], experts, *leaves[1:])
    exact = torch.autograd.grad(y, leaves, d_y)
    plain = [a.detach() for a in leaves]
    np.testing.assert_allclose(experts_forward(plain[0], experts, *plain[1:]), y.detach(), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(  # and the sum by hand is the definition's
        y[0].detach(),
        sum(w * expert(plain[0][0].numpy(), *(m[e].numpy() for m in plain[2:]))
            for e, w in zip(experts[0].tolist(), plain[1][0].numpy(), strict=True) if e != NOBODY),
        rtol=1e-11,
    )  # fmt: skip
    got = experts_backward(d_y, plain[0], experts, *plain[1:])
    for gradient, expected in zip(got, exact, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)
    assert (got[1][experts == NOBODY] == 0).all()
    some = experts_backward(d_y, plain[0], experts, *plain[1:], needs_experts=False)
    assert torch.equal(some[0], got[0])
    assert torch.equal(some[1], got[1])
    assert some[2:] == (None, None, None)


def flops(run):
    """The floating-point operations of all matrix products of a call."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_only_chosen_products_are_calculated():
    """Forward: three products for each assignment, and the router. Backward: eight, two of them once more."""
    arrays = [a.requires_grad_() for a in inputs()]
    one, router = 2 * T * K * D * F, 2 * T * D * E
    assert flops(lambda: moe(*arrays, top_k=K)) == 3 * one + router
    y, info = moe(*arrays, top_k=K, capacity_factor=0.5)
    kept = int((~info.dropped).sum())
    assert 0 < kept < T * K
    assert flops(lambda: y.sum().backward()) == 8 * (2 * kept * D * F) + 2 * router
    assert flops(lambda: moe(*arrays, top_k=K, capacity_factor=0.5)) == 3 * (2 * kept * D * F) + router


def test_only_inputs_are_kept_for_the_backward_pass():
    """Nothing of t · k · f numbers: what is saved is as large as the inputs and a few t × e routing scores."""
    saved = []
    arrays = [a.requires_grad_() for a in inputs(t=211)]
    experts = sum(a.numel() for a in arrays[2:])

    def keep(x):
        saved.append(x.numel() if x.data_ptr() not in {a.data_ptr() for a in arrays} else 0)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        moe(*arrays, top_k=K)
    assert max(saved) <= 211 * E
    assert sum(saved) < 211 * K * F * 2 + experts + 8 * 211 * E


def test_frozen_experts_have_no_gradient():
    """Where no expert asks for one, only x, the router and the weights get theirs, and they are the same."""
    arrays = inputs()
    leaves = [a.clone().requires_grad_() for a in arrays]
    whole = torch.autograd.grad(moe(*leaves, top_k=K)[0].sum(), leaves[:2])
    frozen = [arrays[0].clone().requires_grad_(), arrays[1].clone().requires_grad_(), *arrays[2:]]
    y, _ = moe(*frozen, top_k=K)
    assert flops(lambda: y.sum().backward()) == 5 * (2 * T * K * D * F) + 2 * (2 * T * D * E)
    for a, b in zip(frozen[:2], whole, strict=True):
        assert torch.equal(a.grad, b)


def test_second_derivatives():
    """A gradient penalty is right too: by finite differences, and where the first gradient's own gradient is 1."""
    rng = np.random.default_rng(2)
    shapes = [(3, 2), (3, 2), (3, 2, 2), (3, 2, 2), (3, 2, 2)]
    leaves = [torch.from_numpy(rng.standard_normal(shape)).requires_grad_() for shape in shapes]
    assert torch.autograd.gradgradcheck(lambda *a: moe(*a, top_k=2, capacity_factor=0.75)[0], leaves)

    def penalty(function):
        (d_x,) = torch.autograd.grad(function(*leaves, top_k=2)[0].sum(), leaves[0], create_graph=True)
        return torch.autograd.grad(d_x.square().sum(), leaves)

    for got, expected in zip(penalty(moe), penalty(reference), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


# The router


NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 1.0, 2.0, -1.0, torch.inf, -torch.inf, torch.nan])


@given(st.lists(st.lists(NUMBERS, min_size=7, max_size=7), min_size=1, max_size=5), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_the_largest_in_order(rows, top_k):
    """As a stable sort: largest first, NaN before all, equals by column; never one column twice."""
    got = largest(torch.tensor(rows), top_k).tolist()
    for row, columns in zip(rows, got, strict=True):
        order = sorted(range(7), key=lambda j: (not np.isnan(row[j]), -row[j] if not np.isnan(row[j]) else 0, j))
        assert columns == order[:top_k]


def test_places_in_the_queue():
    """Each assignment's place is the number of earlier tokens with the same expert."""
    experts, _ = assignments()
    experts = experts.clamp(min=0)
    experts[experts == 0] = torch.arange(int((experts == 0).sum())) % E
    got = places(experts, torch.bincount(experts.flatten(), minlength=E))
    flat = experts.flatten().tolist()
    assert got.flatten().tolist() == [flat[:i].count(e) for i, e in enumerate(flat)]


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_the_router_is_one_graph_for_any_length(scoring):
    """Traced once without a break, with every option, it serves other numbers of tokens and gives the same."""
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    def routed(x, router, bias):
        return route(x, router, top_k=K, scoring=scoring, selection_bias=bias, routed_scale=2.0, capacity_factor=0.7)

    torch._dynamo.reset()
    compiled = torch.compile(routed, fullgraph=True, dynamic=True, backend=count)
    for t in (29, 13, 101):
        x, router, *_ = inputs(t=t)
        bias = torch.linspace(-0.1, 0.1, E, dtype=torch.float64)
        for got, expected in zip(compiled(x, router, bias), routed(x, router, bias), strict=True):
            assert torch.equal(got, expected)
    assert len(graphs) == 1


def test_the_experts_can_be_run_by_another_function():
    """`moe_through` hands tokens, choices and weights to any function, dropped ones as −1, and shared experts too."""
    calls = []

    def run(x, experts, weights, *matrices):
        calls.append((tuple(x.shape), experts.clone(), weights.detach().clone(), matrices))
        return experts_forward(x, experts, weights, *matrices)

    x, router, *matrices = inputs()
    shared = tuple(m[:2] * 2 for m in matrices)
    options = {"top_k": K, "renormalize": True, "scoring": "softmax", "top_k_before_scoring": False,
               "selection_bias": None, "routed_scale": 1.0, "capacity_factor": 0.5, "shared": shared}  # fmt: skip
    y, info = moe_through(run, x[None], router, *matrices, **options)
    (shape, experts, weights, _), (_, everyone, ones, of_shared) = calls
    assert shape == (T, D)
    assert torch.equal(experts == NOBODY, info.dropped[0])
    assert torch.equal(experts[~info.dropped[0]], info.experts[0][~info.dropped[0]])
    assert torch.equal(weights, info.weights[0])
    assert everyone.tolist() == [[0, 1]] * T
    assert (ones == 1).all()
    assert of_shared == shared
    assert torch.equal(y, moe(x[None], router, *matrices, **options)[0])
