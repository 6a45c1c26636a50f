"""Mixtures of experts: renormalising, experts without tokens, scores that underflow, the balance loss."""

from functools import partial

import pytest
import torch

import attnbook
from attnbook.reference.moe import moe as reference_moe
from attnbook.reference.moe import swiglu
from attnbook.tiled.moe import moe as tiled_moe
from tests.cases.ways import normal

MOES = {"reference": reference_moe, "tiled": tiled_moe, "door": attnbook.moe}


@pytest.fixture(params=MOES)
def moe(request):
    """Each mixture of experts in turn."""
    return MOES[request.param]


def experts(e, d=3, f=5, dtype=torch.float32, seed=0):
    """w_gate, w_up, w_down of e experts."""
    sizes = ((e, d, f), (e, d, f), (e, f, d))
    return [normal(*size, seed=seed + i, dtype=dtype) for i, size in enumerate(sizes)]


def router_for(shares, d=3):
    """A router (e, d) that gives the token [1, 0, 0 …] these shares of a softmax."""
    weight = torch.zeros(len(shares), d)
    weight[:, 0] = torch.tensor(shares).log()
    return weight


TOKEN = torch.tensor([[1.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"renormalize": True}, [5 / 7, 2 / 7]),
        ({"renormalize": False}, [5 / 8, 2 / 8]),
        ({"renormalize": False, "top_k_before_scoring": True}, [5 / 7, 2 / 7]),
        ({"renormalize": True, "top_k_before_scoring": True}, [5 / 7, 2 / 7]),
    ],
    ids=str,
)
def test_top_2_of_3(options, expected, moe):
    """litgpt#1286: shares 1/8, 2/8, 5/8. Renormalised, the two largest are 5/7 and 2/7; else 5/8 and 2/8.

    Softmax, top-k, renormalise is the same as top-k, then softmax.
    """
    weights = experts(3)
    y, info = moe(TOKEN, router_for([1 / 8, 2 / 8, 5 / 8]), *weights, top_k=2, **options)
    assert info.experts.tolist() == [[2, 1]]
    assert info.weights[0].tolist() == pytest.approx(expected, rel=1e-6)
    by_hand = sum(w * swiglu(TOKEN, *(x[e] for x in weights)) for w, e in zip(expected, (2, 1), strict=True))
    torch.testing.assert_close(y, by_hand)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_renormalising_is_two_results(scoring, top_k, moe):
    """litgpt#1286: renormalised weights sum to 1; others do not, but for a softmax over all experts."""
    x, router, weights = normal(7, 3), normal(3, 3, seed=4), experts(3)
    on, off = (moe(x, router, *weights, top_k=top_k, scoring=scoring, renormalize=r) for r in (True, False))
    torch.testing.assert_close(on[1].weights.sum(-1), torch.ones(7))
    same = scoring == "softmax" and top_k == 3
    assert torch.allclose(off[1].weights.sum(-1), torch.ones(7)) == same
    assert torch.allclose(on[0], off[0]) == same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("unused", [[0], [1, 3], [4], [0, 1, 2, 4]], ids=str)
def test_an_expert_that_gets_no_token(unused, dtype, moe):
    """pytorch#172439: its weights have gradients of exactly 0, and what they hold, NaN too, reaches nothing."""
    x = normal(7, 3, dtype=dtype)
    x[:, 0] = 1
    router = normal(5, 3, seed=4, dtype=dtype) * 0.1
    router[unused, 0] -= 50
    weights = experts(5, dtype=dtype)
    for w in weights:
        w[unused] = torch.nan
    leaves = [a.requires_grad_() for a in (x, router, *weights)]
    y, info = moe(*leaves, top_k=1)
    assert info.loads[unused].tolist() == [0] * len(unused)
    grads = torch.autograd.grad(y.sum() + info.aux_loss, leaves)
    assert y.isfinite().all()
    for grad in grads:
        assert grad.isfinite().all()
    for grad in grads[2:]:
        assert (grad[unused] == 0).all()
        assert (grad != 0).any()


def test_no_token_at_all(moe):
    """Every expert is without tokens: gradients 0, aux_loss 0, nothing NaN."""
    leaves = [a.requires_grad_() for a in (torch.zeros(0, 3), normal(5, 3), *experts(5))]
    y, info = moe(*leaves, top_k=2)
    assert y.shape == (0, 3)
    assert info.aux_loss == 0
    for grad in torch.autograd.grad(y.sum() + info.aux_loss + info.z_loss, leaves, allow_unused=True):
        assert grad is None or (grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("low", [-100.0, -1000.0, 100.0])
@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_scores_that_underflow(scoring, low, dtype, moe):
    """flashinfer#3803: sigmoids near −100 in bfloat16 are 0, their sum too: weights stay finite and sum to 1."""
    x = torch.zeros(3, 3, dtype=dtype)
    x[:, 0] = 1
    router = torch.zeros(4, 3, dtype=dtype)
    router[:, 0] = torch.tensor([low, low, low - 8, low - 8]).to(dtype)
    leaves = [a.requires_grad_() for a in (x, router, *experts(4, dtype=dtype))]
    y, info = moe(*leaves, top_k=2, scoring=scoring)
    assert info.experts.tolist() == [[0, 1]] * 3
    torch.testing.assert_close(info.weights, torch.full((3, 2), 0.5))
    for x in (y, *torch.autograd.grad(y.sum() + info.aux_loss, leaves)):
        assert x.isfinite().all()


@pytest.mark.parametrize("top_k", [1, 2, 3, 5])
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_uniform_routing_has_loss_1(scoring, top_k, moe):
    """transformers#31464: loads and mean scores equal: aux_loss is 1, whatever k is (Switch's form)."""
    x = torch.eye(5)
    # Token i likes expert i best, then i + 1, …: each expert is chosen k times.
    router = torch.tensor([[-float((e - i) % 5) for i in range(5)] for e in range(5)])
    _, info = moe(x, router, *experts(5, d=5), top_k=top_k, scoring=scoring)
    assert info.loads.tolist() == [top_k] * 5
    assert info.aux_loss.item() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("top_k", [1, 2])
def test_collapsed_routing_has_a_larger_loss(top_k, moe):
    """All to the same k of e experts, and sure of it: e / k."""
    x = torch.ones(7, 3)
    router = torch.full((6, 3), -20.0)
    router[:top_k] = 0
    _, info = moe(x, router, *experts(6), top_k=top_k)
    assert info.aux_loss.item() == pytest.approx(6 / top_k, rel=1e-6)


def test_compiled_it_is_the_same():
    """The cases above in one function of torch.compile: unused experts, a renormalised pair, a sigmoid."""
    leaves = [a.requires_grad_() for a in (normal(7, 3), normal(5, 3, seed=4), *experts(5))]
    call = partial(attnbook.moe, top_k=2, scoring="sigmoid")
    found = []
    for function in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        y, info = function(*leaves)
        found.append((y, info.aux_loss, *torch.autograd.grad(y.square().sum() + info.aux_loss, leaves)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
