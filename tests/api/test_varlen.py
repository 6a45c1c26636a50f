"""Packed sequences through the door: every option equals one call for each sequence."""

import itertools

import pytest
import torch

from attnbook.api import attention, attention_varlen

ENDS_Q, ENDS_K = [0, 5, 5, 11, 12], [0, 7, 8, 13, 13]
T_Q, T_KV = 13, 17
SLOPES = torch.linspace(0.1, 0.6, 6)

OPTIONS = {
    "none": {},
    "scale": {"scale": 0.9},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 3},
    "slopes": {"alibi_slopes": SLOPES},
    "slopes of each sequence": {"alibi_slopes": torch.rand(4, 6, generator=torch.Generator().manual_seed(1))},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.arange(6.0)},
    "boolean mask": {"mask": torch.rand(T_Q, T_KV, generator=torch.Generator().manual_seed(2)) < 0.6},
    "float mask": {"mask": torch.randn(6, T_Q, T_KV, generator=torch.Generator().manual_seed(2))},
}


def inputs():
    g = torch.Generator().manual_seed(5)
    return [torch.randn(*shape, generator=g) for shape in ((T_Q, 6, 7), (T_KV, 3, 7), (T_KV, 3, 5))]


def one_by_one(q, k, v, **options):
    """`attention` of each sequence; the rest is 0."""
    out, lse = torch.zeros(T_Q, 6, 5), torch.full((T_Q, 6), -torch.inf)
    parts = zip(itertools.pairwise(ENDS_Q), itertools.pairwise(ENDS_K), strict=True)
    for n, (of_q, of_k) in enumerate(parts):
        rows, columns = slice(*of_q), slice(*of_k)
        own = dict(options)
        if "mask" in own:
            own["mask"] = own["mask"][..., rows, columns]
        if own.get("alibi_slopes") is not None and own["alibi_slopes"].ndim == 2:
            own["alibi_slopes"] = own["alibi_slopes"][n]
        part = [x[r].transpose(0, 1)[None] for x, r in ((q, rows), (k, columns), (v, columns))]
        out_n, lse_n = attention(*part, return_lse=True, impl="reference", **own)
        out = torch.cat([out[: of_q[0]], out_n[0].transpose(0, 1), out[of_q[1] :]])
        lse = torch.cat([lse[: of_q[0]], lse_n[0].transpose(0, 1), lse[of_q[1] :]])
    return out, lse


@pytest.mark.parametrize("kind", [list, torch.tensor])
@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("name", OPTIONS)
def test_each_sequence_is_by_itself(name, impl, kind):
    """With an empty sequence, one without keys, and rows that belong to none; gradients too."""
    found = []
    for call in (one_by_one, attention_varlen):
        leaves = [x.requires_grad_() for x in inputs()]
        more = {} if call is one_by_one else {"impl": impl, "return_lse": True}
        ends = () if call is one_by_one else (kind(ENDS_Q), kind(ENDS_K))
        out, lse = call(*leaves, *ends, **OPTIONS[name], **more)
        seen = lse.masked_fill(lse == -torch.inf, 0.0)
        found.append((out, lse, *torch.autograd.grad(out.square().sum() + seen.sum(), leaves)))
    torch.testing.assert_close(*found)
    assert (found[1][0][12:] == 0).all()
    assert (found[1][1][12:] == -torch.inf).all()


def test_options_change_the_result():
    """None is dropped on the way."""
    plain = attention_varlen(*inputs(), ENDS_Q, ENDS_K)
    for name in OPTIONS:
        if name not in ("none", "window"):
            changed = attention_varlen(*inputs(), ENDS_Q, ENDS_K, **OPTIONS[name])
            assert (changed - plain).abs().max() > 0.01, name
