"""What real libraries shipped wrong, asked of the kernels: where the other files have it only by chance, or small."""

import pytest
import torch

from attnbook import tiled
from attnbook.kernels import flash, moe
from attnbook.kernels.decode import decode_forward
from tests.kernels.backward_product import everything
from tests.kernels.device import DEVICE
from tests.tolerance import assert_right, exact, plain, plain_gradients, worst

CALLS = [flash.attention_forward, decode_forward]
NAMES = ("forward", "decode")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def gradients(d_out, q, k, v, options):
    """From the out and lse of another implementation."""
    out, lse = tiled.attention_forward(q, k, v, **options)
    return flash.attention_backward(d_out, None, q, k, v, out, lse, **everything(options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_a_row_of_the_lowest_number_is_hidden(call, dtype):
    """A whole row masked with finfo.min instead of −inf: 0 and −inf, not mean(V), and gradients of 0 from it."""
    q, k, v, d_out = (normal(2, 2, 5, 7, seed=i, dtype=dtype) for i in range(4))
    mask = torch.zeros(5, 5, dtype=dtype, device=DEVICE)
    mask[3] = torch.finfo(dtype).min
    out, lse = call(q, k, v, mask)
    assert (out[:, :, 3] == 0).all()
    assert (lse[:, :, 3] == -torch.inf).all()
    assert (out[:, :, :3] != 0).all()
    if call is CALLS[0]:
        d_q, *_, d_mask, _, _ = gradients(d_out, q, k, v, {"mask": mask})
        assert (d_q[:, :, 3] == 0).all()
        assert (d_mask[3] == 0).all()
        assert (d_mask[2] != 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_a_large_sink_takes_nearly_all(call, dtype):
    """TransformerEngine#2541: a logit of 20 against scores near 0, in every dtype; and it has a gradient."""
    q, k, v = (normal(1, 2, 5, 7, seed=i, dtype=dtype) / 4 for i in range(3))
    sinks = torch.tensor([20.0, 0.0], device=DEVICE)
    out, lse = call(q, k, v, sinks=sinks)
    assert (out[:, 0].abs() < 1e-6).all()
    assert out[:, 1].abs().max() > 1e-2
    torch.testing.assert_close(lse[:, 0], torch.full_like(lse[:, 0], 20.0), rtol=1e-6, atol=0)
    if call is CALLS[0]:
        d_sinks = gradients(torch.ones_like(v), q, k, v, {"sinks": sinks})[5].cpu()
        known = {"d_out": torch.ones(v.shape, dtype=dtype), "sinks": sinks.cpu()}
        right = exact(q.cpu(), k.cpu(), v.cpu(), **known)["sinks"]
        assert abs(right[0]) < 1e-7 < abs(right[1])
        assert abs(d_sinks.double().numpy() - right).max() < 8 * torch.finfo(dtype).eps * abs(right).max()


@pytest.mark.parametrize(("d", "d_v", "dtype"), [(111, 80, torch.float16), (80, 111, torch.bfloat16)], ids=str)
def test_lengths_and_heads_of_no_round_number(d, d_v, dtype):
    """flash-attention's tests: 203 × 113, heads of 80 and 111, in both directions."""
    q, k, v = (
        normal(1, 2, 203, d, dtype=dtype),
        normal(1, 1, 113, d, seed=1, dtype=dtype),
        normal(1, 1, 113, d_v, seed=2),
    )
    v, d_out = v.to(dtype), normal(1, 2, 203, d_v, seed=3, dtype=dtype)
    out, _ = flash.attention_forward(q, k, v)
    known = [x.cpu() for x in (q, k, v)]
    right = exact(*known, d_out=d_out.cpu())
    assert_right(out.cpu(), right["out"], worst(right["out"], *(plain(*known, backwards=b) for b in (False, True))))
    near = plain_gradients(*known, d_out=d_out.cpu(), right=right)
    for name, grad in zip("qkv", gradients(d_out, q, k, v, {}), strict=False):
        assert_right(grad.cpu(), right[name], near[name])


def test_uniform_routing_has_a_loss_of_1():
    """transformers#31464: the auxiliary loss in Switch's form, whoever is chosen, is 1 for equal scores."""
    info = moe.route(normal(7, 3), torch.zeros(5, 3, device=DEVICE), top_k=2)
    assert info.aux_loss.item() == pytest.approx(1.0, rel=1e-6)


def test_two_of_three_experts_renormalised_or_not():
    """litgpt#1286: two results, both as documented; renormalised, the softmax may come before or after the choice."""
    x, router = normal(7, 3), normal(3, 3, seed=1)
    score = (x.double() @ router.double().mT).softmax(-1).topk(2).values
    for renormalize, right in ((True, score / score.sum(-1, keepdim=True)), (False, score)):
        weights = moe.route(x, router, top_k=2, renormalize=renormalize).weights
        torch.testing.assert_close(weights, right.float(), rtol=1e-5, atol=1e-6)
    before = moe.route(x, router, top_k=2, renormalize=True, top_k_before_scoring=True).weights
    torch.testing.assert_close(before, (score / score.sum(-1, keepdim=True)).float(), rtol=1e-5, atol=1e-6)
