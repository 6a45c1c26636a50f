"""The forward kernel on what is not ordinary: NaN, nothing to see, guards around memory, bad input."""

import math

import pytest
import torch

from attnbook.errors import BackendUnavailable, DTypeError, ShapeError
from attnbook.kernels import flash
from attnbook.kernels.flash import forward
from attnbook.kernels.flash.descriptors import takes_descriptor
from tests.kernels.device import DEVICE
from tests.kernels.forward_product import Case, run

NAN, INF = torch.nan, torch.inf


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def qkv(t_q, t_kv, *, b=2, heads=(4, 2), d=17, d_v=17, dtype=torch.float32):
    return (
        normal(b, heads[0], t_q, d, seed=1, dtype=dtype),
        normal(b, heads[1], t_kv, d, seed=2, dtype=dtype),
        normal(b, heads[1], t_kv, d_v, seed=3, dtype=dtype),
    )


def seen(options, t_q, t_kv):
    """Which query may see which key, by the definition: booleans (t_q, t_kv)."""
    behind = torch.arange(t_q)[:, None] + t_kv - t_q - torch.arange(t_kv)
    may = torch.ones(t_q, t_kv, dtype=torch.bool)
    if options.get("is_causal"):
        may = (behind >= 0) & (behind < options.get("window", 999))
    mask = options.get("mask", torch.tensor(True)).cpu()
    return may & (mask if mask.dtype == torch.bool else mask > -INF)


HIDING = {
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 7},
    "booleans": {"mask": torch.rand(35, 41, generator=torch.Generator().manual_seed(3)) < 0.5},
    "everything": {
        "is_causal": True, "window": 30, "softcap": 2.0, "alibi_slopes": torch.full((2,), 0.3),
        "sinks": torch.arange(2.0), "mask": torch.where(torch.arange(41) % 3 > 0, 0.5, -INF),
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("place", ["k", "v"])
def test_what_is_not_finite_reaches_only_queries_that_may_see_it(place, name, bad):
    """In a key or value, first, in the middle or last: rows that may not see it stay what they were."""
    options = {key: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for key, x in HIDING[name].items()}
    q, k, v = qkv(35, 41, b=1, heads=(2, 2), dtype=torch.float32 if bad == INF else torch.bfloat16)
    was = flash.attention_forward(q, k, v, **options)
    for key in (0, 40):
        spoilt = {"k": k.clone(), "v": v.clone()}
        spoilt[place][0, 1, key, 2] = bad
        now = flash.attention_forward(q, spoilt["k"], spoilt["v"], **options)
        reached = torch.zeros(1, 2, 35, dtype=torch.bool)
        reached[0, 1] = seen(options, 35, 41)[:, key]
        for x, y in zip(now, was, strict=True):
            same = ((x == y) | ((x - y).abs() < (1e-5 if bad == INF else 1e-2))).cpu()  # other tiles, other roundings
            assert (same if same.ndim == 3 else same.all(-1))[~reached].all()
        out = now[0].cpu()
        if place == "v":  # in its component, whatever its weight; and nowhere else
            assert not out[reached][:, 2].isfinite().any()
            assert out[reached][:, [0, 1, 3, 16]].isfinite().all()
        elif bad != bad:
            assert out[reached].isnan().all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
def test_what_is_not_finite_in_a_query_stays_in_its_row(options, bad):
    """A row of q that holds a NaN gives a row of NaN; every other row is what it was."""
    q, k, v = qkv(35, 41, b=1)
    was = flash.attention_forward(q, k, v, **options)
    q[0, 1, 20, 3] = bad
    now = flash.attention_forward(q, k, v, **options)
    for x, y in zip(now, was, strict=True):
        row = x[0, 1, 20].clone()
        x[0, 1, 20] = y[0, 1, 20]
        assert bad == bad or row.isnan().all()
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_share_of_infinity_is_infinity():
    """The formula is followed over the keys that are seen: also where a NaN elsewhere makes the walk be done again."""
    q, k, v = qkv(5, 7, b=1, heads=(1, 1))
    v[0, 0, 1, 4], v[0, 0, 6, 9] = INF, NAN
    out, _ = flash.attention_forward(q, k, v, is_causal=True)
    assert (out[0, 0, :, 4] == INF).all()
    assert out[0, 0, :4, 9].isfinite().all()
    assert out[0, 0, 4, 9].isnan()


def test_a_row_that_sees_nothing():
    """Output 0 and lse −inf; with a sink, the sink; with a sink of −inf, −inf again. t_kv 0 is such a call, too."""
    q, k, v = qkv(40, 3)
    sinks = torch.tensor([0.5, -INF, 2.0, -1.0], device=DEVICE)
    for t_kv in (3, 0):
        keys, values = k[:, :, :t_kv], v[:, :, :t_kv]
        out, lse = flash.attention_forward(q, keys, values, is_causal=True)
        blind = slice(0, 40 - t_kv)
        assert (out[:, :, blind] == 0).all()
        assert (lse[:, :, blind] == -INF).all()
        out, lse = flash.attention_forward(q, keys, values, sinks=sinks, is_causal=True)
        assert (out[:, :, blind] == 0).all()
        torch.testing.assert_close(lse[:, :, blind], sinks[:, None].expand(2, 4, 40)[:, :, blind])


@pytest.mark.parametrize("shape", [(0, 4, 5), (2, 4, 0), (2, 0, 5)], ids=str)
def test_nothing_asked(shape):
    """No sequence, no head or no query: empty results of the right shape."""
    b, n_heads, t_q = shape
    n_kv_heads = n_heads // 2
    q, k, v = normal(b, n_heads, t_q, 8), normal(b, n_kv_heads, 7, 8), normal(b, n_kv_heads, 7, 9)
    out, lse = flash.attention_forward(q, k, v)
    assert out.shape == (*shape, 9)
    assert lse.shape == shape


def test_tiles_that_no_query_sees_are_not_read():
    """Keys that a window has left behind, and future ones, lie in memory that is not even finite, and don't matter.

    Beyond the tiles of the walk: within them, `test_what_is_not_finite…` has it.
    """
    q, k, v = qkv(40, 200, b=1, heads=(2, 2))
    far = torch.arange(200) < 200 - 40 - 10 - 32  # a tile before the first key that the first query sees
    k[:, :, far], v[:, :, far] = NAN, NAN
    out, lse = flash.attention_forward(q, k, v, is_causal=True, window=10)
    cut = [x[:, :, ~far] for x in (k, v)]
    expected = flash.attention_forward(q, *cut, is_causal=True, window=10)
    for x, y in zip((out, lse), expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


def test_nothing_outside_is_read_or_written(monkeypatch):
    """Guard rows of NaN around every tensor, outputs too: none comes in, and the outputs' are still there."""
    rooms = []

    def guarded(shape, like, dtype=None):
        room = torch.full([size + 4 for size in shape], NAN, dtype=dtype or like.dtype, device=like.device)
        rooms.append(room)
        return room[tuple(slice(2, -2) for _ in shape)]

    monkeypatch.setattr(forward.outputs, "empty", guarded)
    run(Case("floats", "float16", "more keys", "sliced"))
    run(Case("window", "float32", "more queries", "sliced"))
    assert len(rooms) == 4
    for room in rooms:
        inside = torch.zeros_like(room, dtype=torch.bool)
        inside[tuple(slice(2, -2) for _ in room.shape)] = True
        assert room[~inside].isnan().all()
        assert not room[inside].isnan().any()


@pytest.mark.parametrize("window", [2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize(("t_q", "t_kv"), [(67, 30), (35, 41)])
def test_a_window_longer_than_any_number_of_keys(t_q, t_kv, window):
    """It hides nothing: no position minus the window runs over, also where the first query stands before the keys."""
    q, k, v = qkv(t_q, t_kv, b=1, heads=(2, 1))
    now = flash.attention_forward(q, k, v, is_causal=True, window=window)
    for x, y in zip(now, flash.attention_forward(q, k, v, is_causal=True), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


def test_no_input_is_written_to():
    """q, k, v, mask, slopes and sinks are the same afterwards."""
    q, k, v = qkv(37, 45)
    options = {"mask": normal(4, 37, 45), "alibi_slopes": normal(4).abs(), "sinks": normal(4)}
    before = [x.clone() for x in (q, k, v, *options.values())]
    flash.attention_forward(q, k, v, **options, is_causal=True)
    for x, y in zip((q, k, v, *options.values()), before, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_alone_and_in_a_batch(dtype):
    """The same request alone and among seven others: the same bits, since no program looks beyond its sequence."""
    q, k, v = qkv(35, 41, b=8, heads=(2, 1), dtype=dtype)
    many = flash.attention_forward(q, k, v, is_causal=True)
    alone = flash.attention_forward(q[5:6], k[5:6], v[5:6], is_causal=True)
    for x, y in zip(many, alone, strict=True):
        assert torch.equal(x[5:6], y)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e2, 1e4])
def test_a_softcap_of_small_and_large_scores(size):
    """The tangent is as precise near 0 as far out, and never more than the cap: lse ≤ cap + log t_kv."""
    q, k, v = qkv(33, 37, b=1, heads=(1, 1))
    out, lse = flash.attention_forward(q * size, k, v, softcap=3.0)
    score = 3.0 * torch.tanh(q.double() * size @ k.double().mT / 17**0.5 / 3.0)
    torch.testing.assert_close(lse, score.logsumexp(-1).float(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(out, (score.softmax(-1) @ v.double()).float(), rtol=1e-5, atol=1e-5)
    assert (lse <= 3.0 + math.log(37)).all()


def test_scores_of_half_precision_do_not_overflow():
    """Products of 60 000 and more are float32 inside; the largest takes all."""
    q, k, v = (x.half() for x in qkv(5, 7, b=1, heads=(1, 1)))
    out, lse = flash.attention_forward(q * 300, k * 300, v)
    best = (q.double() @ k.double().mT).argmax(-1)[0, 0]
    assert lse.isfinite().all()
    torch.testing.assert_close(out[0, 0], v[0, 0, best])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"q": normal(2, 4, 5, 257), "k": normal(2, 2, 7, 257)}, BackendUnavailable, "q has head_dim 257 (axis d)"),
        ({"v": normal(2, 2, 7, 300)}, BackendUnavailable, "v has d_v 300 (axis d)"),
        ({"q": normal(2, 3, 5, 8)}, ShapeError, "k has 2 heads (axis h) but q has 3"),
        ({"k": normal(2, 2, 6, 8)}, ShapeError, "v has length 7 (axis t) but k has 6: they must be equal"),
        ({"k": normal(2, 2, 7, 8).half()}, DTypeError, "k has dtype torch.float16 but q has torch.float32"),
        ({"mask": normal(5, 8)}, ShapeError, "mask has length 8 along axis t_kv but the scores have 7"),
        ({"mask": normal(5, 7).int()}, DTypeError, "mask has dtype torch.int32"),
        ({"window": 3}, ValueError, "window is 3 but is_causal is False"),
        ({"softcap": 0.0}, ValueError, "softcap is 0.0: expected a finite number above 0"),
        ({"sinks": normal(3)}, ShapeError, "sinks has shape (3,): expected (h,) = (4,)"),
        ({"k": [1]}, TypeError, "k is a builtins.list: expected a torch.Tensor"),
    ],
)
def test_bad_input(change, error, says):
    """Errors name the axis, what was expected and what came."""
    q, k, v = qkv(5, 7, d=8, d_v=8)
    given = {"q": q, "k": k, "v": v} | change
    with pytest.raises(error) as caught:
        flash.attention_forward(**given)
    assert says in str(caught.value)


def test_float64_is_refused():
    """The kernels have no float64, and say so."""
    q, k, v = (x.double() for x in qkv(5, 7))
    with pytest.raises(BackendUnavailable, match="float64"):
        flash.attention_forward(q, k, v)


def test_a_descriptor_is_for_what_the_hardware_can_copy():
    """Rows of k at multiples of 16 bytes and nothing repeated; otherwise pointers, which take anything."""
    _, k, _ = qkv(5, 7, d=16, d_v=16, dtype=torch.float16)
    assert takes_descriptor(k)
    assert takes_descriptor(k.transpose(1, 2).contiguous().transpose(1, 2))
    assert not takes_descriptor(k.transpose(2, 3).contiguous().transpose(2, 3))
    assert not takes_descriptor(k[:, :1].expand(k.shape))
    assert not takes_descriptor(torch.zeros(2, 2, 7, 17, dtype=k.dtype, device=k.device)[..., :16])
    assert not takes_descriptor(torch.zeros(2 * 2 * 7 * 16 + 1, dtype=k.dtype, device=k.device)[1:].view(k.shape))
