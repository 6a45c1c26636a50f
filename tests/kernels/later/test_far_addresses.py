"""Liger#1248, vllm#34279: offsets pass 2³¹ along any axis of any input of attention, and all is right all the same."""

import pytest
import torch

from attnbook import tiled
from attnbook.kernels import flash
from attnbook.kernels.decode import decode_forward, merge_parts
from attnbook.tiled.varlen import varlen_forward
from tests.kernels.backward_product import everything
from tests.kernels.device import DEVICE
from tests.kernels.far import far_apart

HALF = torch.float16
CAUSAL = {"is_causal": True}


def normal(*shape, seed=0, dtype=HALF):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def assert_same(found, wanted):
    """To the bit, and there is something to compare."""
    pairs = [(x, y) for x, y in zip(found, wanted, strict=True) if x is not None]
    assert pairs
    for x, y in pairs:
        assert torch.equal(x, y)
        assert x.isfinite().all()


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("call", [flash.attention_forward, decode_forward], ids=lambda f: f.__name__)
def test_attention(call, axis):
    """q, k and v (b, h, t, d)."""
    near = [normal(3, 3, 3, 3, seed=i) for i in range(3)]
    assert_same(call(*far_apart(near, axis), **CAUSAL), call(*near, **CAUSAL))


@pytest.mark.parametrize("axis", range(3))
def test_gradients(axis):
    """Also the gradients that come in, the output and the lse; a copy is made where components lie apart."""
    q, k, v, d_out = (normal(3, 3, 3, 3, seed=i) for i in range(4))
    out, lse = tiled.attention_forward(q, k, v)
    d_lse, given = normal(3, 3, 3, seed=5, dtype=torch.float32), everything({})
    wanted = flash.attention_backward(d_out, d_lse, q, k, v, out, lse, **given)
    far_d_out, *far, far_out = far_apart([d_out, q, k, v, out], axis)
    far_d_lse, far_lse = far_apart([d_lse, lse], axis)
    assert_same(flash.attention_backward(far_d_out, far_d_lse, *far, far_out, far_lse, **given), wanted)


@pytest.mark.parametrize(("axis", "dtype"), [(0, HALF), (1, torch.bool), (2, HALF), (3, torch.bool)], ids=str)
def test_masks(axis, dtype):
    """A mask (b, h, t_q, t_kv), of booleans and of floats: in both directions and in decoding."""
    q, k, v, d_out = (normal(3, 3, 3, 3, seed=i) for i in range(4))
    mask = normal(3, 3, 3, 3, seed=6) > 0 if dtype == torch.bool else normal(3, 3, 3, 3, seed=6)
    (far,) = far_apart([mask], axis)
    out, lse = tiled.attention_forward(q, k, v, mask)
    for call in (flash.attention_forward, decode_forward):
        for x, y in zip(call(q, k, v, far), call(q, k, v, mask), strict=True):
            assert torch.equal(x, y)
    grads = [flash.attention_backward(d_out, None, q, k, v, out, lse, **everything({"mask": m})) for m in (far, mask)]
    assert_same(*grads)


@pytest.mark.parametrize("axis", range(2))
def test_packed_sequences(axis):
    """Tokens or heads apart: the second sequence begins behind 2³¹."""
    q, k, v, d_out = (normal(3, 3, 3, seed=i) for i in range(4))
    ends = torch.tensor([0, 2, 3], dtype=torch.int32, device=DEVICE)
    far_q, far_k, far_v, far_d_out = far_apart([q, k, v, d_out], axis)
    wanted = flash.varlen_forward(q, k, v, ends, ends, **CAUSAL)
    assert_same(flash.varlen_forward(far_q, far_k, far_v, ends, ends, **CAUSAL), wanted)
    out, lse = varlen_forward(q, k, v, ends.tolist(), ends.tolist(), **CAUSAL)
    given = (ends, ends)
    grads = flash.varlen_backward(d_out, None, q, k, v, out, lse, *given, **everything(CAUSAL))
    far_out, far_lse = far_apart([out], axis)[0], far_apart([lse], axis)[0]
    far = flash.varlen_backward(far_d_out, None, far_q, far_k, far_v, far_out, far_lse, *given, **everything(CAUSAL))
    assert_same(far, grads)


@pytest.mark.parametrize("axis", range(2))
def test_a_packed_mask(axis):
    """Its part for the second sequence begins behind 2³¹ along either axis."""
    q, k, v, d_out = (normal(3, 3, 3, seed=i) for i in range(4))
    ends = torch.tensor([0, 2, 3], dtype=torch.int32, device=DEVICE)
    mask = normal(3, 3, seed=6)
    (far,) = far_apart([mask], axis)
    assert_same(*(flash.varlen_forward(q, k, v, ends, ends, m) for m in (far, mask)))
    out, lse = varlen_forward(q, k, v, ends.tolist(), ends.tolist(), mask=mask)
    assert_same(*(flash.varlen_backward(d_out, None, q, k, v, out, lse, ends, ends, **everything({"mask": m}))
                  for m in (far, mask)))  # fmt: skip


@pytest.mark.parametrize("axis", range(4))
def test_parts(axis):
    """The parts that are merged, and their lse."""
    averages, lses = normal(3, 1, 3, 3, 3), normal(3, 1, 3, 3, dtype=torch.float32)
    axis += axis > 0  # the batch has length 1
    (far,) = far_apart([averages], axis)
    far_lses = far_apart([lses], axis)[0] if axis < 4 else lses
    assert_same(merge_parts(far, far_lses), merge_parts(averages, lses))
