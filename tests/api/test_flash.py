"""torch's flash kernel, called where it gives its lse: what it gives follows our conventions, or is not taken."""

import pytest
import torch

from attnbook import attention
from attnbook.api import flash
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
