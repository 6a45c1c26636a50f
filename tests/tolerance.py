"""When is a result right? When it is finite and about as near to the truth as a plain calculation in the same dtype.

A fixed tolerance loosens as sequences grow (outputs shrink like 1/√t) until all zeros pass. So the limit comes from the
data: at most twice the error of the plain calculation, plus the one rounding that storing a result costs. And a check
is trusted only where it rejects garbage: `garbage` makes some that looks plausible.

Nothing here shares code with the package.

    truth(q, k, v, **options)            out and lse, one query at a time, float64 (tests/exact.py)
    exact(q, k, v, d_out=, …)            the same and all gradients, all queries at once (tests/exact.py)
    plain(q, k, v, **options)            out as one writes it at first, every step in the dtype of q
    plain_gradients(q, k, v, d_out=, …)  the gradients as one writes them at first: their baseline
"""

from functools import partial

import numpy as np
import torch

from tests.exact import as_float64, behind, exact, truth, visible

__all__ = [
    "as_float64",
    "assert_refuses",
    "assert_right",
    "causal",
    "exact",
    "garbage",
    "plain",
    "plain_gradients",
    "plain_lse",
    "truth",
    "visible",
    "worst",
]


def plain(q, k, v, **options):
    """Attention as one writes it at first, every step in the dtype of q; torch. Rows that see nothing are 0."""
    return _dense(*(torch.as_tensor(x) for x in (q, k, v)), **options)[0]


def plain_lse(q, k, v, **options):
    """Its log-sum-exp, in float32 where q is shorter: an lse is never stored in less."""
    return _dense(*(torch.as_tensor(x).to(torch.promote_types(q.dtype, torch.float32)) for x in (q, k, v)), **options)[
        1
    ]


def plain_gradients(q, k, v, *, d_out, d_lse=None, right=None, given=None, **options):
    """As `exact`, every step in the dtype of q; for each gradient the worst of some plain ways to write it.

    Autograd through softmax; or the sum over a row taken from the output, Σ d_out · out, as every implementation does
    that does not keep the weights: where a gradient is 0 by cancelling, the first can be exactly 0. It has the weights
    from the stored lse, which may be rounded up or down. And both with every sum in the opposite order too: so that one
    lucky rounding is not the measure. `right` is what `exact` says, where it is known already.

    `given` are out and lse, as tensors, where the gradients judged were calculated from those and not from their own:
    then the plain ways from the output are written from the same two as well, in both orders. It makes a difference
    that no care in a backward pass can take away. Where lse comes out of the very scores that it is taken off, a
    rounding of the scores that all of a row have in common cancels, and a row with one key has the weight 1 to the last
    digit. An lse that was given is off from these scores by their rounding, which grows with d, and so is each weight.
    Only of float32 and float64: shorter inputs have scores of float32, whose rounding the ways above have room for.
    """
    right = exact(q, k, v, d_out=d_out, d_lse=d_lse, **options) if right is None else right
    ways = []
    for backwards in (False, True):
        averages = [_average, partial(_AverageFromOut.apply, 0.5, None), partial(_AverageFromOut.apply, -0.5, None)]
        if given is not None and q.dtype in (torch.float32, torch.float64):
            there = tuple(x.flip(2) if backwards else x for x in given)
            averages.append(partial(_AverageFromOut.apply, 0.0, there))
        options |= {"backwards": backwards}
        ways += [_differentiate(q, k, v, d_out, d_lse, options | {"average": average}) for average in averages]
    return {name: worst(right[name], *(way[name] for way in ways)) for name in ways[0]}


def worst(right, *candidates):
    """The candidate that is farthest from what is right."""
    finite = np.isfinite(right)
    return max(candidates, key=lambda x: _largest((as_float64(x) - np.where(finite, right, 0))[finite]))


def _differentiate(q, k, v, d_out, d_lse, options):
    options = dict(options)
    leaves = {"q": q, "k": k, "v": v}
    leaves |= {name: options.pop(name) for name in ("bias", "alibi_slopes", "sinks") if options.get(name) is not None}
    leaves = {name: torch.as_tensor(x).detach().to(q.dtype).requires_grad_() for name, x in leaves.items()}
    out, lse = _dense(**leaves, **options)
    total = (out * d_out.to(q.dtype)).sum()
    if d_lse is not None:  # a row that sees nothing has lse −inf, a constant
        total = total + (torch.where(lse.isfinite(), lse, 0.0) * d_lse.to(q.dtype)).sum()
    grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    zeros = (torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves.values(), strict=True))
    return {name: as_float64(g) for name, g in zip(leaves, zeros, strict=True)}


def _dense(
    q, k, v, *, allowed=None, bias=None, scale=None,
    is_causal=False, window=None, softcap=None, alibi_slopes=None, sinks=None, average=None, backwards=False,
):  # fmt: skip
    """Out and lse with all scores at once, differentiable, in the dtype of q.

    `backwards` adds in the other order, and scales q instead of the scores.
    """
    n_heads, t_q = q.shape[1:3]
    k, v = (x.repeat_interleave(n_heads // x.shape[1], dim=1) for x in (k, v))
    t_kv = k.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    score = (q * scale).flip(-1) @ k.flip(-1).mT if backwards else q @ k.mT * scale
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    if alibi_slopes is not None:
        far = torch.arange(t_q)[:, None] + (t_kv - t_q) - torch.arange(t_kv)
        slopes = torch.as_tensor(alibi_slopes).to(q.dtype)
        score = score - slopes.reshape(-1, n_heads, 1, 1) * far.abs()
    if bias is not None:
        score = score + torch.as_tensor(bias).to(q.dtype)
    seen = torch.tensor(visible(tuple(score.shape), allowed=allowed, is_causal=is_causal, window=window))
    if backwards:
        score, seen, v = score.flip(-1, -2), seen.flip(-1, -2), v.flip(2)
    if sinks is not None:
        column = torch.as_tensor(sinks).to(q.dtype).reshape(1, n_heads, 1, 1).expand(*score.shape[:3], 1)
        score, seen = torch.cat([score, column], -1), torch.cat([seen, torch.ones_like(seen[..., :1])], -1)
        if not t_kv:
            seen = torch.ones_like(score, dtype=torch.bool)
    if not score.shape[-1]:
        return q @ k.mT @ v, score.sum(-1) - torch.inf
    out, lse = (average or _average)(score, seen, v)
    return (out.flip(2), lse.flip(2)) if backwards else (out, lse)


def _average(score, seen, v):
    """softmax over what is seen, and its average of v (a last column without value is a sink)."""
    nothing = ~seen.any(-1, keepdim=True)
    score = score.masked_fill(~seen & ~nothing, -torch.inf)  # rows that see nothing: kept finite, taken out below
    weight = torch.softmax(score, -1).masked_fill(nothing, 0.0)[..., : v.shape[2]]
    lse = torch.logsumexp(score, -1).masked_fill(nothing[..., 0], -torch.inf)
    return weight @ v, lse


class _AverageFromOut(torch.autograd.Function):
    """The same average; backward from the output instead of from all weights."""

    @staticmethod
    def forward(ctx, rounding, given, score, seen, v):
        out, lse = _average(score, seen, v) if given is None else given
        stored = lse.to(torch.promote_types(lse.dtype, torch.float32))  # an lse is never stored in less
        stored = torch.where(lse.isfinite(), stored * (1 + rounding * torch.finfo(stored.dtype).eps), 0.0)
        weight = torch.exp(score - stored[..., None]).to(score.dtype).masked_fill(~seen, 0.0)
        ctx.save_for_backward(weight, v, out)
        return out, lse

    @staticmethod
    def backward(ctx, d_out, d_lse):
        weight, v, out = ctx.saved_tensors
        row = d_lse[..., None] - (d_out * out).sum(-1, keepdim=True)
        d_weight = torch.nn.functional.pad(d_out @ v.mT, (0, weight.shape[-1] - v.shape[2]))
        return None, None, weight * (d_weight + row), None, weight[..., : v.shape[2]].mT @ d_out


def assert_right(out, exact, same_dtype, *, roundings=1, times=2):
    """`out` is finite and within twice the error of `same_dtype` plus one rounding of its dtype (two for an lse).

    An lse is the largest score plus a logarithm, and both have been rounded before they are added.
    """
    got, baseline = as_float64(out), as_float64(same_dtype)
    assert got.shape == exact.shape, f"shape {got.shape}, expected {exact.shape}"
    assert np.isfinite(got).all(), "not finite"
    eps = torch.finfo(torch.as_tensor(out).dtype).eps
    limit = times * _largest(baseline - exact) + roundings * eps * _largest(exact)
    error = _largest(got - exact)
    assert error <= limit, f"error {error:.3g} is above {limit:.3g}"


def assert_refuses(wrong, exact, same_dtype, *, times=2):
    """`assert_right` would refuse every result of `wrong` (by name), given in the dtype of `same_dtype`."""
    assert wrong, "no garbage to refuse"
    dtype = torch.as_tensor(same_dtype).dtype
    for name, result in wrong.items():
        try:
            assert_right(torch.as_tensor(as_float64(result)).to(dtype), exact, same_dtype, times=times)
        except AssertionError:
            continue
        raise AssertionError(f"{name} would be let through: the inputs are too tame for this check")


def garbage(q, k, v, *, is_causal=False, window=None, allowed=None, **options):
    """Wrong results by name, as float64 arrays: each must be refused by `assert_right`.

    Every option that is given is also dropped, moved or turned once. What happens not to change the result of this
    input (dropping a window longer than the sequence) is left out.
    """
    n_heads, d = q.shape[1], q.shape[-1]
    n_kv_heads = k.shape[1]
    shape = (*q.shape[:3], k.shape[2])

    def result(q=q, k=k, v=v, *, more=0, top_left=False, is_causal=is_causal, window=window, **changed):
        distance = behind(shape) + more - (shape[3] - shape[2] if top_left else 0)
        seen = np.ones(shape, dtype=bool) if allowed is None else np.broadcast_to(allowed, shape)
        seen = seen & (distance >= 0) if is_causal else seen
        seen = seen & (distance - more < window) if window is not None else seen
        return exact(q, k, v, **(options | {"allowed": seen} | changed))["out"]

    right = result()
    scale = options.get("scale", d**-0.5)
    wrong = {
        "zeros": np.zeros_like(right),
        "mean of v": _mean_of_v(v, n_heads) + np.zeros_like(right),
        "scale not there": result(scale=1.0),
        "scale 1/d": result(scale=1 / d),
        "scaled twice": result(scale=scale * scale),
        "half as large": right / 2,
        "NaN": np.where(np.arange(right.size).reshape(right.shape) == 0, np.nan, right),
    }
    if is_causal:
        wrong["one key too many"] = result(more=1)
        wrong["one key too few"] = result(more=-1)
        wrong["not causal"] = result(is_causal=False)
        wrong["aligned at the top left"] = result(top_left=True)
    if window is not None:
        wrong["window dropped"] = result(window=None)
        wrong["window one longer"] = result(window=window + 1)
        wrong["window one shorter"] = result(window=window - 1)
    for name in ("softcap", "bias", "alibi_slopes", "sinks"):
        if options.get(name) is not None:
            wrong[f"{name} dropped"] = result(**{name: None})
            wrong[f"{name} doubled"] = result(**{name: 2 * options[name]})
    for name in ("alibi_slopes", "sinks"):
        if options.get(name) is not None and n_heads > 1:
            wrong[f"{name} of the next head"] = result(**{name: torch.as_tensor(options[name]).roll(1, -1)})
    if options.get("alibi_slopes") is not None:
        wrong["alibi_slopes turned round"] = result(alibi_slopes=-torch.as_tensor(options["alibi_slopes"]))
    if allowed is not None:
        wrong["mask dropped"] = exact(q, k, v, is_causal=is_causal, window=window, **options)["out"]
    if n_kv_heads > 1:
        turn = np.roll(np.arange(n_kv_heads), 1)
        wrong["key and value heads permuted"] = result(k=torch.as_tensor(k)[:, turn], v=torch.as_tensor(v)[:, turn])
        if n_heads > n_kv_heads:
            spread = np.arange(n_heads) % n_kv_heads
            wrong["groups interleaved"] = result(k=torch.as_tensor(k)[:, spread], v=torch.as_tensor(v)[:, spread])
    return {name: x for name, x in wrong.items() if not np.allclose(x, right, rtol=1e-9, atol=1e-12)}


def causal(shape):
    """Bottom-right causal booleans of the scores' shape, by the definition."""
    return visible(shape, is_causal=True)


def _mean_of_v(v, n_heads):
    mean = as_float64(v).sum(axis=2, keepdims=True) / max(v.shape[2], 1)
    return np.repeat(mean, n_heads // v.shape[1], axis=1)


def _largest(x):
    return np.max(np.abs(x), initial=0.0)
