"""torch's own attention on packed sequences: right where it is taken, refused where it would not be."""

import itertools

import pytest
import torch

from attnbook import attention_varlen, explain
from attnbook.errors import BackendUnavailable
from tests.tolerance import assert_refuses, assert_right, exact, garbage, plain

# Neighbours of equal length, short ones apart, an empty sequence, one token, and two rows that belong to none.
LENGTHS = (131, 131, 7, 0, 67, 7, 1)
ENDS = torch.tensor((0, *LENGTHS)).cumsum(0)
T = int(ENDS[-1]) + 2


def inputs(dtype=torch.float32):
    """q of six heads, k and v of two."""
    make = torch.Generator().manual_seed(3)
    return [torch.randn(T, h, 16, generator=make, dtype=torch.float64).to(dtype) for h in (6, 2, 2)]


@pytest.mark.parametrize("impl", ["sdpa", "auto"])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_each_sequence_is_right(dtype, is_causal, impl):
    """Each is the truth about itself, garbage is refused, and rows that belong to none are 0."""
    q, k, v = inputs(dtype)
    out = attention_varlen(q, k, v, ENDS, ENDS, is_causal=is_causal, scale=0.4, impl=impl)
    assert explain(q, k, v, ENDS, ENDS, is_causal=is_causal, scale=0.4, impl=impl).impl == "sdpa"
    for start, end in itertools.pairwise(ENDS):
        own = [x[start:end].transpose(0, 1)[None] for x in (q, k, v)]
        options = {"is_causal": is_causal, "scale": 0.4}
        right, baseline = exact(*own, **options)["out"], plain(*own, **options)
        assert_right(out[start:end].transpose(0, 1)[None], right, baseline)
        if end - start > 7:
            assert_refuses(garbage(*own, **options), right, baseline)
    assert torch.equal(out[ENDS[-1] :], torch.zeros_like(out[ENDS[-1] :]))


def test_its_gradients_are_those_of_the_reference():
    """By name it has a backward pass; by itself the door takes the tiles for it."""
    found = []
    for impl in ("sdpa", "reference", "auto"):
        leaves = [x.requires_grad_() for x in inputs(torch.float64)]
        out = attention_varlen(*leaves, ENDS, ENDS, is_causal=True, impl=impl)
        found.append(torch.autograd.grad((out * out.detach().cos()).sum(), leaves))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert explain(*(x.requires_grad_() for x in inputs()), ENDS, ENDS).impl == "tiled"


REFUSED = {
    "window": ({"is_causal": True, "window": 3}, "sdpa takes packed sequences without window only"),
    "softcap": ({"softcap": 3.0}, "sdpa takes packed sequences without softcap only"),
    "sinks": ({"sinks": torch.ones(6)}, "sdpa takes packed sequences without sinks only"),
    "slopes": ({"alibi_slopes": torch.ones(6)}, "sdpa takes packed sequences without alibi_slopes only"),
    "mask": ({"mask": torch.ones(T, T, dtype=torch.bool)}, "sdpa takes packed sequences without mask only"),
    "lse": ({"return_lse": True}, "sdpa takes packed sequences without return_lse only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_do_is_an_error_by_name(name):
    """An option that torch's function would drop is refused, and the door by itself takes the tiles."""
    options, text = REFUSED[name]
    with pytest.raises(BackendUnavailable, match=text):
        attention_varlen(*inputs(), ENDS, ENDS, impl="sdpa", **options)
    assert explain(*inputs(), ENDS, ENDS, **options).impl == "tiled"


def test_other_numbers_of_keys():
    """A causal mask would be aligned at the top left: refused. Without one it is right."""
    q, k, v = inputs()
    fewer = torch.tensor([0, 3, 9])
    more = torch.tensor([0, 19, 47])
    with pytest.raises(BackendUnavailable, match="sdpa aligns causal masks at the top left"):
        attention_varlen(q, k, v, fewer, more, is_causal=True, impl="sdpa")
    out = attention_varlen(q, k, v, fewer, more, impl="sdpa")
    torch.testing.assert_close(out, attention_varlen(q, k, v, fewer, more, impl="reference"))


@pytest.mark.parametrize("where", range(3))
def test_a_nan_stays_with_the_tiles(where):
    """torch's own would spread it; by name that is an error, and the door takes the tiles, which don't."""
    q, k, v = given = inputs()
    given[where][130] = torch.nan  # the last row of the first sequence: only its own query may see it
    with pytest.raises(BackendUnavailable, match="sdpa lets a NaN or inf reach rows"):
        attention_varlen(q, k, v, ENDS, ENDS, is_causal=True, impl="sdpa")
    out = attention_varlen(q, k, v, ENDS, ENDS, is_causal=True)
    assert out[130].isnan().any()
    assert out[torch.arange(T) != 130].isfinite().all()
