"""Packed sequences in tiles: each as if it were alone, nothing beyond the last, batched or one by one."""

import itertools
import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.tiled import attention
from attnbook.tiled.packed import SHORT, batches
from attnbook.tiled.varlen import attention_varlen
from tests.tolerance import assert_right, exact, plain, plain_gradients, plain_lse, worst

H_Q, H_KV, D, D_V = 4, 2, 7, 5
CU_Q = [0, 5, 5, 8, 13, 24, 27, 29]  # lengths 5, 0, 3, 5, 11, 3, 2
CU_K = [0, 7, 10, 10, 17, 28, 28, 35]  # lengths 7, 3, 0, 7, 11, 0, 7: two pairs of equal lengths
T_Q, T_KV = 31, 37  # two rows of each belong to no sequence
N = len(CU_Q) - 1

G = torch.Generator().manual_seed(11)
OPTIONS = {
    "none": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 3},
    "softcap and scale": {"softcap": 1.5, "scale": 0.9},
    "slopes": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])},
    "slopes of each sequence": {"alibi_slopes": torch.rand(N, H_Q, generator=G), "is_causal": True},
    "booleans": {"mask": torch.rand(H_Q, T_Q, T_KV, generator=G) < 0.7},
    "bias": {"mask": torch.randn(T_Q, T_KV, generator=G), "is_causal": True},
    "hidden keys": {"mask": torch.rand(T_KV, generator=G) < 0.7},
    "sinks": {"sinks": torch.tensor([-1.0, 0.0, 1.0, 5.0])},
}  # fmt: skip


def inputs(dtype, seed=0):
    """Packed q, k, v (t, h, d)."""
    g = torch.Generator().manual_seed(seed)
    shapes = ((T_Q, H_Q, D), (T_KV, H_KV, D), (T_KV, H_KV, D_V))
    return [torch.randn(*shape, dtype=torch.float64, generator=g).to(dtype) for shape in shapes]


def alone(n, x, ends):
    """Sequence n of a packed tensor, as a batch of one: (1, h, t, …)."""
    return x[ends[n] : ends[n + 1]].transpose(0, 1)[None]


def own(n, options):
    """The options of sequence n alone, as the truth takes them."""
    options = dict(options)
    mask = options.pop("mask", None)
    if mask is not None:
        block = mask.expand(H_Q, T_Q, T_KV)[None, :, CU_Q[n] : CU_Q[n + 1], CU_K[n] : CU_K[n + 1]]
        options["allowed" if mask.dtype == torch.bool else "bias"] = block
    if options.get("alibi_slopes") is not None and options["alibi_slopes"].ndim == 2:
        options["alibi_slopes"] = options["alibi_slopes"][n]
    return options


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_each_sequence_is_the_truth(dtype, name):
    """In every dtype, lse too; one without keys gives zeros (lse: the sink), and rows of no sequence zeros and −inf."""
    qkv = inputs(dtype)
    options = {
        key: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for key, x in OPTIONS[name].items()
    }
    out, lse = attention_varlen(*qkv, CU_Q, CU_K, return_lse=True, **options)
    assert (out.dtype, out.shape, lse.shape) == (dtype, (T_Q, H_Q, D_V), (T_Q, H_Q))
    for n in range(N):
        one = [alone(n, x, ends) for x, ends in zip(qkv, (CU_Q, CU_K, CU_K), strict=True)]
        if not one[0].shape[2]:
            continue
        right = exact(*one, **own(n, options))
        ways = [plain(*one, backwards=backwards, **own(n, options)) for backwards in (False, True)]
        assert_right(alone(n, out, CU_Q), right["out"], worst(right["out"], *ways))
        seen = np.isfinite(right["lse"])
        got = alone(n, lse, CU_Q)
        assert (got[torch.tensor(~seen)] == -torch.inf).all()
        if seen.any():
            assert_right(got[seen], right["lse"][seen], plain_lse(*one, **own(n, options))[seen], roundings=2)
    assert (out[29:] == 0).all()
    assert (lse[29:] == -torch.inf).all()


@pytest.mark.parametrize("name", ["none", "window", "slopes of each sequence", "sinks"])
def test_batched_and_one_by_one(name, monkeypatch):
    """Sequences of equal length are calculated together, wherever they lie; it changes nothing but the time."""
    options = dict(OPTIONS[name])
    leaves = [x.requires_grad_() for x in inputs(torch.float64)]
    for key in ("alibi_slopes", "sinks"):
        if key in options:
            options[key] = options[key].double().requires_grad_()
            leaves.append(options[key])
    weight = torch.randn(T_Q, H_Q, D_V, dtype=torch.float64, generator=torch.Generator().manual_seed(6))

    def results():
        out, lse = attention_varlen(*leaves[:3], CU_Q, CU_K, return_lse=True, **options)
        return out, lse, *torch.autograd.grad((out * weight).sum(), leaves)

    together = results()
    monkeypatch.setattr("attnbook.tiled.packed.SHORT", 0)
    for x, y in zip(together, results(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)


def test_which_sequences_form_a_batch(monkeypatch):
    """Short ones of equal lengths from anywhere, long ones where they lie one after another; empty ones none."""
    monkeypatch.setattr("attnbook.tiled.packed.SHORT", 3)
    cu = [0, 5, 10, 12, 17, 19, 19, 24]  # lengths 5, 5, 2, 5, 2, 0, 5
    assert [x.sequences for x in batches(cu, cu)] == [[0, 1], [2, 4], [3], [6]]
    assert [x.sequences for x in batches(cu, cu, alone=True)] == [[0], [1], [2], [3], [4], [6]]
    assert [x.sequences for x in batches([0, 5, 10, 15], [0, 5, 9, 14])] == [[0], [1], [2]]


def test_a_batch_of_neighbours_is_a_view():
    """Nothing is copied where equal sequences lie one after another; scattered ones are collected and put back."""
    x = torch.randn(24, 2, 3)
    (batch,) = batches([0, 6, 12, 18], [0, 6, 12, 18])
    view = batch.queries(x)
    assert view.shape == (3, 2, 6, 3)
    assert view.data_ptr() == x.data_ptr()
    first, _ = batches([0, 4, 9, 13], [0, 4, 9, 13])
    into = torch.zeros_like(x)
    first.put_queries(into, first.queries(x))
    assert torch.equal(into[[*range(4), *range(9, 13)]], x[[*range(4), *range(9, 13)]])
    assert (into[4:9] == 0).all()
    assert SHORT >= 6


def test_long_sequences_equal_attention():
    """Longer than the limit up to which sequences are collected, and longer than a tile."""
    g = torch.Generator().manual_seed(4)
    cu = [0, 301, 602, 603, 904]
    q, k, v = (torch.randn(904, h, 5, dtype=torch.float64, generator=g) for h in (2, 1, 1))
    out = attention_varlen(q, k, v, cu, cu, is_causal=True)
    for start, stop in itertools.pairwise(cu):
        one = attention(*(x[start:stop].transpose(0, 1)[None] for x in (q, k, v)), is_causal=True)
        torch.testing.assert_close(out[start:stop].transpose(0, 1)[None], one, rtol=1e-12, atol=1e-12)


def test_a_sequence_never_sees_another():
    """NaN in one sequence, or in the rows of none, reaches that sequence's outputs and gradients alone."""
    q, k, v = inputs(torch.float64)
    for x in (k, v):
        x[10:17], x[35:] = torch.nan, torch.nan
    q[29:] = torch.nan
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out, lse = attention_varlen(*leaves, CU_Q, CU_K, return_lse=True)
    spoilt = torch.zeros(T_Q, dtype=torch.bool)
    spoilt[8:13] = True
    assert torch.equal(out.isnan().all(-1).all(-1), spoilt)
    assert torch.equal(out.isnan().any(-1).any(-1), spoilt)
    (out[~spoilt].sum() + lse[:5].sum()).backward()
    assert leaves[0].grad[~spoilt].isfinite().all()
    for x in leaves[1:]:
        assert x.grad[:10].isfinite().all()
        assert x.grad[17:].isfinite().all()


def test_gradients_are_the_truth():
    """Of every input, each sequence as if alone; slopes and sinks are summed over sequences; none from no sequence."""
    qkv = [x.requires_grad_() for x in inputs(torch.float64)]
    bias = torch.randn(T_Q, T_KV, dtype=torch.float64, generator=G).requires_grad_()
    slopes = torch.rand(N, H_Q, dtype=torch.float64, generator=G).requires_grad_()
    sinks = torch.randn(H_Q, dtype=torch.float64, generator=G).requires_grad_()
    d_out = torch.randn(T_Q, H_Q, D_V, dtype=torch.float64, generator=G)
    d_lse = torch.randn(T_Q, H_Q, dtype=torch.float64, generator=G)
    options = {"is_causal": True, "softcap": 1.7}
    others = {"mask": bias, "alibi_slopes": slopes, "sinks": sinks}
    out, lse = attention_varlen(*qkv, CU_Q, CU_K, **others, **options, return_lse=True)
    total = (out * d_out).sum() + (lse[:29] * d_lse[:29]).sum()
    got = dict(zip(["q", "k", "v", *others], torch.autograd.grad(total, [*qkv, *others.values()]), strict=True))

    sum_sinks = torch.zeros(H_Q, dtype=torch.float64)
    hit = torch.zeros(T_Q, T_KV, dtype=torch.bool)
    for n in range(N):
        of_q, of_k = slice(CU_Q[n], CU_Q[n + 1]), slice(CU_K[n], CU_K[n + 1])
        one = [alone(n, x.detach(), ends) for x, ends in zip(qkv, (CU_Q, CU_K, CU_K), strict=True)]
        if not one[0].shape[2]:
            continue
        hit[of_q, of_k] = True
        given = {
            "d_out": alone(n, d_out, CU_Q), "d_lse": alone(n, d_lse, CU_Q), "bias": bias.detach()[of_q, of_k],
            "alibi_slopes": slopes.detach()[n], "sinks": sinks.detach(), **options,
        }  # fmt: skip
        right, near = exact(*one, **given), plain_gradients(*one, **given)
        parts = {
            "q": alone(n, got["q"], CU_Q), "k": alone(n, got["k"], CU_K), "v": alone(n, got["v"], CU_K),
            "bias": got["mask"][of_q, of_k], "alibi_slopes": got["alibi_slopes"][n],
        }  # fmt: skip
        for name, part in parts.items():
            assert_right(part, right[name].astype(np.float64), near[name], roundings=4)
        sum_sinks += torch.from_numpy(right["sinks"].astype(np.float64))
    torch.testing.assert_close(got["sinks"], sum_sinks, rtol=1e-11, atol=1e-12)
    assert (got["mask"][~hit] == 0).all()
    assert (got["alibi_slopes"][1] == 0).all()
    assert all((got[name][rows] == 0).all() for name, rows in (("q", slice(29, 31)), ("k", slice(7, 10)), ("v", [35])))


def test_gradients_of_a_broadcast_mask_and_one_list_of_slopes():
    """An axis of length 1 sums over what it stands for, slopes (h,) over all sequences: gradcheck, grouped heads."""
    g = torch.Generator().manual_seed(5)
    shapes = ((6, 2, 3), (7, 1, 3), (7, 1, 2), (2, 6, 1), (2,), (2,))
    leaves = [torch.randn(*shape, dtype=torch.float64, generator=g, requires_grad=True) for shape in shapes]

    def call(q, k, v, bias, slopes, sinks):
        out, lse = attention_varlen(
            q, k, v, [0, 3, 3, 5], [0, 4, 5, 7], mask=bias, is_causal=True, window=2, softcap=1.7, alibi_slopes=slopes,
            sinks=sinks, return_lse=True,
        )  # fmt: skip
        return out, torch.where(lse == -torch.inf, 0.0, lse)

    assert torch.autograd.gradcheck(call, leaves)


def test_gradients_for_a_sum_whose_gradient_has_stride_0():
    """`out.sum().backward()` gives what a contiguous gradient gives."""
    first, second = ([x.requires_grad_() for x in inputs(torch.float64)] for _ in range(2))
    attention_varlen(*first, CU_Q, CU_K).sum().backward()
    out = attention_varlen(*second, CU_Q, CU_K)
    out.backward(torch.ones(out.shape, dtype=torch.float64).contiguous())
    for x, y in zip(first, second, strict=True):
        assert torch.equal(x.grad, y.grad)


def test_the_gradient_has_none():
    """It says so instead of passing for a constant."""
    q, k, v = (x.requires_grad_() for x in inputs(torch.float64))
    (d_q,) = torch.autograd.grad(attention_varlen(q, k, v, CU_Q, CU_K).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"^attnbook\.tiled\.attention_varlen can be differentiated once: its"):
        d_q.sum().backward()


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, lambda x: torch.tensor(x, dtype=torch.int32)])
def test_cumulative_lengths_of_every_kind(kind):
    """Lists, tuples, arrays and tensors, int32 and int64."""
    qkv = inputs(torch.float32)
    assert torch.equal(attention_varlen(*qkv, kind(CU_Q), kind(CU_K)), attention_varlen(*qkv, CU_Q, CU_K))


def test_no_sequences_and_no_rows():
    """[0] is no sequence: every row is zero, also with a sink; and t may be 0."""
    q, k = torch.ones(3, 2, 5, requires_grad=True), torch.ones(4, 1, 5)
    out, lse = attention_varlen(q, k, k, [0], [0], sinks=torch.ones(2), return_lse=True)
    out.sum().backward()
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    assert (q.grad == 0).all()
    out, lse = attention_varlen(q[:0], k[:0], k[:0], [0, 0], [0, 0], return_lse=True)
    assert (out.shape, lse.shape) == ((0, 2, 5), (0, 2))


@pytest.mark.parametrize(
    ("cu", "error", "text"),
    [
        ([0, 5, 4], ShapeError, "cu_seqlens_q[2] is 4 but cu_seqlens_q[1] is 5: they must not fall"),
        ([0, 32], ShapeError, "cu_seqlens_q ends at 32 but q has length 31 (axis t): expected at most 31"),
        ([1, 31], ShapeError, "cu_seqlens_q[0] is 1: expected 0, the start of the first sequence"),
        ([], ShapeError, "cu_seqlens_q is empty: expected 0 and then the end of each sequence"),
        ([0, 2.5], DTypeError, "cu_seqlens_q[1] is 2.5: expected a whole number"),
        (torch.tensor([0.0, 5.0]), DTypeError, "cu_seqlens_q has dtype torch.float32: expected whole numbers"),
        (np.zeros((2, 2), int), ShapeError,
         "cu_seqlens_q is (2, 2): expected one axis, a number more than there are sequences"),
        (5, ShapeError, "cu_seqlens_q is of type int: expected one axis, a number more than there are sequences"),
    ],
)  # fmt: skip
def test_lengths_that_are_none(cu, error, text):
    """Falling, too long, not from 0, empty, no whole numbers, more than one axis."""
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        attention_varlen(*inputs(torch.float32), cu, [0, 5])


def test_other_errors_name_what_came():
    """Also where no sequence holds a row: counts, the layout, a mask, options, dtypes, arrays of another library."""
    q, k, v = inputs(torch.float32)
    for error, text, change in (
        (ShapeError, "cu_seqlens_k counts 1 sequences but cu_seqlens_q 2: they must be equal",
         {"cu_seqlens_q": [0, 0, 0]}),
        (ShapeError, "q has 4 axes (1, 31, 4, 7): expected 3, (t, h, d): positions, heads, components", {"q": q[None]}),
        (ShapeError, "mask has length 5 along axis t_kv but the scores have 37: must be 37 or 1",
         {"mask": torch.ones(5, dtype=torch.bool)}),
        (ShapeError, "alibi_slopes has shape (2, 4): expected (h,) = (4,) or (b, h) = (1, 4)",
         {"alibi_slopes": torch.ones(2, 4)}),
        (ShapeError, "sinks has shape (2,): expected (h,) = (4,)", {"sinks": torch.ones(2)}),
        (ValueError, "window is 2 but is_causal is False: a window looks back, so it needs is_causal=True",
         {"window": 2}),
        (DTypeError, "k has dtype torch.float64 but q has torch.float32: they must be equal", {"k": k.double()}),
        (DTypeError, "sinks has dtype torch.int64: expected a floating-point dtype",
         {"sinks": torch.ones(4, dtype=torch.int64)}),
        (TypeError, "q is a numpy.ndarray: expected a torch.Tensor", {"q": q.numpy()}),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            attention_varlen(**{"q": q, "k": k, "v": v, "cu_seqlens_q": [0, 0], "cu_seqlens_k": [0, 0]} | change)
