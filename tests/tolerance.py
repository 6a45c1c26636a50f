"""When is a result right? When it is finite and about as near to the truth as a plain calculation in the same dtype.

A fixed tolerance loosens as sequences grow (outputs shrink like 1/√t) until all zeros pass. So the limit comes from the
data: at most twice the error of the plain calculation, plus the one rounding that storing a result costs. And a check
is trusted only where it rejects garbage: `garbage` makes some that looks plausible.

Everything here is written a second time, by the definition, and shares no code with the package.

    truth(q, k, v, **options)                       out and lse, one query at a time, float64
    exact(q, k, v, …, d_out=, d_lse=, **options)    the same and all gradients, float64, all queries at once
    plain(q, k, v, **options)                       out as one writes it at first, every step in the dtype of q
    plain_gradients(…)                              its lse and gradients too: the baseline for gradients
"""

import numpy as np
import torch


def as_float64(x):
    """Any array as a NumPy float64 array (torch's bfloat16 included)."""
    return x.detach().double().numpy() if isinstance(x, torch.Tensor) else np.asarray(x, dtype=np.float64)


def truth(
    q, k, v, *, allowed=None, bias=None, scale=None,
    is_causal=False, window=None, softcap=None, alibi_slopes=None, sinks=None,
):  # fmt: skip
    """Attention and its log-sum-exp in float64 by the definition: one query at a time, over the keys it may see.

    `allowed` and `bias` have the scores' shape (b, n_heads, t_q, t_kv). Keys that are not seen are not even read.
    """
    q, k, v = (as_float64(x) for x in (q, k, v))
    b, n_heads, t_q, d = q.shape
    _, n_kv_heads, t_kv, d_v = v.shape
    scale = d**-0.5 if scale is None else scale
    seen = visible((b, n_heads, t_q, t_kv), allowed=allowed, is_causal=is_causal, window=window)
    out, lse = np.zeros((b, n_heads, t_q, d_v)), np.full((b, n_heads, t_q), -np.inf)
    for n, h, i in np.ndindex(b, n_heads, t_q):
        g = h * n_kv_heads // n_heads
        keys = np.flatnonzero(seen[n, h, i])
        score = scale * k[n, g, keys] @ q[n, h, i]
        if softcap is not None:
            score = softcap * np.tanh(score / softcap)
        if alibi_slopes is not None:
            slope = as_float64(alibi_slopes)[(n, h) if alibi_slopes.ndim == 2 else h]
            score = score - slope * np.abs(i + t_kv - t_q - keys)
        if bias is not None:
            score = score + as_float64(bias)[n, h, i, keys]
        if sinks is not None:
            score = np.append(score, as_float64(sinks)[h])
        if not len(score):
            continue
        e = np.exp(score - score.max())
        out[n, h, i] = e[: len(keys)] / e.sum() @ v[n, g, keys]
        lse[n, h, i] = score.max() + np.log(e.sum())
    return out, lse


def visible(shape, *, allowed=None, is_causal=False, window=None):
    """Booleans of the scores' shape: which query may see which key, by the definition (bottom-right)."""
    seen = np.ones(shape, dtype=bool) if allowed is None else np.array(np.broadcast_to(allowed, shape))
    if is_causal:
        seen &= _behind(shape) >= 0
    if window is not None:
        seen &= _behind(shape) < window
    return seen


def plain(q, k, v, **options):
    """Attention as one writes it at first, every step in the dtype of q; torch. Rows that see nothing are 0."""
    return _dense(*(torch.as_tensor(x) for x in (q, k, v)), **options)[0]


def exact(q, k, v, *, d_out=None, d_lse=None, **options):
    """{"out", "lse", and with d_out "q", "k", "v", "bias", "alibi_slopes", "sinks"}: the truth and its gradients.

    The gradients are those of Σ d_out · out + Σ d_lse · lse. NumPy float64.
    """
    return _all(torch.float64, q, k, v, d_out, d_lse, options)


def plain_gradients(q, k, v, *, d_out, d_lse=None, **options):
    """As `exact`, every step in the dtype of q: what a gradient may be twice as wrong as."""
    return _all(q.dtype, q, k, v, d_out, d_lse, options)


def _all(dtype, q, k, v, d_out, d_lse, options):
    options = dict(options)
    leaves = {"q": q, "k": k, "v": v}
    leaves |= {name: options.pop(name) for name in ("bias", "alibi_slopes", "sinks") if options.get(name) is not None}
    leaves = {name: torch.as_tensor(x).detach().to(dtype).requires_grad_() for name, x in leaves.items()}
    out, lse = _dense(**leaves, **options)
    found = {"out": as_float64(out), "lse": as_float64(lse)}
    if d_out is not None:
        total = (out * d_out.to(dtype)).sum()
        if d_lse is not None:  # a row that sees nothing has lse −inf, a constant
            total = total + (torch.where(lse.isfinite(), lse, 0.0) * d_lse.to(dtype)).sum()
        grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        zeros = (torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves.values(), strict=True))
        found |= {name: as_float64(g) for name, g in zip(leaves, zeros, strict=True)}
    return found


def _dense(
    q, k, v, *, allowed=None, bias=None, scale=None,
    is_causal=False, window=None, softcap=None, alibi_slopes=None, sinks=None,
):  # fmt: skip
    """Out and lse with all scores at once, differentiable, in the dtype of q."""
    n_heads, t_q = q.shape[1:3]
    k, v = (x.repeat_interleave(n_heads // x.shape[1], dim=1) for x in (k, v))
    t_kv = k.shape[2]
    score = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    if alibi_slopes is not None:
        far = torch.arange(t_q)[:, None] + (t_kv - t_q) - torch.arange(t_kv)
        slopes = torch.as_tensor(alibi_slopes).to(q.dtype)
        score = score - slopes.reshape(-1, n_heads, 1, 1) * far.abs()
    if bias is not None:
        score = score + torch.as_tensor(bias).to(q.dtype)
    seen = torch.tensor(visible(tuple(score.shape), allowed=allowed, is_causal=is_causal, window=window))
    if sinks is not None:
        column = torch.as_tensor(sinks).to(q.dtype).reshape(1, n_heads, 1, 1).expand(*score.shape[:3], 1)
        score, seen = torch.cat([score, column], -1), torch.cat([seen, torch.ones_like(seen[..., :1])], -1)
        if not t_kv:
            seen = torch.ones_like(score, dtype=torch.bool)
    nothing = ~seen.any(-1, keepdim=True)
    if not score.shape[-1]:
        return q @ k.mT @ v, score.sum(-1) - torch.inf
    score = score.masked_fill(~seen & ~nothing, -torch.inf)  # rows that see nothing: kept finite, taken out below
    weight = torch.softmax(score, -1).masked_fill(nothing, 0.0)[..., :t_kv]
    lse = torch.logsumexp(score, -1).masked_fill(nothing[..., 0], -torch.inf)
    return weight @ v, lse


def assert_right(out, exact, same_dtype):
    """`out` is finite and within twice the error of `same_dtype` plus one rounding of its dtype."""
    got, baseline = as_float64(out), as_float64(same_dtype)
    assert got.shape == exact.shape, f"shape {got.shape}, expected {exact.shape}"
    assert np.isfinite(got).all(), "not finite"
    if not got.size:
        return
    eps = torch.finfo(torch.as_tensor(out).dtype).eps
    limit = 2 * np.abs(baseline - exact).max() + eps * np.abs(exact).max()
    error = np.abs(got - exact).max()
    assert error <= limit, f"error {error:.3g} is above {limit:.3g}"


def assert_refuses(wrong, exact, same_dtype):
    """`assert_right` would refuse every result of `wrong` (by name), given in the dtype of `same_dtype`."""
    assert wrong, "no garbage to refuse"
    dtype = torch.as_tensor(same_dtype).dtype
    for name, result in wrong.items():
        try:
            assert_right(torch.as_tensor(result).to(dtype), exact, same_dtype)
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
        behind = _behind(shape) + more - (shape[3] - shape[2] if top_left else 0)
        seen = np.ones(shape, dtype=bool) if allowed is None else np.broadcast_to(allowed, shape)
        seen = seen & (behind >= 0) if is_causal else seen
        seen = seen & (behind - more < window) if window is not None else seen
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


def _behind(shape):
    """How far key j lies behind query i, (t_q, t_kv): 0 for its own, negative for the future."""
    t_q, t_kv = shape[-2:]
    return np.arange(t_q)[:, None] + (t_kv - t_q) - np.arange(t_kv)[None, :]


def _mean_of_v(v, n_heads):
    return np.repeat(as_float64(v).mean(axis=2, keepdims=True), n_heads // v.shape[1], axis=1)
