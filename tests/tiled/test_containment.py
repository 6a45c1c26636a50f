"""What is not finite stays where it may be seen: forward and backward, in every input, whatever the tiles."""

import importlib

import pytest
import torch

from attnbook.tiled import attention

T_Q, T_KV = 5, 7
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 2},
    "mask": {"mask": torch.rand(2, 4, T_Q, T_KV, generator=torch.Generator().manual_seed(3)) < 0.5},
    "padding": {"mask": torch.arange(T_KV) < 4, "is_causal": True},
    "everything": {
        "is_causal": True, "window": 3, "softcap": 2.0, "alibi_slopes": torch.full((4,), 0.3),
        "sinks": torch.arange(4.0), "mask": torch.where(torch.arange(T_KV) < 6, 0.5, -torch.inf),
    },
}  # fmt: skip
TILES = [{}, {"tile_q": 2, "tile_k": 3}]
BAD = [torch.nan, torch.inf, -torch.inf]


def seen(options):
    """Which query may see which key, by the definition: booleans (2, 4, t_q, t_kv)."""
    behind = torch.arange(T_Q)[:, None] + T_KV - T_Q - torch.arange(T_KV)
    may = torch.ones(2, 4, T_Q, T_KV, dtype=torch.bool)
    if options.get("is_causal"):
        may = may & (behind >= 0) & (behind < options.get("window", 99))
    mask = options.get("mask", torch.tensor(True))
    return may & (mask if mask.dtype == torch.bool else mask > -torch.inf)


def run(q, k, v, d_out, options, tiles):
    """Out, lse, and the gradients of q, k, v."""
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, lse = attention(*leaves, return_lse=True, **options, **tiles)
    return out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, d_out)


def changed(now, was):
    """The rows in which something is not what it was."""
    other = ~((now == was) | ((now - was).abs() < 1e-4))
    return other.any(-1) if now.ndim == 4 else other


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("place", ["q", "k", "v", "d_out"])
def test_it_reaches_only_what_shares_a_pair_with_it(normal, place, name, bad, tiles):
    """A row of k or v: queries that may see it. A row of q: its own. Gradients: also keys that those queries see."""
    options = OPTIONS[name]
    given = {"q": normal(2, 4, T_Q, 3, dtype=torch.float32), "d_out": normal(2, 4, T_Q, 5, dtype=torch.float32)}
    given |= {"k": normal(2, 2, T_KV, 3, dtype=torch.float32), "v": normal(2, 2, T_KV, 5, dtype=torch.float32)}
    was = run(*(given[x] for x in ("q", "k", "v", "d_out")), options, tiles)
    spoilt = {key: x.clone() for key, x in given.items()}
    rows, columns = torch.zeros(2, 4, T_Q, dtype=torch.bool), torch.zeros(2, 2, T_KV, dtype=torch.bool)
    if place in ("k", "v"):
        spoilt[place][1, 1, 3, 1] = bad  # a key of the second sequence, of heads 2 and 3
        rows[1, 2:] = seen(options)[1, 2:, :, 3]
        columns[1, 1, 3] = True
    else:
        spoilt[place][1, 2, 2, 1] = bad
        rows[1, 2, 2] = True
    columns |= (seen(options) & rows[..., None]).any(2).unflatten(1, (2, 2)).any(2)
    now = run(*(spoilt[x] for x in ("q", "k", "v", "d_out")), options, tiles)
    in_forward = rows & (place != "d_out")
    for x, y, reached in zip(now, was, (in_forward, in_forward, rows, columns, columns), strict=True):
        assert not (changed(x, y) & ~reached).any()
    if bad != bad and rows.any():
        assert now[2][rows].isnan().any(-1).all() or place == "d_out"
        assert place == "d_out" or now[0][rows].isnan().any(-1).all()
        assert not now[3].isfinite().all()


def test_a_value_of_infinity_that_is_seen_is_an_infinity(normal):
    """The formula is followed over the keys that are seen: a positive share of inf is inf, in that component."""
    q, k, v = normal(1, 2, T_KV, 3), normal(1, 2, T_KV, 3), normal(1, 2, T_KV, 5)
    v[:, :, 2, 1], v[:, :, 3, 4] = torch.inf, -torch.inf
    for tiles in TILES:
        out = attention(q, k, v, is_causal=True, **tiles)
        assert (out[:, :, 2:, 1] == torch.inf).all()
        assert (out[:, :, 3:, 4] == -torch.inf).all()
        assert out[:, :, :2].isfinite().all()
        assert out[..., [0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_padding_that_is_never_seen_may_hold_garbage(normal, dtype, tiles):
    """A cache padded with NaN: everything is finite, and the padding's own gradients are exactly 0."""
    q, k, v = (normal(2, 2, 7, 3, dtype=dtype) for _ in "qkv")
    k[:, :, 4:], v[:, :, 4:] = torch.nan, torch.nan
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out, lse = attention(*leaves, mask=torch.arange(7) < 4, return_lse=True, **tiles)
    (out.sum() + lse.sum()).backward()
    assert all(x.isfinite().all() for x in (out, lse, *(leaf.grad for leaf in leaves)))
    assert all((leaf.grad[:, :, 4:] == 0).all() for leaf in leaves[1:])
    torch.testing.assert_close(out, attention(q, k[:, :, :4], v[:, :, :4]))


def test_a_nan_in_an_added_mask_stays_in_its_row(normal):
    """It is a number that one row would add: it hides nothing."""
    q, k, v = (normal(1, 2, 7, 3) for _ in "qkv")
    mask = torch.zeros(7, 7)
    mask[4, 1] = torch.nan
    out = attention(q, k, v, mask=mask)
    assert out[:, :, 4].isnan().all()
    assert out[:, :, [0, 1, 2, 3, 5, 6]].isfinite().all()


@pytest.mark.parametrize("options", [{"is_causal": True}, {"mask": torch.tensor([[True], [False]] * 8)}], ids=str)
@pytest.mark.parametrize("window", [None, 3])
def test_what_is_finite_is_calculated_once(normal, monkeypatch, options, window):
    """Rows that see nothing are no reason for the careful second pass, which what is not finite needs."""
    from attnbook.tiled import backward, forward, products

    found = []
    for module in (forward, backward):
        monkeypatch.setattr(module, "all_finite", lambda *x: found.append(products.all_finite(*x)) or found[-1])
    q, k, v = (normal(1, 1, t, 3).requires_grad_() for t in (16, 8, 8))
    out, lse = attention(q, k, v, **options, window=window if "is_causal" in options else None, return_lse=True)
    (out.sum() + lse[lse.isfinite()].sum()).backward()
    assert (lse == -torch.inf).any()
    assert found == [True, True]
    v = torch.full_like(v, torch.nan)
    attention(q, k, v, **options)
    assert found[2:] == [False]


@pytest.mark.parametrize("is_causal", [False, True])
def test_scores_that_are_all_minus_infinity_in_one_tile(normal, is_causal, monkeypatch):
    """Keys at −inf have weight 0, and where a whole tile or split is such, the others decide, without NaN."""
    q, k, v = normal(2, 3, 4, 5).abs(), normal(2, 3, 23, 5), normal(2, 3, 23, 5)
    spoilt = k.clone()
    spoilt[:, :, 4:8, 0] = -torch.inf
    rest = [i for i in range(23) if not 4 <= i < 8]
    expected = attention(q, k[:, :, rest], v[:, :, rest], is_causal=is_causal, tile_q=4, tile_k=99)
    got = attention(q, spoilt, v, is_causal=is_causal, tile_q=3, tile_k=4)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    decoding = importlib.import_module("attnbook.tiled.decode")
    for name in ("FEWEST", "MOST"):
        monkeypatch.setattr(decoding, name, 4)
    torch.testing.assert_close(decoding.decode(q, spoilt, v, is_causal=is_causal), expected, rtol=1e-12, atol=1e-12)
