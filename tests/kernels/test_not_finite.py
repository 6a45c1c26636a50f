"""A NaN or an infinity reaches what the formula takes it to, forward and backward; where it is hidden, nothing."""

import pytest
import torch

from attnbook.kernels import flash
from tests.kernels.backward_product import everything
from tests.kernels.device import DEVICE
from tests.kernels.not_finite import INF, NAN, OPTIONS, T_KV, check, inputs


@pytest.mark.parametrize(
    ("name", "place", "bad", "at"),
    [
        ("causal", "d_out", NAN, "amid"),  # in d_v: that component alone
        ("causal", "k", INF, "amid"),  # a score of −inf has weight 0, and 0 · inf is in one component of d_q
        ("bare", "k", INF, "last"),  # d_v of that key is 0 from rows that score it −inf
        ("softcap", "q", -INF, "last"),  # capped scores are finite, and flat: d_q is 0
    ],
)
def test_it_reaches_what_the_formula_takes_it_to(name, place, bad, at):
    """As in the reference, asked about one query and the keys that it sees: no more, no less, no other number."""
    check(name, place, bad, at)


def test_a_key_that_nobody_sees_reaches_no_gradient():
    """Nor those of slopes, sinks and the mask, which sum over many pairs: all are what they are with 0 in its place."""
    options = dict(OPTIONS["everything"])
    mask = torch.where(torch.arange(T_KV) < T_KV - 2, options["mask"], -INF)
    options = {key: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for key, x in (options | {"mask": mask}).items()}
    found = []
    for bad in (0.0, NAN, INF):
        q, k, v, d_out, d_lse = (x.to(DEVICE) for x in inputs().values())
        k[:, :, -2:], v[:, :, -2:] = bad, bad
        out, lse = flash.attention_forward(q, k, v, **options)
        found.append(flash.attention_backward(d_out, d_lse, q, k, v, out, lse, **everything(options)))
    for spoilt in found[1:]:
        for x, y in zip(spoilt, found[0], strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
