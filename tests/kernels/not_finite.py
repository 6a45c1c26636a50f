"""Where a NaN or an infinity in one entry may come to: the reference, asked about one query and the keys that it sees.

A key that is not handed in cannot be multiplied by 0, so nothing of what is hidden comes into these gradients, and what
is seen goes where the formula takes it: a NaN in one component of d_out to that component of d_v, an infinite score to
all of a row or, where its weight is 0, to the one component in which 0 meets an infinity.
"""

import torch

from attnbook.kernels import flash
from attnbook.reference import attention
from tests.exact import visible
from tests.kernels.backward_product import everything
from tests.kernels.device import DEVICE

NAN, INF = torch.nan, torch.inf
HEADS, T_Q, T_KV, D, D_V = (2, 1), 35, 67, 5, 7  # the interpreter's tiles of 32 and 64 have 3 left over in both
PLACES = ("q", "k", "v", "d_out")
OPTIONS = {
    "bare": {},
    "softcap": {"softcap": 2.0},
    "slopes": {"alibi_slopes": torch.tensor([0.3, 0.1])},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 7},
    "booleans": {"mask": torch.rand(T_Q, T_KV, generator=torch.Generator().manual_seed(3)) < 0.3},
    "causal with a softcap": {"is_causal": True, "softcap": 2.0},
    "everything": {
        "is_causal": True, "window": 40, "softcap": 2.0, "alibi_slopes": torch.tensor([0.3, 0.1]),
        "sinks": torch.arange(2.0), "mask": torch.where(torch.arange(T_KV) % 3 < 2, 0.5, -INF),
    },
}  # fmt: skip


def inputs(dtype=torch.float32):
    """q, k, v and the gradients of out and of lse, by name."""
    shapes = {
        "q": (1, HEADS[0], T_Q, D), "k": (1, HEADS[1], T_KV, D), "v": (1, HEADS[1], T_KV, D_V),
        "d_out": (1, HEADS[0], T_Q, D_V),
    }  # fmt: skip
    make = torch.Generator().manual_seed(5)
    given = {name: torch.randn(shape, generator=make).to(dtype) for name, shape in shapes.items()}
    return given | {"d_lse": torch.randn(1, HEADS[0], T_Q, generator=make)}


def spoilt(place, bad, at, dtype=torch.float32):
    """The same with one entry that is `bad`: amid the rows, or in the last, whose tile is not full."""
    given = inputs(dtype)
    rows = given[place].shape[2]
    given[place][0, -1, rows // 2 if at == "amid" else rows - 1, 1] = bad
    return given


def seen(options):
    """Which query may see which key, by the definition: booleans (t_q, t_kv)."""
    mask = options.get("mask", torch.tensor(True))
    allowed = (mask if mask.dtype == torch.bool else mask > -INF).expand(T_Q, T_KV)
    how = {name: options[name] for name in ("is_causal", "window") if name in options}
    return torch.from_numpy(visible((T_Q, T_KV), allowed=allowed.numpy(), **how))


def one_by_one(q, k, v, d_out, d_lse, options):
    """Out, lse and the gradients of q, k and v by the reference in float64: a query at a time, with what it sees."""
    q, k, v, d_out, d_lse = (x.double() for x in (q, k, v, d_out, d_lse))
    found = [torch.zeros_like(d_out), torch.full_like(d_lse, -INF), *(torch.zeros_like(x) for x in (q, k, v))]
    out, lse, d_q, d_k, d_v = found
    sinks = options["sinks"].double() if "sinks" in options else None
    for i, keys in enumerate(seen(options)):
        row = slice(i, i + 1)
        leaves = [x.clone().requires_grad_() for x in (q[:, :, row], k[:, :, keys], v[:, :, keys])]
        added = added_to(i, keys, options)
        now = attention(*leaves, mask=added, softcap=options.get("softcap"), sinks=sinks, return_lse=True)
        blind = now[1] == -INF  # of a row that sees nothing lse is a constant
        total = (now[0] * d_out[:, :, row]).sum() + (now[1].masked_fill(blind, 0.0) * d_lse[:, :, row]).sum()
        grads = torch.autograd.grad(total, leaves)
        out[:, :, row], lse[:, :, row] = (x.detach() for x in now)
        d_q[:, :, row] += grads[0]
        d_k[:, :, keys] += grads[1]
        d_v[:, :, keys] += grads[2]
    return found


def added_to(i, keys, options):
    """What is added to the scores of query i and the keys that it sees: (1, n_heads, 1, keys), float64."""
    added = torch.zeros(1, HEADS[0], 1, int(keys.sum()), dtype=torch.float64)
    if "alibi_slopes" in options:
        far = (i + T_KV - T_Q - torch.arange(T_KV)[keys]).abs()
        added -= options["alibi_slopes"].double()[None, :, None, None] * far
    mask = options.get("mask")
    return added if mask is None or mask.dtype == torch.bool else added + mask.double().expand(T_Q, T_KV)[i, keys]


def of_kernels(q, k, v, d_out, d_lse, options):
    """The same from the kernels, forward and backward, on the CPU."""
    on_device = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    q, k, v, d_out, d_lse = (x.to(DEVICE) for x in (q, k, v, d_out, d_lse))
    out, lse = flash.attention_forward(q, k, v, **on_device)
    grads = flash.attention_backward(d_out, d_lse, q, k, v, out, lse, **everything(on_device))
    return [x.cpu() for x in (out, lse, *grads[:3])]


def check(name, place, bad, at, dtype=torch.float32):
    """AssertionError unless the kernels are finite where the reference is and nowhere else, and as near as a dtype is.

    What is NaN and what an infinity is compared where a NaN went in. Of an infinity the difference of two may come
    out of it, and which ones are subtracted is the order of summation: delta is a sum over components in the kernels,
    over keys in the reference.
    """
    given = spoilt(place, bad, at, dtype)
    right = one_by_one(*given.values(), OPTIONS[name])
    found = of_kernels(*given.values(), OPTIONS[name])
    assert not all(x.isfinite().all() for x in right), "nothing is spoilt"
    for what, got, expected in zip(("out", "lse", "d_q", "d_k", "d_v"), found, right, strict=True):
        if bad != bad:
            assert got.isnan().equal(expected.isnan()), f"NaN in other places of {what} than in the reference's"
        finite = expected.isfinite()
        assert got.isfinite().equal(finite), f"{what} is finite in other places than the reference's"
        near = 64 * torch.finfo(dtype).eps * expected[finite].abs().max() if finite.any() else 0.0
        assert ((got - expected)[finite].abs() <= near).all(), f"{what} is not what it is in the reference"
