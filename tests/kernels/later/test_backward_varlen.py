"""The backward kernels on packed sequences: each by itself, empty ones too, and what lies beyond them."""

import numpy as np
import pytest
import torch

from attnbook.kernels import flash
from attnbook.tiled.varlen import varlen_forward
from tests.kernels.backward_product import NAMES, everything, named
from tests.kernels.device import DEVICE
from tests.kernels.test_varlen import HEADS, LENGTHS, chosen, packed
from tests.tolerance import assert_right, exact, plain_gradients

MIXED = ([5, 0, 67, 33, 1], [5, 7, 41, 0, 71])


def normal(*shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def gradients(q, k, v, cu_q, cu_k, options, d_out=None, d_lse=None, **how):
    """The gradients by the truth's names, from the out and lse of another implementation."""
    out, lse = varlen_forward(q, k, v, cu_q.tolist(), cu_k.tolist(), **options)
    d_out = normal(*out.shape, seed=8, dtype=q.dtype) if d_out is None else d_out
    d_lse = normal(*lse.shape, seed=9) if d_lse is None else d_lse
    grads = flash.varlen_backward(d_out, d_lse, q, k, v, out, lse, cu_q, cu_k, **everything(options), **how)
    return named(grads, (q, k, v), options)


def alone(n, lengths, q, k, v, d_out, d_lse, options):
    """Sequence n as the truth takes it: a batch of one with its own part of everything, and where that part lies."""
    of_q, of_k = (slice(sum(x[:n]), sum(x[: n + 1])) for x in lengths)
    known = {key: x.cpu() if isinstance(x, torch.Tensor) else x for key, x in options.items() if key != "mask"}
    if known.get("alibi_slopes") is not None and known["alibi_slopes"].ndim == 2:
        known["alibi_slopes"] = known["alibi_slopes"][n]
    if options.get("mask") is not None:
        block = options["mask"].cpu()[..., of_q, of_k].expand(1, HEADS[0], -1, -1)
        known["allowed"] = (block if block.dtype == torch.bool else block > -torch.inf).numpy()
        if block.dtype != torch.bool:
            known["bias"] = torch.where(block > -torch.inf, block, 0.0)
    parts = ((q, of_q), (k, of_k), (v, of_k), (d_out, of_q))
    one = [x.cpu()[part].transpose(0, 1)[None] for x, part in parts]
    return one[:3], known | {"d_out": one[3], "d_lse": d_lse.cpu()[of_q].T[None]}, of_q, of_k


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["bare", "window", "slopes by sequence", "sinks", "floats", "everything"])
def test_each_sequence_is_attention_by_itself(name, dtype):
    """Mixed lengths, zero among them; slopes and sinks sum over all; only a sequence's own pairs of a mask count."""
    q, k, v, cu_q, cu_k = packed(MIXED, dtype=dtype)
    options = chosen(name, MIXED, dtype)
    d_out, d_lse = normal(q.shape[0], HEADS[0], v.shape[2], seed=8, dtype=dtype), normal(*q.shape[:2], seed=9)
    found = gradients(q, k, v, cu_q, cu_k, options, d_out, d_lse)
    out, lse = (x.cpu() for x in varlen_forward(q, k, v, cu_q.tolist(), cu_k.tolist(), **options))
    of_all = {key: [0.0, 0.0] for key in ("sinks", "alibi_slopes")}
    met = torch.zeros(q.shape[0], k.shape[0], dtype=torch.bool)
    for n in range(len(MIXED[0])):
        one, known, of_q, of_k = alone(n, MIXED, q, k, v, d_out, d_lse, options)
        if of_q.start == of_q.stop:
            assert (found["k"][of_k] == 0).all()
            assert (found["v"][of_k] == 0).all()
            continue
        right = exact(*one, **known)
        given = out[of_q].transpose(0, 1)[None], lse[of_q].T[None]
        near = plain_gradients(*one, **known, right=right, given=given)
        met[of_q, of_k] = True
        for key, rows in (("q", of_q), ("k", of_k), ("v", of_k)):
            assert_right(found[key][rows].transpose(0, 1)[None], right[key], near[key])
        if "bias" in found:
            assert_right(found["bias"][:, of_q, of_k][None], right["bias"], near["bias"])
        if "alibi_slopes" in found:
            assert_right(found["alibi_slopes"][n], right["alibi_slopes"], near["alibi_slopes"])
        of_all["sinks"] = [x + y.get("sinks", 0.0) for x, y in zip(of_all["sinks"], (right, near), strict=True)]
    if "sinks" in found:
        assert_right(found["sinks"], *of_all["sinks"])
    assert "bias" not in found or (found["bias"][:, ~met] == 0).all()
    assert set(found) == {"q", "k", "v"} | {NAMES[x] for x in NAMES if x in options and options[x].dtype != torch.bool}


@pytest.mark.parametrize("name", LENGTHS)
def test_it_equals_dense_calls(name):
    """Sequence by sequence, to the last bit: they are the same kernels."""
    lengths = LENGTHS[name]
    q, k, v, cu_q, cu_k = packed(lengths)
    out, lse = varlen_forward(q, k, v, cu_q.tolist(), cu_k.tolist(), is_causal=True)
    d_out = normal(*out.shape, seed=8)
    given = everything({"is_causal": True})
    grads = flash.varlen_backward(d_out, None, q, k, v, out, lse, cu_q, cu_k, **given)[:3]
    for n in range(len(lengths[0])):
        of_q, of_k = (slice(sum(x[:n]), sum(x[: n + 1])) for x in lengths)
        parts = ((d_out, of_q), (q, of_q), (k, of_k), (v, of_k), (out, of_q))
        first, *one = [x[part].transpose(0, 1)[None] for x, part in parts]
        expected = flash.attention_backward(first, None, *one, lse[of_q].T[None], **given)
        for x, y, part in zip(grads, expected[:3], (of_q, of_k, of_k), strict=True):
            assert torch.equal(x[part].transpose(0, 1)[None], y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_of_no_sequence():
    """Beyond the last one: NaN there, also in what comes down to them, and their gradients are 0; sinks get nothing."""
    q, k, v, cu_q, cu_k = packed(MIXED, left=9)
    ends = [sum(x) for x in MIXED]
    d_out, d_lse = normal(q.shape[0], HEADS[0], v.shape[2], seed=8), normal(*q.shape[:2], seed=9)
    for x, end in ((q, ends[0]), (k, ends[1]), (v, ends[1]), (d_out, ends[0]), (d_lse, ends[0])):
        x[end:] = torch.nan
    options = {"sinks": normal(HEADS[0], seed=3), "is_causal": True}
    found = gradients(q, k, v, cu_q, cu_k, options, d_out, d_lse, longest=(100, 100))
    cut = [x[:end] for x, end in ((q, ends[0]), (k, ends[1]), (v, ends[1]))]
    expected = gradients(*cut, cu_q, cu_k, options, d_out[: ends[0]], d_lse[: ends[0]])
    for key, end in (("q", ends[0]), ("k", ends[1]), ("v", ends[1])):
        assert (found[key][end:] == 0).all()
        assert torch.equal(found[key][:end], expected[key])
    torch.testing.assert_close(found["sinks"], expected["sinks"], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_sequence_sees_another():
    """NaN in all of one sequence leaves the gradients of the others the same bits, tail tiles too."""
    q, k, v, cu_q, cu_k = packed(MIXED)
    was = gradients(q, k, v, cu_q, cu_k, {"is_causal": True})
    q[5:72], k[12:53], v[12:53] = torch.nan, torch.nan, torch.nan  # the third
    now = gradients(q, k, v, cu_q, cu_k, {"is_causal": True})
    for key, own in (("q", slice(5, 72)), ("k", slice(12, 53)), ("v", slice(12, 53))):
        others = torch.ones(len(was[key]), dtype=torch.bool)
        others[own] = False
        assert torch.equal(now[key][others], was[key][others])
        assert now[key][own].isnan().any()


@pytest.mark.parametrize("shape", [(4, 1, 113), (106, 1), (4, 1, 1), ()], ids=str)
def test_the_gradient_of_a_packed_mask_has_its_shape(shape):
    """A mask with axes of length 1 gets what it stands for summed up, over sequences too."""
    lengths = ([5, 67, 33, 1], [5, 41, 0, 67])
    q, k, v, cu_q, cu_k = packed(lengths)
    mask = normal(*shape, seed=4)
    found = gradients(q, k, v, cu_q, cu_k, {"mask": mask, "is_causal": True})["bias"]
    whole = mask.expand(4, 106, 113).contiguous()
    whole = gradients(q, k, v, cu_q, cu_k, {"mask": whole, "is_causal": True})["bias"]
    assert whole.abs().sum() > 1
    torch.testing.assert_close(found, whole.sum_to_size(shape), rtol=1e-4, atol=1e-4)


def test_lengths_are_as_checked_as_in_forward():
    """Falling lengths are an error here, too, before anything runs."""
    q, k, v, cu_q, cu_k = packed(([12], [12]))
    lse = torch.zeros(12, HEADS[0], device=DEVICE)
    out = torch.zeros(12, HEADS[0], v.shape[2], device=DEVICE)
    with pytest.raises(ValueError, match="cu_seqlens_q ends at 13 but q has length 12"):
        flash.varlen_backward(out, None, q, k, v, out, lse, cu_q + torch.tensor([0, 1]), cu_k, **everything({}))


def test_sums_are_of_numbers():
    """What the tests above compare is not all 0."""
    q, k, v, cu_q, cu_k = packed(MIXED)
    found = gradients(q, k, v, cu_q, cu_k, {"is_causal": True})
    assert all(np.abs(x.numpy()).max() > 0.1 for x in found.values())
