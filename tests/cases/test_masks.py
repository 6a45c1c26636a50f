"""Masks: rows that see nothing, minimum values, padding with causality, alignment, and tiles that are wholly hidden."""

import functools

import pytest
import torch

from attnbook import probes
from attnbook.reference import causal_mask, padding_mask
from tests.cases.ways import IN_DTYPES, TORCH, TORCH_WITH_LSE, WAYS, WITH_LSE, Known, normal, qkv, run

HALF = [(way, dtype) for way, dtype in IN_DTYPES if dtype in (torch.float16, torch.bfloat16)]
LOWEST = torch.finfo(torch.float32).min


def one_row_hidden(value=None, row=1, dtype=torch.float32):
    """A mask (4, 6) that hides all keys from one query and some from others; floats where a value for it is given."""
    allowed = torch.rand(4, 6, generator=torch.Generator().manual_seed(3)) < 0.7
    allowed[:, 0] = True
    allowed[row] = False
    return allowed if value is None else torch.where(allowed, 0.0, value).to(dtype)


HIDDEN_ROWS = {
    "pytorch#103963, pytorch#41508: booleans": one_row_hidden(),
    "brevitas#1591: -inf": one_row_hidden(-torch.inf),
    "the lowest finite number": one_row_hidden(LOWEST),
    "the first row": one_row_hidden(row=0),
    "the last row": one_row_hidden(-torch.inf, row=3),
    "of one head": torch.stack([one_row_hidden(), torch.ones(4, 6, dtype=torch.bool)]),
    "of one sequence": torch.stack([one_row_hidden(), torch.ones(4, 6, dtype=torch.bool)])[:, None],
    "every row": torch.zeros(4, 6, dtype=torch.bool),
    "every row, one axis": torch.full((6,), -torch.inf),
    "every row, no axis": torch.tensor(False),
    "every head of one sequence": torch.tensor([True, False])[:, None, None, None],
    "all but one number": torch.eye(4, 6, dtype=torch.bool) & (torch.arange(6) == 2),
}


def allowed_by(mask):
    return mask if mask.dtype == torch.bool else mask > LOWEST


@functools.cache
def hidden_rows(name, dtype=torch.float32, **options):
    """The case of this name; the loss takes every row."""
    mask = HIDDEN_ROWS[name]
    return Known(*qkv(4, 6, dtype=dtype), mask=mask, allowed=allowed_by(mask), **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", HIDDEN_ROWS)
def test_a_row_that_sees_nothing(name, way):
    """Output 0, lse −inf, gradient 0; every other number is right and finite."""
    out, _, grads = hidden_rows(name).check(way)
    nothing = ~allowed_by(HIDDEN_ROWS[name]).expand(2, 2, 4, 6).any(-1)
    assert nothing.any()
    assert (out[nothing] == 0).all()
    if grads:
        assert (grads["q"][nothing] == 0).all()


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("name", ["pytorch#103963, pytorch#41508: booleans", "brevitas#1591: -inf"])
def test_a_loss_of_hidden_rows_alone_moves_nothing(name, way):
    """Whatever gradient comes in at a row that sees nothing, all that goes out is exactly 0."""
    tensors = [x.requires_grad_() for x in qkv(4, 6)]
    out, lse = run(way, *tensors, mask=HIDDEN_ROWS[name])
    row = out[:, :, 1] if lse is None else torch.cat([out[:, :, 1], lse[:, :, 1, None]], -1)
    for grad in torch.autograd.grad(row, tensors, torch.ones_like(row), allow_unused=True):
        assert grad is None or (grad == 0).all()


@pytest.mark.parametrize("way", TORCH_WITH_LSE)
@pytest.mark.parametrize("options", [{"softcap": 2.0}, {"sinks": torch.tensor([0.5, -1.0])}, {"is_causal": True}])
def test_a_row_that_sees_nothing_with_another_option(options, way):
    """A cap, a sink (then lse is the sink) or causality change nothing about it."""
    mask = HIDDEN_ROWS["pytorch#103963, pytorch#41508: booleans"]
    out, lse, grads = Known(*qkv(4, 6), mask=mask, **options).check(way)
    assert (out[:, :, 1] == 0).all()
    assert (grads["q"][:, :, 1] == 0).all()
    if "sinks" in options:
        torch.testing.assert_close(lse[:, :, 1], options["sinks"].expand(2, 2), rtol=0, atol=0)


@pytest.mark.parametrize(("way", "dtype"), IN_DTYPES)
def test_a_row_that_sees_nothing_in_every_dtype(dtype, way):
    """Half precision has the same zeros."""
    hidden_rows("pytorch#103963, pytorch#41508: booleans", dtype).check(way)


@pytest.mark.parametrize("kind", ["booleans", "lowest of q", "lowest of q, twice", "lowest of float32"])
@pytest.mark.parametrize(("way", "dtype"), HALF)
def test_causal_and_padding_together(dtype, kind, way):
    """transformers#17306, Automodel#2658: filling at the left and causality are both kept, and nothing is NaN."""
    padding = padding_mask(torch.tensor([7, 4]), 7, side="left")
    lowest = torch.finfo(dtype).min
    mask = {
        "booleans": padding,
        "lowest of q": torch.where(padding, 0.0, lowest).to(dtype),
        "lowest of q, twice": torch.where(padding, 0.0, lowest).to(dtype)
        + torch.where(causal_mask(7, like=padding), 0.0, lowest).to(dtype),
        "lowest of float32": torch.where(padding, 0.0, LOWEST),
    }[kind]
    allowed = padding & causal_mask(7, like=padding) if kind == "lowest of q, twice" else padding
    if kind == "lowest of q, twice":
        assert (mask == -torch.inf).any()
    known = Known(*qkv(7, dtype=dtype), mask=mask, allowed=allowed, is_causal=True)
    out, _, _ = known.check(way)
    assert (out[1, :, :3] == 0).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [-1e30, -1e4, LOWEST / 2])
def test_large_is_not_lowest(value, way):
    """A row of one large number is added, not hidden: what is left after rounding is averaged, as the sum says."""
    q, k, v = qkv(4, 6)
    out, lse = run(way, q, k, v, mask=torch.full((4, 6), value))
    if abs(value) > 1e20:  # scores are lost in it
        torch.testing.assert_close(out, v.mean(2, keepdim=True).expand_as(out), rtol=1e-6, atol=1e-6)
    else:
        known = Known(q, k, v, mask=torch.full((4, 6), value)).of(True)[0]["out"]
        torch.testing.assert_close(out.double(), torch.tensor(known), rtol=0, atol=1e-3)  # 1e4 has steps of 1e-3
    assert lse is None or lse.isfinite().all()


@pytest.mark.parametrize("way", WAYS)
def test_a_hidden_key_gets_no_gradient(way):
    """A column of False: that key and value have gradient exactly 0, and their numbers do not matter."""
    q, k, v = qkv(4, 6)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 2] = False
    out, _, grads = Known(q, k, v, mask=mask).check(way)
    if grads:
        assert (grads["k"][:, :, 2] == 0).all()
        assert (grads["v"][:, :, 2] == 0).all()
    k[:, :, 2], v[:, :, 2] = 1e30, torch.nan
    torch.testing.assert_close(run(way, q, k, v, mask=mask)[0], out, rtol=1e-6, atol=1e-6)


ALIGNED = {
    "pytorch#144858: 1 query, 5 keys": (1, 5),
    "2 queries, 5 keys": (2, 5),
    "flash-attention 2.1: 5 queries, 2 keys": (5, 2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALIGNED)
def test_causal_is_aligned_at_the_end(name, way):
    """The last query sees every key; queries before the first key see none: 0, lse −inf, gradient 0."""
    t_q, t_kv = ALIGNED[name]
    q, k, v = qkv(t_q, t_kv)
    out, lse, grads = Known(q, k, v, is_causal=True).check(way)
    torch.testing.assert_close(out[:, :, -1:], run(way, q[:, :, -1:], k, v)[0])
    early = max(t_q - t_kv, 0)
    assert (out[:, :, :early] == 0).all()
    assert (out[:, :, early:] != 0).all()
    if lse is not None:
        assert (lse[:, :, :early] == -torch.inf).all()
    if grads:
        assert (grads["q"][:, :, :early] == 0).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("upside_down", [False, True])
def test_the_leak_probe_sees_a_mask_upside_down(upside_down, way):
    """LLMs-from-scratch#1061: `triu`, True = drop, handed where True = keep: the probe fails loudly; `tril` passes."""
    x = normal(2, 7, 5)
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask = mask.triu(1) if upside_down else mask.tril()

    def attend(x):
        return run(way, *(x[:, None],) * 3, mask=mask)[0][:, 0]

    report = probes.causal_leak(attend, x)
    assert report.ok != upside_down
    assert bool(report.findings) == upside_down


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_backward_pass_has_the_same_mask(is_causal, way):
    """triton#4541: gradients are those of the function, causal or not (a kernel's backward ignored the flag)."""
    tensors = [x.requires_grad_() for x in qkv(3, 4, b=1, heads=(2, 1), d=2, dtype=torch.float64)]
    assert torch.autograd.gradcheck(lambda *x: run(way, *x, is_causal=is_causal)[0], tensors)


def all_hidden_but(t_kv, *seen):
    mask = torch.zeros(t_kv, dtype=torch.bool)
    for stretch in seen:
        mask[slice(*stretch)] = True
    return mask


HIDDEN_TILES = {
    "xformers 540fcbfd: the first": all_hidden_but(1301, (1100, 1301)),
    "all but the last keys": all_hidden_but(1301, (1298, 1301)),
    "all but the first keys": all_hidden_but(1301, (0, 3)),
    "the middle": all_hidden_but(1301, (0, 5), (1290, 1301)),
    "all": all_hidden_but(1301),
}


@functools.cache
def hidden_tiles(name, kind):
    mask = HIDDEN_TILES[name]
    floats = kind == "floats"
    return Known(
        *qkv(3, 1301, b=1), mask=torch.where(mask, 0.0, -torch.inf) if floats else mask, is_causal=kind == "causal"
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["booleans", "causal", "floats"])
@pytest.mark.parametrize("name", HIDDEN_TILES)
def test_a_tile_of_keys_that_is_wholly_hidden(name, kind, way):
    """The running maximum is −inf for a while, and nothing becomes NaN."""
    hidden_tiles(name, kind).check(way, gradients=way != "small tiles")  # 326 tiles a row


@pytest.mark.parametrize("way", WITH_LSE)
def test_the_lse_of_hidden_rows(way):
    """−inf exactly, in every row of every head that sees nothing, and nowhere else."""
    name = "of one head"
    lse = hidden_rows(name).check(way, gradients=False)[1]
    nothing = ~HIDDEN_ROWS[name].any(-1).expand(2, 2, 4)
    assert (lse.isinf() == nothing).all()
