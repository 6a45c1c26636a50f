"""Decoding by splits of the keys: right, the same bits alone and in a batch, nothing leaked, nothing repeated."""

import importlib
import re

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attnbook.errors import DTypeError, ShapeError
from attnbook.shapes import AttentionSizes
from attnbook.tiled import attention
from attnbook.tiled.decode import decode, decode_forward, takes_decode
from tests.tolerance import assert_refuses, assert_right, exact, garbage, plain, plain_gradients, plain_lse, worst

MODULE = importlib.import_module("attnbook.tiled.decode")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
B, H_Q, H_KV, D, D_V = 2, 6, 3, 7, 5

OPTIONS = {
    "none": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 23},
    "softcap": {"softcap": 1.5},
    "slopes": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.3, 0.05, 0.01])},
    "slopes of each sequence": {"alibi_slopes": torch.rand(B, H_Q, generator=torch.Generator().manual_seed(1))},
    "sinks": {"sinks": torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0])},
    "scale": {"scale": 0.9},
    "all": {
        "is_causal": True, "window": 41, "softcap": 2.5, "scale": 0.6,
        "alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.3, 0.05, 0.01]),
        "sinks": torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]),
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_splits(monkeypatch):
    """Splits of 16 keys, so that a few dozen keys are several splits and a rest."""
    monkeypatch.setattr(MODULE, "FEWEST", 16)
    monkeypatch.setattr(MODULE, "BUFFER", 16 * H_KV * D)
    monkeypatch.setattr(MODULE, "IN_PLACE", 1)


def inputs(dtype, t_q=1, t_kv=61, b=B, seed=0):
    """q, k, v with grouped heads and different sizes along every axis."""
    g = torch.Generator().manual_seed(seed)
    shapes = ((b, H_Q, t_q, D), (b, H_KV, t_kv, D), (b, H_KV, t_kv, D_V))
    return [torch.randn(*shape, dtype=torch.float64, generator=g).to(dtype) for shape in shapes]


def either_order(right, q, k, v, **options):
    """A plain calculation, with sums in the order that gives the larger error: splits have an order of their own."""
    ways = [plain(q, k, v, backwards=backwards, **options) for backwards in (False, True)]
    return worst(right, *ways)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("t_q", [1, 5])
@pytest.mark.parametrize("name", OPTIONS)
def test_right_with_every_option(dtype, t_q, name):
    """As near to the truth as a plain calculation in the same dtype, lse too; garbage is refused."""
    q, k, v = inputs(dtype, t_q)
    options = {key: x.to(dtype) if isinstance(x, torch.Tensor) else x for key, x in OPTIONS[name].items()}
    right = exact(q, k, v, **options)
    baseline = either_order(right["out"], q, k, v, **options)
    out, lse = decode(q, k, v, return_lse=True, **options)
    assert out.dtype == dtype
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_right(out, right["out"], baseline)
    assert_right(lse, right["lse"], plain_lse(q, k, v, **options), roundings=2)
    if dtype in (torch.float64, torch.float32):
        assert_refuses(garbage(q, k, v, **options), right["out"], baseline)


@pytest.mark.parametrize("shape", [(61,), (1, 61), (5, 61), (B, 1, 1, 61), (B, H_Q, 5, 61), (5, 1)])
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_right_with_masks_that_broadcast(shape, kind):
    """A mask of fewer axes, or of length 1, stands for its repetition; −inf and booleans hide."""
    q, k, v = inputs(torch.float32, 5)
    g = torch.Generator().manual_seed(2)
    allowed = torch.rand(shape, generator=g) < 0.6
    bias = torch.randn(shape, generator=g)
    mask = allowed if kind == "boolean" else torch.where(allowed, bias, -torch.inf)
    whole = (B, H_Q, 5, 61)
    options = {"allowed": np.broadcast_to(allowed, whole), "is_causal": True}
    if kind == "float":
        options["bias"] = torch.broadcast_to(torch.where(allowed, bias, 0), whole)
    out = decode(q, k, v, mask=mask, is_causal=True)
    right = exact(q, k, v, **options)["out"]
    assert_right(out, right, either_order(right, q, k, v, **options))


@pytest.mark.parametrize(("t_q", "t_kv"), [(1, 1), (1, 5), (5, 2), (1, 16), (1, 17), (3, 33), (7, 97)])
def test_lengths_around_the_splits(t_q, t_kv):
    """One key, exactly a split, a split and one; causal queries before the first key give 0 and lse −inf."""
    q, k, v = inputs(torch.float64, t_q, t_kv)
    right = exact(q, k, v, is_causal=True)
    out, lse = decode(q, k, v, is_causal=True, return_lse=True)
    assert_right(out, right["out"], either_order(right["out"], q, k, v, is_causal=True))
    np.testing.assert_allclose(lse, right["lse"], rtol=1e-13, atol=1e-13)
    blind = max(t_q - t_kv, 0)
    assert (out[:, :, :blind] == 0).all()
    assert (lse[:, :, :blind] == -torch.inf).all()


def test_one_new_token_sees_the_whole_past():
    """t_q 1, t_kv 5, causal: the mean of all five for equal scores, not v[0] as top-left alignment gives."""
    q, k, v = inputs(torch.float64, 1, 5)
    out = decode(q * 0, k, v, is_causal=True)
    torch.testing.assert_close(out[:, ::2, 0], v.mean(2))


def test_half_precision_is_accumulated_in_float32():
    """Scores of several hundred: bfloat16 keeps 8 bits of them, which would move the weights by whole factors."""
    q, k, v = inputs(torch.bfloat16, 1, 61)
    right = exact(q, k, v, scale=60.0)["out"]
    error = np.abs(decode(q, k, v, scale=60.0).double().numpy() - right).max()
    in_bfloat16 = np.abs(plain(q, k, v, scale=60.0).double().numpy() - right).max()
    assert error < 2**-8 * np.abs(right).max() < in_bfloat16 / 10


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("t_q", "d"), [(1, 7), (3, 7), (1, 16), (3, 32)])
def test_alone_and_in_a_batch_the_same_bits(dtype, t_q, d):
    """A request in a batch of seven gives what it gives alone, bit for bit: splits have a fixed size."""
    g = torch.Generator().manual_seed(8)
    shapes = ((7, H_Q, t_q, d), (7, H_KV, 203, d), (7, H_KV, 203, d))
    q, k, v = (torch.randn(*shape, dtype=torch.float64, generator=g).to(dtype) for shape in shapes)
    out, lse = decode(q, k, v, is_causal=True, return_lse=True)
    for n in range(7):
        one, one_lse = decode(*(x[n : n + 1].clone() for x in (q, k, v)), is_causal=True, return_lse=True)
        assert torch.equal(one, out[n : n + 1])
        assert torch.equal(one_lse, lse[n : n + 1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_in_a_batch_the_same_bits(side):
    """Also where requests of other lengths pad it: it is cut into splits from its own first key."""
    lengths = [203, 1, 17, 59, 100, 64, 31]
    q, k, v = inputs(torch.float32, 1, 203, b=7)
    places = [slice(0, n) if side == "right" else slice(203 - n, 203) for n in lengths]
    mask = torch.zeros(7, 1, 1, 203, dtype=torch.bool)
    for n, place in enumerate(places):
        mask[n, ..., place] = True
        k[n, :, ~mask[n, 0, 0]] = v[n, :, ~mask[n, 0, 0]] = torch.nan
    out = decode(q, k, v, mask=mask)
    for n, place in enumerate(places):
        one = (x[n : n + 1, :, place].contiguous() for x in (k, v))
        assert torch.equal(decode(q[n : n + 1], *one), out[n : n + 1])


@pytest.mark.parametrize("garbage_value", [torch.nan, torch.inf, -torch.inf])
def test_garbage_in_hidden_keys_stays_there(garbage_value):
    """A padded cache may hold anything: no row that hides the key is touched, every row that sees it is."""
    q, k, v = inputs(torch.float32, 5)
    clean = decode(q, k, v, is_causal=True)
    for x in (k, v):
        spoilt = x.clone()
        spoilt[1, 2, 59] = garbage_value  # seen by queries 3 and 4 of the second sequence, heads 4 and 5
        out = decode(q, spoilt if x is k else k, spoilt if x is v else v, is_causal=True)
        hit = ~torch.isclose(out, clean, rtol=1e-5, atol=1e-6).all(-1)
        assert (hit if x is v or garbage_value != garbage_value else hit[1, 4:, 3:]).any()
        hit[1, 4:, 3:] = False
        assert not hit.any()
    q[0, 3, 2] = torch.nan
    lost = decode(q, k, v, is_causal=True).isnan().any(-1)
    assert lost[0, 3, 2]
    assert lost.sum() == 1


def test_gradients_are_the_truth():
    """Of q, k, v, a mask of floats, slopes and sinks, with d_lse too; a row that sees nothing sends none."""
    q, k, v = inputs(torch.float64, 3, 37)
    g = torch.Generator().manual_seed(3)
    bias = torch.randn(3, 37, dtype=torch.float64, generator=g)
    slopes, sinks = (torch.rand(H_Q, dtype=torch.float64, generator=g) for _ in range(2))
    d_out, d_lse = (torch.randn(B, H_Q, 3, *n, dtype=torch.float64, generator=g) for n in ((D_V,), ()))
    leaves = {"q": q, "k": k, "v": v, "bias": bias, "alibi_slopes": slopes, "sinks": sinks}
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    named = {("mask" if name == "bias" else name): x for name, x in leaves.items()}
    out, lse = decode(**named, is_causal=True, window=19, softcap=1.7, return_lse=True)
    got = torch.autograd.grad((out * d_out).sum() + (lse * d_lse).sum(), list(leaves.values()))
    options = {name: x.detach() for name, x in leaves.items() if name not in "qkv"}
    options |= {"is_causal": True, "window": 19, "softcap": 1.7, "d_out": d_out, "d_lse": d_lse}
    options["bias"] = options["bias"].expand(B, H_Q, 3, 37)
    qkv = [x.detach() for x in (q, k, v)]
    right, baseline = exact(*qkv, **options), plain_gradients(*qkv, **options)
    for name, grad in zip(leaves, got, strict=True):
        if name == "bias":
            right[name], baseline[name] = right[name].sum((0, 1)), baseline[name].sum((0, 1))
        assert_right(grad, right[name].astype(np.float64), baseline[name], roundings=4)


def test_the_gradient_has_none():
    """It says so instead of giving a wrong second derivative."""
    q, k, v = (x.requires_grad_() for x in inputs(torch.float64))
    (d_q,) = torch.autograd.grad(decode(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"^attnbook\.tiled\.decode can be differentiated once: its gradient is"):
        d_q.sum().backward()


@pytest.mark.parametrize("layout", ["(b, t, h, d)", "every second", "expanded"])
def test_any_strides(layout):
    """Transposed, sliced and expanded keys and values give the bits of contiguous ones."""
    q, k, v = inputs(torch.float32)
    if layout == "(b, t, h, d)":
        views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    elif layout == "every second":
        views = [torch.stack([x, x * 0 - 9], -1).flatten(-2)[..., ::2] for x in (q, k, v)]
    else:
        q, k, v = (x[:1].expand(B, -1, -1, -1) for x in (q, k, v))
        views = (q, k, v)
    assert torch.equal(decode(*views), decode(*(x.contiguous() for x in (q, k, v))))


class Largest(TorchDispatchMode):
    """Writes down how many numbers the largest tensor holds that an operation made anew."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view and "out" not in (kwargs or {}):
            self.size = max(self.size, result.numel())
        return result


def test_keys_and_values_are_never_repeated_nor_copied_whole(monkeypatch):
    """Nothing larger than a split comes into being, however long the cache."""
    monkeypatch.setattr(MODULE, "BUFFER", 64 * H_KV * D)
    q, k, v = inputs(torch.bfloat16, 1, 1009)
    with Largest() as largest:
        decode_forward(q, k, v)
    assert largest.size <= 64 * H_KV * D
    assert k.numel() > 15 * largest.size


@pytest.mark.parametrize(("options", "keys"), [({}, 61), ({"is_causal": True, "window": 23}, 23)])
def test_only_keys_in_sight_are_read(options, keys, monkeypatch):
    """A window reads its own keys, from the first one on; a mask's hidden ends and whole hidden splits are left out."""
    read = []
    at_hand = MODULE._Room.at_hand
    monkeypatch.setattr(MODULE._Room, "at_hand", lambda room, x: read.append(x.shape[1]) or at_hand(room, x))
    q, k, v = inputs(torch.float32, b=1)
    decode(q, k, v, **options)
    assert sum(read) == 2 * keys
    mask = torch.zeros(61, dtype=torch.bool)
    mask[[41, 59]] = True
    read.clear()
    decode(q, k, v, mask=mask, **options)
    assert sum(read) == 2 * 19
    mask[[3, 60]] = True
    read.clear()
    decode(q, k, v, mask=mask)
    assert sum(read) == 2 * (16 + 16 + 10)  # of 3–18, 19–34, 35–50, 51–60 the second is hidden
    read.clear()
    out, lse = decode(q, k, v, mask=torch.zeros(1, dtype=torch.bool), return_lse=True)
    assert (len(read), out.abs().max(), lse.max()) == (0, 0, -torch.inf)


@pytest.mark.parametrize("axis", ["b", "t_q", "t_kv", "h", "d_v", "d"])
def test_empty_axes(axis):
    """Any axis may be empty; without keys the output is 0 and lse the sink."""
    sizes = {"b": 2, "h": 3, "t_q": 1, "t_kv": 5, "d": 7, "d_v": 5} | {axis: 0}
    b, h, t_q, t_kv, d, d_v = sizes.values()
    q, k, v = torch.ones(b, h, t_q, d), torch.ones(b, h, t_kv, d), torch.ones(b, h, t_kv, d_v)
    out, lse = decode(q, k, v, scale=1.0, sinks=torch.full((h,), 2.0), return_lse=True)
    assert (out.shape, lse.shape) == ((b, h, t_q, d_v), (b, h, t_q))
    if axis == "t_kv":
        assert (out == 0).all()
        assert (lse == 2).all()
    if axis == "d":
        torch.testing.assert_close(lse, torch.full_like(lse, np.log(5 + np.exp(2))))


def test_agrees_with_the_tiles():
    """Both are the same attention; only the order of sums differs."""
    q, k, v = inputs(torch.float64, 5)
    torch.testing.assert_close(decode(q, k, v, is_causal=True), attention(q, k, v, is_causal=True, tile_q=2, tile_k=3))


def test_which_calls_it_takes():
    """Few rows for each key and many keys; grouped heads count as rows."""

    def sizes(n_heads=32, n_kv_heads=8, t_q=1, t_kv=8192):
        return AttentionSizes(1, n_heads, n_kv_heads, t_q, t_kv, 128, 128)

    assert takes_decode(sizes())
    assert takes_decode(sizes(t_q=5))
    assert not takes_decode(sizes(t_q=8192))
    assert not takes_decode(sizes(n_kv_heads=1, t_q=5))
    assert not takes_decode(sizes(t_kv=31))
    assert not takes_decode(sizes(n_heads=0, n_kv_heads=0))


def test_errors_are_those_of_attention():
    """Each says axis, expectation and what came."""
    q, k, v = inputs(torch.float32)
    for error, text, change in (
        (ShapeError, "k has 5 heads (axis h) but q has 6: n_heads must be a multiple of n_kv_heads",
         {"k": torch.ones(B, 5, 61, D), "v": torch.ones(B, 5, 61, D_V)}),
        (DTypeError, "v has dtype torch.float64 but q has torch.float32: they must be equal", {"v": v.double()}),
        (ValueError, "window is 3 but is_causal is False: a window looks back, so it needs is_causal=True",
         {"window": 3}),
        (TypeError, "k is a numpy.ndarray: expected a torch.Tensor", {"k": k.numpy()}),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            decode(**{"q": q, "k": k, "v": v} | change)
