"""The forward kernel on packed sequences: each by itself, empty ones too, and what lies beyond them."""

import itertools

import pytest
import torch

from attnbook.errors import ShapeError
from attnbook.kernels import flash
from attnbook.kernels.flash import forward
from tests.kernels.device import DEVICE
from tests.kernels.forward_product import every_other, options_of
from tests.tolerance import assert_right, exact, plain, plain_lse, worst

LENGTHS = {
    "mixed": ([5, 0, 67, 33, 1], [5, 7, 41, 0, 71]),
    "one": ([45], [45]),
    "all empty": ([0, 0], [3, 0]),
    "first and last empty": ([0, 35, 0], [0, 35, 0]),
}
NAMES = (
    "bare",
    "causal",
    "window",
    "softcap",
    "slopes",
    "slopes by sequence",
    "sinks",
    "booleans",
    "floats",
    "everything",
)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEADS, D, D_V = (4, 2), 23, 17


def cumulative(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)


def packed(lengths, *, left=0, dtype=torch.float32):
    """q, k, v of these lengths and as many rows more that belong to no sequence, and both cumulative lengths."""
    t_q, t_kv = (sum(x) + left for x in lengths)
    seed = torch.Generator().manual_seed(5)
    q, k, v = (
        torch.randn(shape, generator=seed).to(dtype).to(DEVICE)
        for shape in ((t_q, HEADS[0], D), (t_kv, HEADS[1], D), (t_kv, HEADS[1], D_V))
    )
    return q, k, v, *map(cumulative, lengths)


def chosen(name, lengths, dtype):
    """Options on the packed axes: the mask has one batch."""
    seed = torch.Generator().manual_seed(6)
    t_q, t_kv = map(sum, lengths)
    options = options_of(name, (len(lengths[0]), HEADS[0], max(t_q, 1), max(t_kv, 1)), seed, dtype)
    if options.get("mask") is not None and options["mask"].ndim == 4:
        options["mask"] = options["mask"][0]
    return {key: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for key, x in options.items()}


def each(lengths, q, k, v, options, dtype):
    """For each sequence that has queries: where they lie, and its truth and baseline by a dense calculation."""
    q_start = k_start = 0
    for i, (n_q, n_k) in enumerate(zip(*lengths, strict=True)):
        of_q, of_k = slice(q_start, q_start + n_q), slice(k_start, k_start + n_k)
        q_start, k_start = of_q.stop, of_k.stop
        if n_q == 0:
            continue
        one, keys, values = (x.cpu()[part].transpose(0, 1)[None] for x, part in ((q, of_q), (k, of_k), (v, of_k)))
        known = {key: x.cpu() if isinstance(x, torch.Tensor) else x for key, x in options.items() if key != "mask"}
        if known.get("alibi_slopes") is not None and known["alibi_slopes"].ndim == 2:
            known["alibi_slopes"] = known["alibi_slopes"][i]
        mask = options.get("mask")
        if mask is not None:
            block = mask.cpu()[..., of_q, of_k].expand(1, HEADS[0], n_q, n_k)
            known["allowed"] = (block if block.dtype == torch.bool else block > -torch.inf).numpy()
            if block.dtype != torch.bool:
                known["bias"] = torch.where(block > -torch.inf, block, 0.0)
        right = exact(one, keys, values, **known)
        both = [{"backwards": False}, {"backwards": True}]
        baselines = (
            worst(right[name], *(way(one, keys, values, **known, **how) for how in both))
            for name, way in (("out", plain), ("lse", plain_lse))
        )
        yield of_q, right, *baselines


@pytest.mark.parametrize(("name", "dtype"), list(zip(NAMES, itertools.cycle(DTYPES), strict=False)), ids=str)
def test_each_sequence_is_attention_by_itself(name, dtype):
    """Mixed lengths, zero among them; every option, in turns of dtype: `later` has every pair."""
    by_itself(name, dtype)


def by_itself(name, dtype):
    """Check that out and lse of each sequence are as near to float64 as a plain calculation of it alone."""
    lengths = LENGTHS["mixed"]
    q, k, v, cu_q, cu_k = packed(lengths, dtype=dtype)
    options = chosen(name, lengths, dtype)
    out, lse = flash.varlen_forward(q, k, v, cu_q, cu_k, **options)
    assert out.dtype == dtype
    assert out.shape == (sum(lengths[0]), HEADS[0], D_V)
    assert lse.shape == (sum(lengths[0]), HEADS[0])
    for rows, right, baseline, baseline_lse in each(lengths, q, k, v, options, dtype):
        found, found_lse = out[rows].transpose(0, 1)[None].cpu(), lse[rows].T[None].cpu()
        assert_right(found, right["out"], baseline)
        finite = torch.from_numpy(right["lse"] > -torch.inf)
        assert (found_lse[~finite] == -torch.inf).all()
        assert (found[~finite] == 0).all()
        if finite.any():
            assert_right(found_lse[finite], right["lse"][finite], torch.as_tensor(baseline_lse)[finite], roundings=2)


@pytest.mark.parametrize("name", LENGTHS)
def test_it_equals_dense_calls(name):
    """Sequence by sequence, to the last bit: it is the same kernel."""
    lengths = LENGTHS[name]
    q, k, v, cu_q, cu_k = packed(lengths)
    out, lse = flash.varlen_forward(q, k, v, cu_q, cu_k, is_causal=True)
    q_start = k_start = 0
    for n_q, n_k in zip(*lengths, strict=True):
        one = q[q_start : q_start + n_q].transpose(0, 1)[None]
        keys, values = (x[k_start : k_start + n_k].transpose(0, 1)[None] for x in (k, v))
        expected = flash.attention_forward(one, keys, values, is_causal=True)
        assert torch.equal(out[q_start : q_start + n_q].transpose(0, 1)[None], expected[0])
        assert torch.equal(lse[q_start : q_start + n_q].T[None], expected[1])
        q_start, k_start = q_start + n_q, k_start + n_k


@pytest.mark.parametrize("longest", [None, (67, 71), (100, 100)])
@pytest.mark.parametrize("name", LENGTHS)
def test_rows_beyond_the_last_sequence(name, longest):
    """pytorch#176793: they belong to none: output 0, lse −inf; the sequences are what they are without them."""
    lengths = LENGTHS[name]
    q, k, v, cu_q, cu_k = packed(lengths, left=37)
    out, lse = flash.varlen_forward(q, k, v, cu_q, cu_k, longest=longest)
    ends = [sum(x) for x in lengths]
    assert (out[ends[0] :] == 0).all()
    assert (lse[ends[0] :] == -torch.inf).all()
    expected = flash.varlen_forward(q[: ends[0]], k[: ends[1]], v[: ends[1]], cu_q, cu_k)
    for x, y in zip((out, lse), expected, strict=True):
        assert torch.equal(x[: ends[0]], y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_sequence_sees_another():
    """NaN in all of one sequence, queries, keys and values, leaves the others the same bits, tail tiles too."""
    lengths = LENGTHS["mixed"]
    q, k, v, cu_q, cu_k = packed(lengths)
    was = flash.varlen_forward(q, k, v, cu_q, cu_k, is_causal=True)
    q[5:72], k[12:53], v[12:53] = torch.nan, torch.nan, torch.nan  # the third
    now = flash.varlen_forward(q, k, v, cu_q, cu_k, is_causal=True)
    others = torch.ones(q.shape[0], dtype=torch.bool)
    others[5:72] = False
    for x, y in zip(now, was, strict=True):
        assert torch.equal(x[others], y[others])
    assert now[0][5:72][26:].isnan().all()  # its first 26 queries see nothing


def test_nothing_outside_is_read_or_written(monkeypatch):
    """Guard rows of NaN before and after the packed tensors, and around the outputs."""
    rooms = []

    def guarded(shape, like, dtype=None):
        room = torch.full([size + 4 for size in shape], torch.nan, dtype=dtype or like.dtype, device=like.device)
        rooms.append(room)
        return room[tuple(slice(2, -2) for _ in shape)]

    lengths = LENGTHS["mixed"]
    q, k, v, cu_q, cu_k = packed(lengths)
    expected = flash.varlen_forward(q, k, v, cu_q, cu_k, is_causal=True)
    inside = [guarded(x.shape, x) for x in (q, k, v)]
    for x, y in zip(inside, (q, k, v), strict=True):
        x.copy_(y)
    rooms.clear()
    monkeypatch.setattr(forward.outputs, "empty", guarded)
    found = flash.varlen_forward(*inside, cu_q, cu_k, is_causal=True)
    for x, y, room in zip(found, expected, rooms, strict=True):
        assert torch.equal(x, y)
        assert room.isnan().sum() == room.numel() - x.numel()


@pytest.mark.parametrize("view", ["heads first", "components apart", "of one tensor"])
def test_views(view):
    """Packed tensors of any strides: transposed, with gaps, q, k and v out of one tensor."""
    lengths = LENGTHS["mixed"]
    q, k, v, cu_q, _ = packed(lengths)
    k, v = k[: q.shape[0]], v[: q.shape[0]]
    expected = flash.varlen_forward(q, k, v, cu_q, cu_q)
    if view == "of one tensor":
        room = torch.cat([q, k, v.repeat(1, 1, 2)[..., :D]], 1)
        views = room[:, :4], room[:, 4:6], room[:, 6:, :D_V]
    elif view == "heads first":
        views = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q, k, v)]
    else:
        views = [every_other(x) for x in (q, k, v)]
    for x, y in zip(flash.varlen_forward(*views, cu_q, cu_q), expected, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("cu_q", "cu_k", "says"),
    [
        ([0, 5, 4], [0, 2, 3], "cu_seqlens_q[2] is 4 but cu_seqlens_q[1] is 5: they must not fall"),
        ([0, 5, 7], [0, 5, 99], "cu_seqlens_k ends at 99 but k has length 12 (axis t): expected at most 12"),
        ([1, 5], [0, 5], "cu_seqlens_q[0] is 1: expected 0"),
        ([0, 5], [0, 5, 6], "cu_seqlens_k counts 2 sequences but cu_seqlens_q 1: they must be equal"),
    ],
)
def test_lengths_that_are_none(cu_q, cu_k, says):
    """Values are checked before anything runs, so no address outside is ever formed."""
    q, k, v, *_ = packed(([12], [12]))
    with pytest.raises(ShapeError) as caught:
        flash.varlen_forward(q, k, v, *(torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in (cu_q, cu_k)))
    assert says in str(caught.value)


def test_ends_of_other_numbers_of_sequences():
    """Also where the lengths are taken as checked: the kernel reads as many ends of keys as of queries."""
    q, k, v, *_ = packed(([12], [12]))
    ends = torch.tensor([0, 5, 12], dtype=torch.int32, device=DEVICE)
    with pytest.raises(ShapeError) as caught:
        flash.varlen_forward(q, k, v, ends, ends[:2], longest=(12, 12))
    assert str(caught.value) == (
        "cu_seqlens_q and cu_seqlens_k have shapes (3,) and (2,): expected one axis, of equal length"
    )
