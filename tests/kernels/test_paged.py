"""Decoding from pages, in Triton: any order of pages, any lengths; nothing read that is not a sequence's own."""

import re

import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.kernels.decode import decode_forward, paged_forward
from tests.kernels.decode_product import in_pages, inputs, pages, pairs, run, small_splits
from tests.kernels.device import DEVICE

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LENGTHS = [71, 0, 5, 33, 64, 1, 47]
SHAPE = (7, 4, 2, 1, 71, 11, 7)  # b, n_heads, n_kv_heads, t_q, t_kv, d, d_v
NARROW = (7, 1, 1, *SHAPE[3:])  # the same with one head, where heads are not the question


@pytest.mark.parametrize("case", pairs(paged=True), ids=str)
def test_right_in_pairs_of_options_dtypes_shapes_and_pages(case):
    """As near to the truth as a plain calculation in the same dtype, for lengths that differ, 0 among them.

    Everything beside a sequence's own keys is NaN: free places, other pages, the memory around; and the entries of the
    table behind its last page point far outside.
    """
    run(case, controls=case.dtype == "float32" and case.shape in ("one token", "four ahead"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"window": 23}], ids=str)
def test_alone_and_in_a_batch_the_same_bits(dtype, options):
    """A sequence among six of other lengths gives what it gives alone, and in other pages, bit for bit."""
    q, k, v = inputs((7, 2, 1, *SHAPE[3:]), dtype)
    with small_splits():
        out, lse = in_pages(5, q, k, v, LENGTHS, {"is_causal": True, **options})
        for n, length in enumerate(LENGTHS):
            one = [x[n : n + 1] for x in (q, k, v)]
            alone, alone_lse = in_pages(5, *one, [length], {"is_causal": True, **options})
            assert torch.equal(alone, out[n : n + 1])
            assert torch.equal(alone_lse, lse[n : n + 1])


def test_pages_are_the_same_as_memory_in_one_piece():
    """The same numbers are added in the same order, wherever the keys lie."""
    q, k, v = inputs(NARROW, torch.float32)
    with small_splits():
        out = in_pages(16, q, k, v, [71] * 7, {})[0]
        right = decode_forward(*(x.to(DEVICE) for x in (q, k, v)))[0]
    torch.testing.assert_close(out, right.cpu(), rtol=1e-6, atol=1e-6)


def test_a_sequence_without_keys_gives_0():
    """And lse −inf, or the sink."""
    q, k, v = inputs(SHAPE, torch.float32)
    out, lse = in_pages(5, q, k, v, LENGTHS, {})
    assert (out[1] == 0).all()
    assert (lse[1] == -torch.inf).all()
    out, lse = in_pages(5, q, k, v, [0] * 7, {"sinks": torch.arange(4.0)})
    assert (out == 0).all()
    assert torch.equal(lse, torch.arange(4.0)[None, :, None].expand(7, 4, 1))


@pytest.mark.parametrize("sinks", [None, torch.ones(4)], ids=["", "sinks"])
def test_rows_that_are_none_give_0_and_the_others_stand_at_the_end(sinks):
    """`new_rows`: with 2 of 3 rows, the second is the newest token, and the third gives 0 and lse −inf."""
    lengths, new_rows = [71, 0, 5, 33], [2, 0, 3, 1]
    q, k, v = inputs((4, 4, 2, 3, 71, 11, 7), torch.float32)
    options = {"is_causal": True, "sinks": sinks}
    out, lse = in_pages(5, q, k, v, lengths, options, new_rows=torch.tensor(new_rows))
    for n, (length, rows) in enumerate(zip(lengths, new_rows, strict=True)):
        right, right_lse = in_pages(5, q[n : n + 1, :, :rows], k[n : n + 1], v[n : n + 1], [length], options)
        torch.testing.assert_close(out[n : n + 1, :, :rows], right)
        torch.testing.assert_close(lse[n : n + 1, :, :rows], right_lse)
        assert (out[n, :, rows:] == 0).all()
        assert (lse[n, :, rows:] == -torch.inf).all()


@pytest.mark.parametrize("window", [1, 17, 32, 33])
def test_windows_that_begin_anywhere_in_a_split(window):
    """A window may reach into one split more than it is long; what lies before it is not read."""
    lengths = [71, 65, 64, 63, 33, 32, 31]
    q, k, v = inputs(NARROW, torch.float32)
    spoilt = k.clone()
    for n, length in enumerate(lengths):
        spoilt[n, :, : max(length - window, 0)] = torch.nan
    with small_splits():
        out = in_pages(5, q, spoilt, v, lengths, {"is_causal": True, "window": window})[0]
    for n, length in enumerate(lengths):
        keys = slice(max(length - window, 0), length)
        right = decode_forward(*(x.to(DEVICE) for x in (q[n : n + 1], k[n : n + 1, :, keys], v[n : n + 1, :, keys])))
        torch.testing.assert_close(out[n : n + 1], right[0].cpu())


@pytest.mark.parametrize("window", [2**31 - 1, 2**63 - 1])
def test_a_window_longer_than_any_number_of_keys(window):
    """It hides nothing, whatever a sequence's length: queries before the first key do not make int32 run over."""
    q, k, v = inputs((7, 2, 1, 9, *SHAPE[4:]), torch.float32)
    right = in_pages(5, q, k, v, LENGTHS, {"is_causal": True})
    for x, y in zip(in_pages(5, q, k, v, LENGTHS, {"is_causal": True, "window": window}), right, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_tables_of_any_integers_on_any_side(dtype):
    """Of 32 or 64 bits, as a column-major view, on the CPU too: the same bits."""
    q, k, v = inputs(NARROW, torch.float32)
    k_pages, v_pages, table = pages(16, k, v, LENGTHS)
    lengths = torch.tensor(LENGTHS, device=DEVICE)
    right = paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths)
    turned = table.to(dtype).T.contiguous().T
    for given in ((turned, lengths.to(dtype)), (turned.cpu(), lengths.cpu().to(dtype))):
        for a, b in zip(paged_forward(q.to(DEVICE), k_pages, v_pages, *given), right, strict=True):
            assert torch.equal(a, b)


def test_with_longest_nothing_is_checked_again():
    """The caller vouches for the table: the same bits, whatever room is left; and sequences may share pages."""
    q, k, v = inputs(NARROW, torch.float32)
    k_pages, v_pages, table = pages(16, k, v, LENGTHS)
    lengths = torch.tensor(LENGTHS, device=DEVICE)
    right = paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths)
    for longest in (71, 96):
        found = paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths, longest=longest)
        assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    q[1] = q[0]
    table[1], lengths[1] = table[0], lengths[0]
    out = paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths, longest=71)[0]
    assert torch.equal(out[1], out[0])


def test_page_numbers_times_strides_pass_31_bits():
    """Pages of a stride of 2³⁰ numbers: the third begins beyond 2³¹."""
    stride, dtype = 2**30, torch.float16
    memory = torch.empty(2 * stride + 4096, dtype=dtype, device=DEVICE)  # never touched, so never taken, on a CPU
    q, k, v = inputs((1, 4, 2, 1, 15, 3, 3), dtype)
    k_pages, v_pages, table = pages(5, k, v, [15], spare=-1)
    order = torch.argsort(table[0, :3])
    far = []
    for i, x in enumerate((k_pages, v_pages)):
        three = x[table[0, :3].sort().values]
        far.append(memory.as_strided(three.shape, (stride, 15, 3, 1), storage_offset=128 * i))
        far[-1].copy_(three)
    table[0, order] = torch.arange(3, device=DEVICE)
    out = paged_forward(q.to(DEVICE), *far, table, torch.tensor([15], device=DEVICE))[0]
    right = decode_forward(*(x.to(DEVICE) for x in (q, k, v)))[0]
    torch.testing.assert_close(out, right, rtol=2e-3, atol=2e-3)


def calls():
    """An error, its text, and how a call that was right is changed."""
    table = torch.tensor([[3, 1], [0, 9], [2, 7]], device=DEVICE)
    lengths = torch.tensor([10, 5, 3], device=DEVICE)
    v_pages = torch.zeros(5, 2, 5, 7, device=DEVICE)

    def entry(b, i, page):
        changed = table.clone()
        changed[b, i] = page
        return {"page_table": changed}

    def length(n):
        return {"lengths": torch.tensor([10, n, 3], device=DEVICE)}

    one_owner = "page_table[2, 0] is 1, as is page_table[0, 1]: a page has one owner"
    yield ShapeError, one_owner, entry(2, 0, 1)
    yield ShapeError, "page_table[1, 0] is 5: expected 0 to 4, for 5 pages", entry(1, 0, 5)
    yield ShapeError, "page_table[0, 1] is -1: expected 0 to 4, for 5 pages", entry(0, 1, -1)
    yield ShapeError, "page_table[1, 1] is 9: expected 0 to 4, for 5 pages", length(6)
    yield ShapeError, "lengths[1] is 11: expected 0 to 10, 2 pages of 5", length(11)
    yield ShapeError, "lengths[1] is -1: expected 0 to 10, 2 pages of 5", length(-1)
    yield (ShapeError, "lengths has 2 sequences (axis b) but q has 3: they must be equal",
           {"lengths": lengths[:2]})  # fmt: skip
    yield (ShapeError, "page_table has 2 sequences (axis b) but q has 3: they must be equal",
           {"page_table": table[:2]})  # fmt: skip
    yield ShapeError, "page_table has 1 axes (3,): expected (b, pages)", {"page_table": table[:, 0]}
    yield DTypeError, "lengths has dtype torch.float32: expected whole numbers", {"lengths": lengths.float()}
    yield DTypeError, "page_table has dtype torch.bool: expected whole numbers", {"page_table": table > 0}
    yield TypeError, "lengths is a builtins.list: expected a torch.Tensor", {"lengths": [10, 5, 3]}
    yield (ShapeError, "k_pages has 3 axes (2, 5, 11): expected 4, (n_pages, h, page_size, d)",
           {"k_pages": torch.zeros(2, 5, 11, device=DEVICE)})  # fmt: skip
    yield (ShapeError, "v_pages has page_size 4 but k_pages page_size 5: they must be equal",
           {"v_pages": v_pages[:, :, :4]})  # fmt: skip
    yield (ShapeError, "v_pages has 4 pages (axis n_pages) but k_pages 5 pages (axis n_pages): they must be equal",
           {"v_pages": v_pages[:4]})  # fmt: skip
    yield (ShapeError, "k_pages has page_size 0: expected at least 1",
           {"k_pages": torch.zeros(5, 2, 0, 11, device=DEVICE), "v_pages": v_pages[:, :, :0]})  # fmt: skip
    yield (ShapeError, "new_rows[2] is 3: expected 0 to 2, the length of q (axis t)",
           {"new_rows": torch.tensor([2, 0, 3])})  # fmt: skip
    yield (ShapeError, "k has 2 heads (axis h) but q has 3: n_heads must be a multiple of n_kv_heads",
           {"q": torch.zeros(3, 3, 2, 11, device=DEVICE)})  # fmt: skip
    yield (
        ValueError,
        "window is 0: expected a whole number of keys, at least 1 (the query's own), or None",
        {"window": 0},
    )


@pytest.mark.parametrize("i", range(19))
def test_tables_that_do_not_fit_are_refused(i):
    """A foreign page, a cache longer than its pages, wrong axes: each error says where, what was expected and found."""
    right = {
        "q": torch.zeros(3, 4, 2, 11, device=DEVICE),
        "k_pages": torch.zeros(5, 2, 5, 11, device=DEVICE),
        "v_pages": torch.zeros(5, 2, 5, 7, device=DEVICE),
        "page_table": torch.tensor([[3, 1], [0, 9], [2, 7]], device=DEVICE),
        "lengths": torch.tensor([10, 5, 3], device=DEVICE),
    }
    error, text, change = list(calls())[i]
    paged_forward(**right)  # entries behind the last page may be anything
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        paged_forward(**right | change)
