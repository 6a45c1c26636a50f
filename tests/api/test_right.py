"""Every implementation behind the door is right, with every option that it has: results, lse, gradients, layouts."""

import pytest
import torch

from attnbook import attention
from tests.api.samples import ABLE, D_V, DTYPES, H_KV, H_Q, IMPLS, T_KV, T_Q, B, D, for_truth, inputs, options_of
from tests.tolerance import assert_refuses, assert_right, exact, garbage, plain, plain_gradients, plain_lse, worst


def baseline(right, q, k, v, **options):
    """A plain calculation, with sums in the order that gives the larger error."""
    return worst(right, *(plain(q, k, v, backwards=backwards, **options) for backwards in (False, True)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("impl", "name"), ABLE)
def test_right_with_every_option(dtype, impl, name):
    """As near to the truth as a plain calculation in the same dtype; garbage is refused."""
    q, k, v = inputs(dtype)
    options = options_of(name, dtype)
    definition = for_truth(options)
    right = exact(q, k, v, **definition)["out"]
    out = attention(q, k, v, impl=impl, **options)
    assert out.dtype == dtype
    assert_right(out, right, baseline(right, q, k, v, **definition))
    if dtype == torch.float32:
        assert_refuses(garbage(q, k, v, **definition), right, baseline(right, q, k, v, **definition))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
def test_lse(dtype, impl):
    """The second result is the natural log-sum-exp of each row, the sink included, in float32 or float64."""
    q, k, v = inputs(dtype)
    options = options_of("all", dtype)
    out, lse = attention(q, k, v, return_lse=True, impl=impl, **options)
    definition = for_truth(options)
    assert torch.equal(out, attention(q, k, v, impl=impl, **options))
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_right(lse, exact(q, k, v, **definition)["lse"], plain_lse(q, k, v, **definition), roundings=2)


@pytest.mark.parametrize(("impl", "name"), ABLE)
def test_gradients(impl, name):
    """Those of q, k, v and of whatever floats the options bring."""
    q, k, v = inputs(torch.float32)
    options = options_of(name)
    definition = for_truth(options)
    d_out = torch.randn(B, H_Q, T_Q, D_V, generator=torch.Generator().manual_seed(3))
    leaves = {"q": q, "k": k, "v": v}
    leaves |= {key: x for key, x in options.items() if torch.is_tensor(x) and x.is_floating_point()}
    leaves = {key: x.clone().requires_grad_() for key, x in leaves.items()}
    attention(**(options | leaves), impl=impl).backward(d_out)
    right = exact(q, k, v, d_out=d_out, **definition)
    plainly = plain_gradients(q, k, v, d_out=d_out, **definition)
    for key, leaf in leaves.items():
        expected, rounded = (torch.as_tensor(x["bias" if key == "mask" else key]) for x in (right, plainly))
        if key == "mask":  # summed over what it was broadcast along
            expected, rounded = (x.sum_to_size(leaf.shape) for x in (expected, rounded))
        assert_right(leaf.grad, expected.double().numpy(), rounded)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(("t_q", "t_kv"), [(1, 5), (5, 2), (1, 1), (7, 7), (97, 111), (113, 203), (203, 113)])
def test_causal_is_aligned_at_the_ends(impl, t_q, t_kv):
    """Whatever t_q and t_kv are: the last query sees all keys; rows before the first key are 0."""
    q, k, v = inputs(t_q=t_q, t_kv=t_kv)
    right = exact(q, k, v, is_causal=True)["out"]
    out = attention(q, k, v, is_causal=True, impl=impl)
    assert_right(out, right, baseline(right, q, k, v, is_causal=True))
    assert (out[:, :, : max(t_q - t_kv, 0)] == 0).all()


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("shape", [(), (T_KV,), (1, T_KV), (T_Q, 1), (H_Q, 1, T_KV), (B, 1, 1, 1), (B, H_Q, T_Q, T_KV)])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float64])
def test_masks_broadcast(impl, shape, kind):
    """A mask of fewer axes, or of length 1, stands for its repetition; it may have a dtype of its own."""
    q, k, v = inputs()
    g = torch.Generator().manual_seed(4)
    mask = torch.rand(shape, generator=g) < 0.7
    mask = mask if kind == torch.bool else torch.where(mask, torch.randn(shape, generator=g), -torch.inf).to(kind)
    definition = for_truth({"mask": mask})
    right = exact(q, k, v, **definition)["out"]
    assert_right(attention(q, k, v, mask=mask, impl=impl), right, baseline(right, q, k, v, **definition))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("hide", ["boolean", "-inf", "lowest", "lowest of half precision"])
def test_a_row_that_sees_nothing(impl, hide):
    """However it is written: output 0; all gradients finite and 0 from that row, whether or not the loss skips it."""
    dtype = torch.bfloat16 if hide == "lowest of half precision" else torch.float32
    q, k, v = (x.requires_grad_() for x in inputs(dtype))
    allowed = torch.ones(T_Q, T_KV, dtype=torch.bool)
    allowed[3] = False
    low = {"-inf": -torch.inf, "lowest": torch.finfo(torch.float32).min, "boolean": 0.0}.get(hide)
    low = torch.finfo(torch.bfloat16).min if low is None else low
    mask = allowed if hide == "boolean" else torch.zeros(T_Q, T_KV).masked_fill(~allowed, low)
    out = attention(q, k, v, mask=mask, impl=impl)
    assert (out[:, :, 3] == 0).all()
    grads = torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True)
    rest = torch.autograd.grad(out[:, :, [i for i in range(T_Q) if i != 3]].sum(), (q, k, v))
    for grad, same in zip(grads, rest, strict=True):
        assert grad.isfinite().all()
        torch.testing.assert_close(grad, same)
    assert (grads[0][:, :, 3] == 0).all()
    assert grads[0].any()


LAYOUTS = {
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "last axis apart": lambda x: x.mT.contiguous().mT,
    "a part of more": lambda x: torch.nn.functional.pad(x, (3, 4, 2, 1))[:, :, 2:-1, 3:-4],
}


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_change_nothing(impl, layout):
    """Transposed, sliced and padded q, k, v give what contiguous ones give; gradients of an expanded d_out too."""
    plainly = [x.requires_grad_() for x in inputs()]
    strided = [LAYOUTS[layout](x.detach()).requires_grad_() for x in plainly]
    assert not any(x.is_contiguous() for x in strided)
    outs = [attention(*x, is_causal=True, impl=impl) for x in (plainly, strided)]
    torch.testing.assert_close(*outs)
    grads = [torch.autograd.grad(out.sum(), x) for out, x in zip(outs, (plainly, strided), strict=True)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("impl", IMPLS)
def test_expanded_keys_change_nothing(impl):
    """Keys and values of stride 0 along the batch."""
    q, k, v = inputs()
    k, v = (x[:1].expand(B, -1, -1, -1) for x in (k, v))
    right = attention(q, k.contiguous(), v.contiguous(), impl=impl)
    torch.testing.assert_close(attention(q, k, v, impl=impl), right)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("d_v", [D, 3, 11])
@pytest.mark.parametrize("h_kv", [1, 3, 6])
def test_head_counts_and_widths_of_values(impl, d_v, h_kv):
    """Multi-head, grouped, multi-query; values narrower and wider than keys."""
    q, k, v = inputs(d_v=d_v, h_kv=h_kv)
    right = exact(q, k, v, is_causal=True)["out"]
    assert_right(attention(q, k, v, is_causal=True, impl=impl), right, baseline(right, q, k, v, is_causal=True))


EMPTY = [(0, 2, 5, 5), (2, 0, 5, 5), (2, 2, 0, 5), (2, 2, 5, 0)]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": torch.ones(1, 1, dtype=torch.bool)}])
@pytest.mark.parametrize(("b", "h", "t_q", "t_kv"), EMPTY)
def test_empty_axes(impl, options, b, h, t_q, t_kv):
    """Batch, heads, queries or keys may be none: without keys the output is 0; gradients exist and are 0."""
    leaves = [torch.ones(b, h, t, D, requires_grad=True) for t in (t_q, t_kv, t_kv)]
    out = attention(*leaves, impl=impl, **options)
    assert out.shape == (b, h, t_q, D)
    assert (out == 0).all()
    for grad in torch.autograd.grad(out.sum(), leaves):
        assert (grad == 0).all()


@pytest.mark.parametrize("impl", IMPLS)
def test_no_components(impl):
    """head_dim 0 with a scale: all scores are 0, the output is the mean of v; d_v 0 gives an empty output."""
    q, k, v = torch.ones(1, 2, 3, 0), torch.ones(1, 2, 5, 0), torch.randn(1, 2, 5, 3)
    out = attention(q, k, v, scale=1.0, impl=impl)
    torch.testing.assert_close(out, v.mean(2, keepdim=True).expand(out.shape))
    assert attention(torch.ones(1, 2, 3, 5), torch.ones(1, 2, 7, 5), torch.ones(1, 2, 7, 0), impl=impl).numel() == 0


@pytest.mark.parametrize("impl", IMPLS)
def test_each_option_changes_the_result(impl):
    """Flipping any one of them is seen: none is dropped on the way to the implementation."""
    q, k, v = inputs()
    before = attention(q, k, v, impl=impl)
    for name in ("scale", "causal", "slopes", "boolean mask", "float mask", "softcap", "sinks"):
        if (impl, name) in ABLE:
            assert (attention(q, k, v, impl=impl, **options_of(name)) - before).abs().max() > 0.01, name
    causal = attention(q, k, v, is_causal=True, impl=impl)
    assert (attention(q, k, v, is_causal=True, window=5, impl=impl) - causal).abs().max() > 0.01


def test_sizes_of_the_samples_differ():
    """A mixed-up axis cannot go unseen where all lengths differ."""
    assert len({B, H_Q, H_KV, T_Q, T_KV, D, D_V}) == 7
