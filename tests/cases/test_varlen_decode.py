"""Packed sequences, merging of partial results, and one request alone or among others."""

from functools import partial

import numpy as np
import pytest
import torch

import attnbook
from attnbook import reference, tiled
from attnbook.api import operators_varlen
from tests.cases.ways import DTYPES, TORCH, Known, normal, qkv, run
from tests.tolerance import assert_right


def operator(q, k, v, cu_q, cu_k, *, return_lse, **options):
    """The operator, which takes its options by place."""
    ends = torch.tensor(cu_q), torch.tensor(cu_k)
    rest = ("mask", "alibi_slopes", "sinks", "is_causal", "window", "softcap", "scale")
    defaults = {"is_causal": False}
    return operators_varlen.attention_varlen(q, k, v, *ends, *(options.get(x, defaults.get(x)) for x in rest))


def of_numpy(q, k, v, cu_q, cu_k, **options):
    """The reference on arrays."""
    arrays = {name: x.numpy() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    found = reference.attention_varlen(*(x.detach().numpy() for x in (q, k, v)), cu_q, cu_k, **arrays)
    return tuple(torch.from_numpy(x) for x in found)


PACKED = {
    "numpy": of_numpy,
    "reference": reference.attention_varlen,
    "tiled": tiled.attention_varlen,
    "auto": attnbook.attention_varlen,
    "operator": operator,
}
WITH_GRADIENTS = [way for way in PACKED if way != "numpy"]


def packed(t_q, t_kv, heads=(4, 2), d=5, dtype=torch.float32):
    """q, k, v, packed (t, h, d)."""
    return [x[0].transpose(0, 1).contiguous() for x in qkv(t_q, t_kv, b=1, heads=heads, d=d, dtype=dtype)]


ENDS = {
    "flash-attention#2470: the second of three is empty": ([0, 3, 3, 8], [0, 4, 4, 9]),
    "the first is empty": ([0, 0, 5], [0, 0, 7]),
    "the last is empty": ([0, 5, 5], [0, 7, 7]),
    "two in a row are empty": ([0, 2, 2, 2, 5], [0, 3, 3, 3, 4]),
    "all are empty": ([0, 0, 0], [0, 0, 0]),
    "there is none": ([0], [0]),
    "one has queries and no keys": ([0, 3, 5], [0, 0, 4]),
    "one has keys and no queries": ([0, 0, 5], [0, 3, 7]),
    "one has more queries than keys": ([0, 4, 6], [0, 2, 7]),
    "pytorch#176793: rows beyond the last": ([0, 2, 5], [0, 3, 6]),
}
OPTIONS = {
    "none": {},
    "causal": {"is_causal": True},
    "everything": {
        "is_causal": True, "window": 3, "softcap": 2.0, "alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.3]),
        "sinks": torch.tensor([0.5, -1.0, 2.0, 0.0]),
    },
}  # fmt: skip
BEYOND = 2


def alone(q, k, v, cu_q, cu_k, options):
    """Each sequence by itself: (rows of q, its call and the truth about it)."""
    for n in range(len(cu_q) - 1):
        of_q, of_k = slice(*cu_q[n : n + 2]), slice(*cu_k[n : n + 2])
        one = (q[of_q].transpose(0, 1)[None], k[of_k].transpose(0, 1)[None], v[of_k].transpose(0, 1)[None])
        if one[0].shape[2]:
            yield of_q, Known(*one, **options)


@pytest.mark.parametrize("way", PACKED)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ENDS)
def test_sequences_of_any_length(name, options, way):
    """Each is what it is alone; one of length 0 has no output row; rows that belong to none are 0, lse −inf."""
    cu_q, cu_k = ENDS[name]
    q, k, v = packed(cu_q[-1] + BEYOND, cu_k[-1] + BEYOND)
    q[cu_q[-1] :], k[cu_k[-1] :], v[cu_k[-1] :] = torch.nan, torch.nan, torch.inf  # nobody reads these
    out, lse = PACKED[way](q, k, v, cu_q, cu_k, return_lse=True, **OPTIONS[options])
    assert out.shape == q.shape
    assert (out[cu_q[-1] :] == 0).all()
    assert (lse[cu_q[-1] :] == -torch.inf).all()
    for rows, known in alone(q, k, v, cu_q, cu_k, OPTIONS[options]):
        known._check_values(out[rows].transpose(0, 1)[None], lse[rows].transpose(0, 1)[None])


@pytest.mark.parametrize("way", WITH_GRADIENTS)
@pytest.mark.parametrize("options", ["causal", "everything"])
@pytest.mark.parametrize("name", ENDS)
def test_gradients_of_sequences_of_any_length(name, options, way):
    """No NaN; exactly 0 for every row of no sequence, and for keys that no query looks at; otherwise as alone."""
    cu_q, cu_k = ENDS[name]
    leaves = [x.requires_grad_() for x in packed(cu_q[-1] + BEYOND, cu_k[-1] + BEYOND)]
    out, lse = PACKED[way](*leaves, cu_q, cu_k, return_lse=True, **OPTIONS[options])
    d_out = normal(*out.shape, seed=5)
    total = (out * d_out).sum() + torch.where(lse.isfinite(), lse, 0.0).sum()
    grads = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else [None] * 3
    d_q, d_k, d_v = (torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves, strict=True))
    right = [torch.zeros(x.shape, dtype=torch.float64) for x in leaves]
    q, k, v = (x.detach() for x in leaves)
    for n in range(len(cu_q) - 1):
        of_q, of_k = slice(*cu_q[n : n + 2]), slice(*cu_k[n : n + 2])
        one = [x[rows].transpose(0, 1)[None] for x, rows in ((q, of_q), (k, of_k), (v, of_k))]
        known = Known(
            *one, d_out=d_out[of_q].transpose(0, 1)[None], d_lse=torch.ones(one[0].shape[:3]), **OPTIONS[options]
        )
        for into, rows, of in zip(right, (of_q, of_k, of_k), "qkv", strict=True):
            into[rows] = torch.tensor(known.of(True)[0][of])[0].transpose(0, 1)
    for found, expected in zip((d_q, d_k, d_v), right, strict=True):
        assert (found[(expected == 0).all(-1).all(-1)] == 0).all()
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("way", WITH_GRADIENTS)
def test_one_sequence_does_not_see_another(way):
    """A NaN in one of three stays in it, in both directions."""
    cu = [0, 3, 6, 10]
    leaves = packed(10, 10)
    for x in leaves:
        x[3:6] = torch.nan
        x.requires_grad_()
    out = PACKED[way](*leaves, cu, cu, return_lse=True)[0]
    assert out[3:6].isnan().all()
    for x in (out, *torch.autograd.grad(out[torch.tensor([0, 1, 2, 6, 7, 8, 9])].sum(), leaves)):
        assert x[:3].isfinite().all()
        assert x[6:].isfinite().all()


# Merging


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_two_results_that_saw_nothing_merge(library):
    """flashinfer#4051: (0, −inf) and (0, −inf) give (0, −inf), not NaN; one that saw nothing changes nothing."""
    xp = np if library == "numpy" else torch
    out, lse = xp.asarray([[0.5, -2.0], [0.0, 0.0]]), xp.asarray([1.5, -np.inf])
    none, none_lse = xp.zeros((2, 2), dtype=out.dtype), xp.asarray([-np.inf, -np.inf], dtype=lse.dtype)
    for sides in ((out, lse, none, none_lse), (none, none_lse, out, lse)):
        merged, merged_lse = reference.merge(*sides)
        assert merged.tolist() == out.tolist()
        assert merged_lse.tolist() == lse.tolist()


def test_merging_nothing_has_gradient_0():
    """And no NaN: rows that saw nothing on one side or on both."""
    leaves = [x.requires_grad_() for x in (normal(3, 2), normal(3), normal(3, 2, seed=1), normal(3, seed=1))]
    hidden = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    lse_a, lse_b = (x.masked_fill(h, -torch.inf) for x, h in zip((leaves[1], leaves[3]), hidden, strict=True))
    out, lse = reference.merge(leaves[0], lse_a, leaves[2], lse_b)
    assert (out[0] == 0).all()
    assert lse[0] == -torch.inf
    for grad in torch.autograd.grad(out.sum() + lse[1:].sum(), leaves):
        assert grad.isfinite().all()
        assert (grad[0] == 0).all()


@pytest.mark.parametrize("way", [way for way in TORCH if way != "sdpa"])
@pytest.mark.parametrize("cut", [0, 3, 7])
def test_parts_of_the_keys_merge_to_the_whole(cut, way):
    """Also where one part is empty, and where a row sees nothing in one part or in any."""
    q, k, v = qkv(4, 7)
    mask = torch.tensor([[True] * 7, [True] * 3 + [False] * 4, [False] * 3 + [True] * 4, [False] * 7])
    parts = (run(way, q, k[:, :, s], v[:, :, s], mask=mask[:, s]) for s in (slice(cut), slice(cut, None)))
    (out_a, lse_a), (out_b, lse_b) = parts
    out, lse = reference.merge(out_a, lse_a, out_b, lse_b)
    whole, whole_lse = run(way, q, k, v, mask=mask)
    torch.testing.assert_close(out, whole)
    torch.testing.assert_close(lse, whole_lse)


# Alone and in a batch


def requests(n, t_kv, dtype, heads=(8, 2), d=16):
    q, k, v = qkv(1, t_kv, b=n, heads=heads, d=d, dtype=dtype)
    return q, k, v


DECODING = {
    "decode": tiled.decode,
    "auto": attnbook.attention,
    "reference": reference.attention,
    "tiled": tiled.attention,
    "sdpa": partial(attnbook.attention, impl="sdpa"),
}
SAME_BITS = ("decode",)
"""Where splits have a fixed size and no product spans two sequences."""


@pytest.mark.parametrize("way", DECODING)
@pytest.mark.parametrize("t_kv", [1, 300, 1301])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_request_alone_and_among_seven(dtype, t_kv, way):
    """flash-attention#1897: with a fixed split size the same bits; elsewhere as right alone as in the batch."""
    q, k, v = requests(7, t_kv, dtype)
    together = DECODING[way](q, k, v, is_causal=True)
    for n in (0, 3, 6):
        own = slice(n, n + 1)
        one = DECODING[way](q[own], k[own], v[own], is_causal=True)
        if way in SAME_BITS:
            assert torch.equal(one, together[own])
        elif n == 3:
            right, baseline = Known(q[own], k[own], v[own]).of(False)
            assert_right(one, right["out"], baseline["out"])
            assert_right(together[own], right["out"], baseline["out"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_request_alone_and_among_seven_of_other_lengths(dtype):
    """flash-attention#1897: a paged cache calculates each sequence by itself: the same bits, whatever else is there."""
    lengths = [300, 1, 37, 700, 256, 5, 512]
    q, k, v = requests(7, 700, dtype)
    cache = attnbook.PagedKVCache(70, 32)
    cache.append(k, v, lengths)
    decode = attnbook.attend(q.expand(-1, -1, 700, -1)[:, :, -1:], _newest(cache, k, v, lengths))
    for n in (0, 3, 5):
        own = attnbook.PagedKVCache(30, 32)
        own.append(k[n : n + 1, :, : lengths[n]], v[n : n + 1, :, : lengths[n]])
        _again(own, k[n : n + 1], v[n : n + 1])
        assert torch.equal(attnbook.attend(q[n : n + 1], own), decode[n : n + 1])


def _newest(cache, k, v, lengths):
    """The cache with one more token for each sequence."""
    _again(cache, k, v)
    assert cache.lengths.tolist() == [n + 1 for n in lengths]
    return cache


def _again(cache, k, v):
    cache.append(k[:, :, :1], v[:, :, :1])
