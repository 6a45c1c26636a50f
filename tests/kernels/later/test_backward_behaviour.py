"""What gradients do beside being right: NaN stays, nothing outside is touched, sums and shapes of all kinds."""

import functools

import pytest
import torch

from attnbook import tiled
from attnbook.errors import DTypeError, ShapeError
from attnbook.kernels import flash, outputs
from tests.kernels.backward_product import everything
from tests.kernels.device import DEVICE
from tests.kernels.poison import guarded, guarded_output, untouched_around

NAN, INF = torch.nan, torch.inf
T_Q, T_KV = 45, 71


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def inputs(t_q=T_Q, t_kv=T_KV, *, b=2, heads=(4, 2), d=5, d_v=7, dtype=torch.float32):
    """q, k, v and the gradient of out."""
    shapes = ((b, heads[0], t_q, d), (b, heads[1], t_kv, d), (b, heads[1], t_kv, d_v), (b, heads[0], t_q, d_v))
    return [normal(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def gradients(q, k, v, d_out, options, d_lse=None):
    """Those of q, k, v, the mask, the slopes and the sinks, from the out and lse of another implementation."""
    out, lse = tiled.attention_forward(q, k, v, **options)
    return flash.attention_backward(d_out, d_lse, q, k, v, out, lse, **everything(options))


def on_device(options):
    return {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}


HIDING = {
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 7},
    "booleans": {"mask": torch.rand(T_Q, T_KV, generator=torch.Generator().manual_seed(3)) < 0.3},
    "everything": {
        "is_causal": True, "window": 40, "softcap": 2.0, "alibi_slopes": torch.full((4,), 0.3),
        "sinks": torch.arange(4.0), "mask": torch.where(torch.arange(T_KV) % 3 > 0, 0.5, -INF),
    },
}  # fmt: skip


def seen(options):
    """Which query may see which key, by the definition: booleans (t_q, t_kv)."""
    behind = torch.arange(T_Q)[:, None] + T_KV - T_Q - torch.arange(T_KV)
    may = torch.ones(T_Q, T_KV, dtype=torch.bool)
    if options.get("is_causal"):
        may = (behind >= 0) & (behind < options.get("window", 999))
    mask = options.get("mask", torch.tensor(True)).cpu()
    return may & (mask if mask.dtype == torch.bool else mask > -INF)


@functools.cache
def clean(name):
    """The gradients of q, k and v under the options of this name, where every number is finite."""
    return gradients(*inputs(), on_device(HIDING[name]))[:3]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("place", "name", "bad"),
    [
        (place, name, (NAN, INF)[(i + j) % 2])  # in turn: each of the two meets every place and every option
        for i, place in enumerate(("q", "k", "v", "d_out"))
        for j, name in enumerate(HIDING)
    ],
)
def test_what_is_not_finite_reaches_only_what_shares_a_pair_with_it(place, name, bad):
    """A row of k or v: queries that may see it, and the keys that those see. A row of q or d_out: itself, and those.

    Everything else is what it was; a NaN is not lost.
    """
    options = on_device(HIDING[name])
    given = dict(zip(("q", "k", "v", "d_out"), inputs(), strict=True))
    was = clean(name)
    spoilt = given | {place: given[place].clone()}
    rows = torch.zeros(2, 4, T_Q, dtype=torch.bool)
    columns = torch.zeros(2, 2, T_KV, dtype=torch.bool)
    if place in ("k", "v"):
        spoilt[place][1, 1, 33, 1] = bad  # a key of the second sequence, of heads 2 and 3
        rows[1, 2:] = seen(options)[:, 33]
        columns[1, 1, 33] = True
    else:
        spoilt[place][1, 2, 20, 1] = bad
        rows[1, 2, 20] = True
    columns[1, 1] |= (seen(options) & rows[1, 2:].any(0)[:, None]).any(0)
    now = gradients(*spoilt.values(), options)[:3]
    for x, y, reached in zip(now, was, (rows, columns, columns), strict=True):
        same = ((x == y) | ((x - y).abs() < 1e-4)).cpu().all(-1)  # other tiles, other roundings
        assert same[~reached].all()
    if bad != bad:
        assert now[0].cpu()[rows].isnan().any(-1).all()
        assert now[1].cpu()[1, 1, (seen(options) & rows[1, 2:].any(0)[:, None]).any(0)].isnan().any(-1).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_padding_that_is_never_seen_may_hold_garbage(dtype):
    """A cache padded with NaN: every gradient is what it is without the padding, whose own is exactly 0."""
    q, k, v, d_out = inputs(dtype=dtype)
    k[:, :, 60:], v[:, :, 60:] = NAN, NAN
    options = {"mask": torch.arange(T_KV, device=DEVICE) < 60}
    grads = gradients(q, k, v, d_out, options)[:3]
    expected = gradients(q, k[:, :, :60], v[:, :, :60], d_out, {})[:3]
    assert all((x[:, :, 60:] == 0).all() for x in grads[1:])
    for x, y in zip((grads[0], *(x[:, :, :60] for x in grads[1:])), expected, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [0.0, NAN])
def test_a_row_that_sees_nothing(bad):
    """Its own gradient is exactly 0 and it adds nothing to others, whatever comes down to it."""
    q, k, v, d_out = inputs()
    mask = torch.ones(T_Q, T_KV, dtype=torch.bool, device=DEVICE)
    mask[20] = False
    rest = torch.arange(T_Q, device=DEVICE) != 20
    d_out[:, :, 20] += bad
    d_lse = normal(2, 4, T_Q)
    d_q, d_k, d_v, *_ = gradients(q, k, v, d_out, {"mask": mask}, d_lse)
    assert (d_q[:, :, 20] == 0).all()
    expected = gradients(q[:, :, rest], k, v, d_out[:, :, rest], {}, d_lse[:, :, rest])
    for x, y in zip((d_q[:, :, rest], d_k, d_v), expected[:3], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_a_sum_has_stride_0():
    """flash-attention#818: `out.sum().backward()` hands in one number, repeated: the same bits as so many ones."""
    q, k, v, d_out = inputs()
    one = torch.ones((), device=DEVICE)
    repeated = gradients(q, k, v, one.expand(d_out.shape), {}, one.expand(2, 4, T_Q))
    written = gradients(q, k, v, torch.ones_like(d_out), {}, torch.ones(2, 4, T_Q, device=DEVICE))
    for x, y in zip(repeated[:3], written[:3], strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("shape", [(T_KV,), (T_Q, 1), (4, 1, T_KV), (2, 1, T_Q, T_KV), (1, 4, 1, 1), ()], ids=str)
def test_the_gradient_of_a_mask_has_its_shape(shape):
    """Summed over the axes along which it was broadcast: as of the whole mask, summed up."""
    q, k, v, d_out = inputs()
    mask = normal(*shape, dtype=torch.float32)
    options = {"is_causal": True, "window": 50}
    found = gradients(q, k, v, d_out, options | {"mask": mask})[3]
    whole = gradients(q, k, v, d_out, options | {"mask": mask.expand(2, 4, T_Q, T_KV).contiguous()})[3]
    assert found.shape == shape
    assert whole.abs().sum() > 1
    torch.testing.assert_close(found, whole.sum_to_size(shape), rtol=1e-4, atol=1e-4)


def test_what_is_not_asked_for_is_none():
    """The gradients of mask, slopes and sinks come only where they are needed; those of q, k and v always."""
    q, k, v, d_out = inputs(5, 7)
    options = {"mask": normal(5, 7), "alibi_slopes": normal(4), "sinks": normal(4)}
    out, lse = tiled.attention_forward(q, k, v, **options)
    none = dict.fromkeys(("needs_mask", "needs_alibi", "needs_sinks"), False)
    for i, asked in enumerate((None, *none)):
        given = everything(options) | none | ({} if asked is None else {asked: True})
        grads = flash.attention_backward(d_out, None, q, k, v, out, lse, **given)
        assert [x is not None for x in grads] == [True] * 3 + [i == 1, i == 2, i == 3]


def test_grouped_heads_add_up():
    """The gradient of a key head is the sum over its group: as if it had been repeated, to float32's rounding."""
    q, k, v, d_out = inputs(heads=(6, 2))
    repeated = [x.repeat_interleave(3, 1) for x in (k, v)]
    d_q, d_k, d_v, *_ = gradients(q, k, v, d_out, {"is_causal": True})
    expected = gradients(q, *repeated, d_out, {"is_causal": True})
    # out and lse are given, and `tiled` makes them of products of other shapes: they may differ by a rounding.
    torch.testing.assert_close(d_q, expected[0], rtol=0, atol=4 * torch.finfo(q.dtype).eps)
    for x, y in zip((d_k, d_v), expected[1:3], strict=True):
        torch.testing.assert_close(x, y.unflatten(1, (2, 3)).sum(2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [2**31 - 1, 2**63 - 1])
def test_a_window_longer_than_any_number_of_keys(window):
    """It hides nothing: no position plus the window runs over, and every key has its gradient."""
    q, k, v, d_out = inputs()
    out, lse = flash.attention_forward(q, k, v, is_causal=True)
    for x, y in zip(
        flash.attention_backward(d_out, None, q, k, v, out, lse, **everything({"is_causal": True, "window": window})),
        flash.attention_backward(d_out, None, q, k, v, out, lse, **everything({"is_causal": True})),
        strict=True,
    ):
        assert (x is None and y is None) or torch.allclose(x, y, rtol=1e-5, atol=1e-6)


def test_alone_and_in_a_batch():
    """The same request alone and among seven others has the same bits: no sum goes over programs in any order."""
    q, k, v, d_out = inputs(b=8, dtype=torch.float16)
    many = gradients(q, k, v, d_out, {"is_causal": True})
    alone = gradients(*(x[5:6] for x in (q, k, v, d_out)), {"is_causal": True})
    for x, y in zip(many[:3], alone[:3], strict=True):
        assert torch.equal(x[5:6], y)


@pytest.mark.parametrize(("b", "t_q", "t_kv"), [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
def test_nothing_is_there(b, t_q, t_kv):
    """No sequence, no query or no key: zeros, and for options too, in the shape of each input."""
    q, k, v, d_out = inputs(t_q, t_kv, b=b)
    options = {"mask": normal(t_q, 1), "alibi_slopes": normal(4), "sinks": normal(4)}
    grads = gradients(q, k, v, d_out, options)
    for grad, x in zip(grads, (q, k, v, *options.values()), strict=True):
        assert grad.shape == x.shape
        assert (grad == 0).all()


@pytest.mark.parametrize("name", ["window", "everything"])
def test_nothing_outside_is_read_or_written(monkeypatch, name):
    """Guard rows of NaN around every tensor, outputs too: none comes in, and all are still there."""
    options = on_device(HIDING[name])
    given = inputs()
    expected = gradients(*given, options)
    made = []

    def empty(*arguments):
        made.append(guarded_output(*arguments))
        return made[-1]

    monkeypatch.setattr(outputs, "empty", empty)
    inside = [guarded(x.shape, x) for x in given]
    for x, y in zip(inside, given, strict=True):
        x.copy_(y)
    if name == "everything":
        options["mask"] = guarded((T_KV,), options["mask"]).copy_(options["mask"])
    for x, y in zip(gradients(*inside, options), expected, strict=True):
        assert (x is None and y is None) or torch.equal(x, y)
    assert len(made) == (8 if name == "everything" else 5)
    assert all(untouched_around(x) for x in (*inside, *made))
    assert not any(x.isnan().any() for x in made)


@pytest.mark.parametrize(
    ("name", "change", "error", "says"),
    [
        ("grad_out", lambda x: x[:, :, :-1], ShapeError, "grad_out has shape (2, 4, 44, 7): expected (2, 4, 45, 7)"),
        ("grad_lse", lambda x: x[0], ShapeError, "grad_lse has shape (4, 45): expected (2, 4, 45)"),
        ("out", lambda x: x[..., :3], ShapeError, "out has shape (2, 4, 45, 3): expected (2, 4, 45, 7)"),
        ("lse", lambda x: x[:1], ShapeError, "lse has shape (1, 4, 45): expected (2, 4, 45)"),
        ("grad_out", lambda x: x.half(), DTypeError, "grad_out has dtype torch.float16 but q has torch.float32: "),
    ],
)
def test_what_does_not_fit_is_refused(name, change, error, says):
    """Before a kernel reads beyond the end of it."""
    q, k, v, d_out = inputs()
    out, lse = flash.attention_forward(q, k, v)
    given = {"grad_out": d_out, "grad_lse": lse, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    with pytest.raises(error) as caught:
        flash.attention_backward(**(given | {name: change(given[name])}), **everything({}))
    assert str(caught.value).startswith(says)
