"""Decoding with keys copied by descriptor, as newer cards copy them: what pointers read, to the last bit."""

import dataclasses

import pytest
import torch

from attnbook.errors import ShapeError
from attnbook.kernels.decode import configs, decode_forward, launch, paged_forward
from tests.kernels.decode_product import Case, in_pages, inputs, pages, run
from tests.kernels.device import DEVICE

LENGTHS = [71, 0, 48]
SHAPE = (3, 2, 1, 1, 71, 16, 8)  # b, n_heads, n_kv_heads, t_q, t_kv, d, d_v: rows at multiples of 16 bytes
TILE = configs.Config(32, 16, 16, num_warps=4, num_stages=2)
"""Splits of 32 keys, in tiles of 16."""


@pytest.fixture
def cut(monkeypatch):
    """Choose whether tiles are copied by descriptor; the list that is returned says for each launch whether it was."""
    seen = []

    def chosen(*, descriptors):
        config = dataclasses.replace(TILE, descriptors=descriptors)
        monkeypatch.setattr(configs, "split_config", lambda *sizes, **paged: config)

    def constants(*given):
        found = split_constants(*given)
        seen.append(found["HAS_DESCRIPTORS"])
        return found

    split_constants = launch.split_constants
    monkeypatch.setattr(launch, "split_constants", constants)
    chosen.seen = seen
    chosen(descriptors=True)
    return chosen


def guarded(x, fill=torch.nan):
    """The same numbers, cut out of larger memory full of NaN, each row still at a multiple of 16 bytes."""
    b, h, t, d = x.shape
    memory = torch.full((b + 2, h + 2, t + 16, d + 16), fill, dtype=x.dtype, device=DEVICE)
    here = memory[1 : b + 1, 1 : h + 1, 8 : t + 8, 8 : d + 8]
    return here.copy_(x)


def decoded(q, k, v, page_size, lengths, **options):
    """out and lse, the keys and values in memory that is NaN all round, in pages unless page_size is 0."""
    if not page_size:
        options = {"mask": None, "alibi_slopes": None, "sinks": None} | options
        return decode_forward(q.to(DEVICE), guarded(k), guarded(v), **options)
    k_pages, v_pages, table = pages(page_size, k, v, lengths)
    given = (guarded(k_pages), guarded(v_pages), table, torch.tensor(lengths, device=DEVICE))
    return paged_forward(q.to(DEVICE), *given, **options)


@pytest.mark.parametrize("page_size", [0, 16, 48])
@pytest.mark.parametrize(
    ("dtype", "options"),
    [(torch.float32, {}), (torch.float16, {"is_causal": True, "softcap": 3.0}), (torch.bfloat16, {})],
    ids=["float32", "float16-causal", "bfloat16"],
)
def test_the_bits_that_pointers_give(dtype, options, page_size, cut):
    """One after another and in pages of one and of three tiles, NaN in every free place and round about."""
    q, k, v = inputs((*SHAPE[:3], 3 if options else 1, *SHAPE[4:]), dtype)
    by_descriptor = decoded(q, k, v, page_size, LENGTHS, **options)
    cut(descriptors=False)
    by_pointers = decoded(q, k, v, page_size, LENGTHS, **options)
    assert cut.seen == [True, False]
    for a, b in zip(by_descriptor, by_pointers, strict=True):
        assert not a.isnan().any()
        assert torch.equal(a, b)


@pytest.mark.parametrize("storage", ["contiguous", "pages of 16"])
@pytest.mark.parametrize(("shape", "options"), [("four ahead", "causal"), ("four ahead", "floats"), ("256", "sinks")])
def test_right_by_descriptor(shape, options, storage, cut, monkeypatch):
    """As near to float64 as a plain calculation, with rows that fill no tile, and tiles of 256 components."""
    monkeypatch.setattr("tests.kernels.decode_product.sliced", guarded_again)
    run(Case(options, "float16", shape, storage, "splits as chosen"))
    assert cut.seen == [True]


def guarded_again(x):
    """In place of the product's own guards, which move rows to any address."""
    return guarded(x, x.flatten()[0].item() if x.numel() else torch.nan)


@pytest.mark.parametrize("page_size", [0, 16])
def test_alone_and_in_a_batch_the_same_bits(page_size, cut):
    """A sequence among others gives what it gives alone."""
    q, k, v = inputs(SHAPE, torch.float16)
    out, lse = decoded(q, k, v, page_size, LENGTHS)
    for n, length in enumerate(LENGTHS):
        one, one_lse = decoded(*(x[n : n + 1] for x in (q, k, v)), page_size, [length])
        assert torch.equal(one, out[n : n + 1])
        assert torch.equal(one_lse, lse[n : n + 1])
    assert all(cut.seen)


@pytest.mark.parametrize("name", ["v", "k"])
@pytest.mark.parametrize("page_size", [0, 16])
def test_what_is_not_finite_reaches_only_who_sees_it(page_size, name, cut):
    """Causal: NaN in the newest key, amid a tile, is the last query's alone; the careful walk has pointers."""
    q, k, v = inputs((1, 4, 2, 3, 40, 16, 8), torch.float16)
    right, _ = decoded(q, k, v, page_size, [40], is_causal=True)
    {"k": k, "v": v}[name][0, :, 39] = torch.nan
    out, _ = decoded(q, k, v, page_size, [40], is_causal=True)
    assert out[:, :, 2].isnan().all()
    torch.testing.assert_close(out[:, :, :2], right[:, :, :2], rtol=2e-3, atol=2e-3)
    assert all(cut.seen)


def test_a_foreign_page_is_refused_and_where_it_is_not_looked_for_nothing_is_read(cut):
    """The error names the entry. With `longest` the caller vouches: a page that is none is zeros to a descriptor."""
    q, k, v = inputs((1, 4, 2, 1, 32, 16, 8), torch.float16)
    k_pages, v_pages, table = pages(16, k, v, [32], spare=0)
    k_pages, v_pages = guarded(k_pages), guarded(v_pages)
    lengths = torch.tensor([32], device=DEVICE)
    for foreign in (-1, len(k_pages), 2**30):
        table[0, 1] = foreign
        with pytest.raises(ShapeError, match=rf"^page_table\[0, 1\] is {foreign}: expected 0 to 2, for 3 pages$"):
            paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths)
        out, lse = paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths, longest=32)
        k[:, :, 16:], v[:, :, 16:] = 0, 0
        right = decode_forward(*(x.to(DEVICE) for x in (q, k, v)))
        assert torch.equal(out, right[0])
        assert torch.equal(lse, right[1])
    assert all(cut.seen)


def test_what_is_not_copied_by_descriptor(cut):
    """Pages that hold no whole tile, rows at other addresses, heads that repeat, a window: pointers, and right."""
    q, k, v = inputs(SHAPE, torch.float16)
    whole = in_pages(16, q, k, v, LENGTHS, {})  # `pages` moves rows to any address
    cut(descriptors=False)
    right = [*decoded(q, k, v, 0, LENGTHS), *decoded(q, k, v, 16, LENGTHS)]
    cut(descriptors=True)
    torch.testing.assert_close(whole[0], right[2].cpu(), rtol=2e-3, atol=2e-3)
    small = decoded(q, k, v, 8, LENGTHS)
    torch.testing.assert_close(small[0], right[2], rtol=2e-3, atol=2e-3)
    far = torch.zeros(k.numel() + 1, dtype=k.dtype, device=DEVICE)[1:].view(k.shape).copy_(k)
    moved = decode_forward(q.to(DEVICE), far, v.to(DEVICE))
    assert torch.equal(moved[0], right[0])
    one_head = k[:, :1].to(DEVICE).expand(3, 2, 71, 16)
    decode_forward(q.to(DEVICE), one_head, v.to(DEVICE).expand(3, 2, 71, 8))
    decode_forward(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), is_causal=True, window=17)
    assert not any(cut.seen)
    decode_forward(*(x.to(DEVICE) for x in (q, k, v)))
    assert cut.seen[-1]


def test_which_sizes_are_copied_whole():
    """Pages of whole tiles, splits of whole tiles, no window."""
    assert configs.in_whole_tiles(TILE, 0, None)
    assert configs.in_whole_tiles(TILE, 48, None)
    assert not configs.in_whole_tiles(TILE, 40, None)
    assert not configs.in_whole_tiles(TILE, 48, 2**31)
    assert not configs.in_whole_tiles(dataclasses.replace(TILE, tile_k=64), 0, None)
