"""torch's flash kernel, called where it gives its lse: what it gives follows our conventions, or is not taken."""

import pytest
import torch

from attnbook import attention, explain
from attnbook.api import flash
from attnbook.errors import BackendUnavailable
from tests.tolerance import assert_right, exact, plain, worst

T_Q, T_KV = 37, 41


def inputs(dtype=torch.float32, h_kv=4, t_q=T_Q, t_kv=T_KV, seed=0):
    """q, k, v of four heads."""
    g = torch.Generator().manual_seed(seed)
    shapes = ((2, 4, t_q, 8), (2, h_kv, t_kv, 8), (2, h_kv, t_kv, 8))
    return [torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype) for shape in shapes]


def how(mask=None, is_causal=False, scale=None):
    """The options that torch's kernel knows."""
    return flash.How(mask, None, None, is_causal, None, None, scale)


def allowed(rows=(3,), t_q=T_Q, t_kv=T_KV):
    """Which key may be seen; by these rows none."""
    seen = torch.rand(t_q, t_kv, generator=torch.Generator().manual_seed(1)) < 0.6
    seen[list(rows)] = False
    return seen


@pytest.fixture
def taken(monkeypatch):
    """Whether the kernel's result was taken, call by call."""
    found = []
    forward = flash.forward

    def noting(*args):
        result = forward(*args)
        found.append(result is not None)
        return result

    monkeypatch.setattr(flash, "forward", noting)
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_the_lowest_number_hides(taken, dtype, rows):
    """Beside a key that is seen it has weight 0 in torch's kernel, too; a whole row of it is 0 and goes another way."""
    q, k, v = inputs(dtype, t_q=67)
    seen = allowed(rows, t_q=67)
    bias = torch.randn(67, T_KV, generator=torch.Generator().manual_seed(2)).to(dtype)
    mask = torch.where(seen, bias, torch.finfo(dtype).min)
    definition = {"allowed": seen.expand(2, 4, -1, -1).numpy(), "bias": torch.where(seen, bias, 0.0)}
    right = exact(q, k, v, **definition)["out"]
    rounded = worst(right, *(plain(q, k, v, backwards=backwards, **definition) for backwards in (False, True)))
    out = attention(q, k, v, mask=mask)
    assert_right(out, right, rounded)
    assert taken == [not rows]
    assert all((out[:, :, row] == 0).all() for row in rows)


def test_a_score_that_outweighs_what_hides(taken):
    """float16's lowest number added to a score of 80 000 would leave 14 496: the kernel's result is not taken."""
    q, k, v = inputs(torch.float16, t_q=67)
    q[..., 0], k[:, :, 5, 0] = 500.0, 400.0
    mask = torch.zeros(67, T_KV, dtype=torch.float16)
    mask[:, 5] = torch.finfo(torch.float16).min
    others = [j for j in range(T_KV) if j != 5]
    expected = attention(q, k[:, :, others], v[:, :, others])
    torch.testing.assert_close(attention(q, k, v, mask=mask), expected)
    assert taken == [False]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_mask_that_is_no_number_is_not_taken(taken, bad):
    """Then rows must be told apart."""
    mask = torch.zeros(T_Q, T_KV)
    mask[5, 7] = bad
    out = attention(*inputs(), mask=mask)
    assert taken == [False]
    assert out[:, :, 5].isnan().all()
    assert out[:, :, 6:].isfinite().all()


def test_where_torch_lacks_it(monkeypatch):
    """Its name begins with an underscore: without it the results are the same."""
    mask = torch.where(allowed(()), 0.0, -torch.inf)
    before = attention(*inputs(), mask=mask)
    monkeypatch.setattr(flash, "FORWARD", None)
    assert not flash.suits(*inputs(), how())
    torch.testing.assert_close(attention(*inputs(), mask=mask), before)


def test_torch_has_it():
    """In the version that this is tested with; a later one may need another name."""
    assert flash.FORWARD is not None
    assert flash.BACKWARD is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("last", ["sees all", "sees nothing", "does not see it"])
def test_the_last_row_shows_a_value_that_leaks(taken, last, bad, dtype):
    """Whatever it sees: only that row is looked at, and rows that may not see the value keep their numbers."""
    q, k, v = inputs(dtype, t_q=67)
    seen = allowed((), t_q=67)
    seen[:, 7], seen[30, 7] = False, True
    seen[-1] = {"sees all": True, "sees nothing": False, "does not see it": torch.arange(T_KV) != 7}[last]
    clean = attention(q, k, v, mask=seen)
    v[0, 1, 7, 3] = bad
    out = attention(q, k, v, mask=seen)
    assert taken == [True, False]
    may = torch.zeros_like(out, dtype=torch.bool)
    may[0, 1, seen[:, 7], 3] = True
    assert not out[may].isfinite().any()
    rounding = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(out[~may], clean[~may], rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_infinite_key_that_the_last_row_hides(taken, dtype):
    """Its score there is −inf, which hides it again, and +inf elsewhere, which is NaN beside −inf: the lse tells."""
    q, k, v = inputs(dtype, t_q=67)
    q[..., 2] = -1.0
    q[0, 1, 40, 2] = 1.0
    seen = allowed((), t_q=67)
    seen[:, 7] = False
    clean = attention(q, k, v, mask=seen)
    k[0, 1, 7, 2] = torch.inf
    out = attention(q, k, v, mask=seen)
    assert taken == [True, False]
    rounding = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(out, clean, rtol=rounding, atol=rounding)


# The operator and the lse


MASKS = {
    "none": None,
    "boolean": allowed(),
    "floats": torch.where(allowed(), torch.randn(T_Q, T_KV, generator=torch.Generator().manual_seed(2)), -torch.inf),
    "padding": (torch.arange(T_KV) < 29)[None, None, None],
    "one number a row": torch.arange(T_Q)[:, None] < 31,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("h_kv", [4, 2, 1])
@pytest.mark.parametrize("name", [*MASKS, "causal"])
def test_the_operator_takes_it(taken, name, h_kv, dtype):
    """With the out of the tiles, their lse, their gradients: rows that see nothing have lse −inf and gradients 0."""
    q, k, v = inputs(dtype, h_kv, t_q=T_KV if name == "causal" else T_Q)
    mask = MASKS.get(name)
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
    found = []
    for impl in ("tiled", "auto"):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        options = (mask, None, None, name == "causal", None, None, 0.3, impl, False)
        out, lse = torch.ops.attnbook.attention(*leaves, *options)
        weight = torch.linspace(-1, 1, out.numel(), dtype=dtype).view(out.shape)
        found.append((out, lse, *torch.autograd.grad((out * weight).sum(), leaves)))
    assert taken == [True]
    rounding = 16 * torch.finfo(dtype).eps
    for x, y in zip(*found, strict=True):
        rounds = rounding if x.dtype == dtype else 1e-4  # torch's exp of half precision
        torch.testing.assert_close(y, x, rtol=rounds, atol=rounds * x[x.isfinite()].abs().max().item())
    assert (found[1][1] == -torch.inf).any() == (name in ("boolean", "floats", "one number a row"))


@pytest.mark.parametrize("where", ["q", "k", "v", "grad"])
@pytest.mark.parametrize("name", ["boolean", "causal"])
def test_the_operator_keeps_a_nan_in_its_rows(name, where):
    """Forward and backward each look, and leave it to the tiles."""
    mask = None if name == "causal" else allowed(())
    found = []
    for impl in ("tiled", "auto"):
        tensors = dict(zip("qkv", inputs(t_q=T_KV if name == "causal" else T_Q), strict=True))
        tensors["grad"] = torch.ones_like(tensors["q"])
        tensors[where][0, 1, 11] = torch.nan
        leaves = [tensors[x].requires_grad_() for x in "qkv"]
        out, _ = torch.ops.attnbook.attention(*leaves, mask, None, None, name == "causal", None, None, None, impl)
        found.append((out, *torch.autograd.grad(out, leaves, tensors["grad"])))
    for x, y in zip(*found, strict=True):
        assert x.isfinite().any()
        torch.testing.assert_close(y, x, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("impl", ["sdpa", "auto"])
@pytest.mark.parametrize("name", [*MASKS, "lowest", "causal"])
def test_lse(taken, name, impl, dtype):
    """torch's kernel gives it, with gradients of both results (those of the lse by the tiles)."""
    q, k, v = inputs(dtype, 2, t_q=T_KV if name == "causal" else T_Q)
    mask = MASKS["floats" if name == "lowest" else name] if name != "causal" else None
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
    mask = mask.clamp(min=torch.finfo(dtype).min) if name == "lowest" else mask
    found = []
    for took in ("reference", impl):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out, lse = attention(*leaves, mask=mask, is_causal=name == "causal", return_lse=True, impl=took)
        total = out.sum() + lse[lse.isfinite()].square().sum()
        found.append((out, lse, *torch.autograd.grad(total, leaves)))
    assert taken == [True]
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", ["none", "causal", "boolean", "lowest"])
def test_lse_without_gradients(taken, name):
    """The short way there: one call of the kernel, the same numbers; a row of the lowest number takes two."""
    q, k, v = inputs(h_kv=2, t_q=67, t_kv=67)
    seen = allowed(t_q=67, t_kv=67)
    masks = {"boolean": seen, "lowest": torch.where(seen, 0.5, torch.finfo(torch.float32).min)}
    options = {"mask": masks.get(name), "is_causal": name == "causal", "return_lse": True}
    found = attention(q, k, v, **options)
    assert taken == ([False, True] if name == "lowest" else [True])
    torch.testing.assert_close(found, attention(q, k, v, **options, impl="reference"))
    assert (found[1] == -torch.inf).any() == (name in masks)


def test_lse_by_name_where_torch_has_none():
    """Half precision, whose lse is rounded; options it lacks; a NaN, which it lets leak."""
    q, k, v = inputs()
    cases = [
        (inputs(torch.bfloat16), {}, "sdpa returns no lse in half precision"),
        (
            (q, k, v),
            {"is_causal": True},
            "sdpa returns no lse: torch's flash kernel would, but does not take this call",
        ),
        ((q, k, v + torch.nan), {}, "sdpa returns no lse where there is a NaN or inf"),
    ]
    for tensors, options, text in cases:
        with pytest.raises(BackendUnavailable, match=text):
            attention(*tensors, **options, return_lse=True, impl="sdpa")


def test_the_tiles_by_name_are_tiles(taken):
    """Also compiled, and under autocast, where they are the same operator."""
    (q, k, v), mask = inputs(), allowed(())

    def call(q, impl):
        return attention(q, k, v, mask=mask, impl=impl)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for impl, expected in (("tiled", []), ("auto", [True])):
        taken.clear()
        compiled(q, impl)
        assert taken == expected
    taken.clear()
    with torch.autocast("cpu", torch.bfloat16):
        call(q, "tiled")
    assert taken == []


def test_explain_without_values():
    """Which one runs is not known before the operator runs, and that is what is said."""
    said = explain(*(x.to("meta") for x in inputs()), mask=allowed().to("meta"))
    assert said.impl == "auto"
    assert "the operator attnbook::attention chooses when it runs" in said.why
    assert said.rejected["tiled"] == said.rejected["sdpa"] == "not by itself: the operator may take it"
    assert explain(*(x.to("meta") for x in inputs()), window=3, is_causal=True).impl == "tiled"
