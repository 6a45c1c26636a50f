"""When is a result right? When it is finite and about as near to the truth as a plain calculation in the same dtype.

A fixed tolerance loosens as sequences grow (outputs shrink like 1/√t) until all zeros pass. So the limit comes from the
data: at most twice the error of the plain calculation, plus the one rounding that storing a result costs. And a check
is trusted only where it rejects garbage: `garbage` makes some that looks plausible.
"""

import numpy as np
import torch


def as_float64(x):
    """Any array as a NumPy float64 array (torch's bfloat16 included)."""
    return x.detach().double().numpy() if isinstance(x, torch.Tensor) else np.asarray(x, dtype=np.float64)


def truth(q, k, v, *, allowed=None, bias=None, scale=None):
    """Attention and its log-sum-exp in float64 by the definition: one query at a time, over the keys it may see.

    `allowed` and `bias` have the scores' shape (b, n_heads, t_q, t_kv). Shares no code with the package.
    """
    q, k, v = (as_float64(x) for x in (q, k, v))
    b, n_heads, t_q, d = q.shape
    _, n_kv_heads, t_kv, d_v = v.shape
    scale = d**-0.5 if scale is None else scale
    out, lse = np.zeros((b, n_heads, t_q, d_v)), np.full((b, n_heads, t_q), -np.inf)
    for n, h, i in np.ndindex(b, n_heads, t_q):
        g = h * n_kv_heads // n_heads
        keys = [j for j in range(t_kv) if allowed is None or allowed[n, h, i, j]]
        if not keys:
            continue
        score = scale * k[n, g, keys] @ q[n, h, i]
        if bias is not None:
            score += as_float64(bias)[n, h, i, keys]
        e = np.exp(score - score.max())
        out[n, h, i] = e / e.sum() @ v[n, g, keys]
        lse[n, h, i] = score.max() + np.log(e.sum())
    return out, lse


def plain(q, k, v, *, allowed=None, bias=None, scale=None):
    """Attention as one writes it at first, every step in the dtype of q; torch. Rows that see nothing are 0."""
    q, k, v = (torch.as_tensor(x) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    score = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        score = score + torch.as_tensor(bias, dtype=q.dtype)
    if allowed is not None:
        score = score.masked_fill(~torch.tensor(allowed), -torch.inf)
    return torch.softmax(score, -1).nan_to_num(0.0) @ v


def assert_right(out, exact, same_dtype):
    """`out` is finite and within twice the error of `same_dtype` plus one rounding of its dtype."""
    got, baseline = as_float64(out), as_float64(same_dtype)
    assert got.shape == exact.shape, f"shape {got.shape}, expected {exact.shape}"
    assert np.isfinite(got).all(), "not finite"
    eps = torch.finfo(torch.as_tensor(out).dtype).eps
    limit = 2 * np.abs(baseline - exact).max() + eps * np.abs(exact).max()
    error = np.abs(got - exact).max()
    assert error <= limit, f"error {error:.3g} is above {limit:.3g}"


def garbage(q, k, v, *, is_causal):
    """Wrong results by name, as float64 arrays: each must be refused by `assert_right`."""
    b, n_heads, t_q, d = q.shape
    n_kv_heads, t_kv = k.shape[1:3]
    shape = (b, n_heads, t_q, t_kv)
    right, _ = truth(q, k, v, allowed=_causal(shape, 0) if is_causal else None)
    mean = np.repeat(as_float64(v).mean(axis=2, keepdims=True), n_heads // n_kv_heads, axis=1)
    wrong = {
        "zeros": np.zeros_like(right),
        "mean of v": np.broadcast_to(mean, right.shape),
        "scale not there": truth(q, k, v, allowed=_causal(shape, 0) if is_causal else None, scale=1.0)[0],
        "scale 1/d": truth(q, k, v, allowed=_causal(shape, 0) if is_causal else None, scale=1 / d)[0],
        "NaN": np.where(np.arange(right.size).reshape(right.shape) == 0, np.nan, right),
        "half as large": right / 2,
    }
    if is_causal:
        wrong["one key too many"] = truth(q, k, v, allowed=_causal(shape, 1))[0]
        wrong["one key too few"] = truth(q, k, v, allowed=_causal(shape, -1))[0]
        wrong["no mask"] = truth(q, k, v)[0]
    if n_kv_heads > 1:
        turn = np.roll(np.arange(n_kv_heads), 1)
        wrong["key and value heads permuted"] = truth(q, as_float64(k)[:, turn], as_float64(v)[:, turn],
                                                      allowed=_causal(shape, 0) if is_causal else None)[0]  # fmt: skip
    return wrong


def causal(shape):
    """Bottom-right causal booleans of the scores' shape, by the definition."""
    return _causal(shape, 0)


def _causal(shape, extra):
    t_q, t_kv = shape[-2:]
    rows = [[j <= i + t_kv - t_q + extra for j in range(t_kv)] for i in range(t_q)]
    return np.broadcast_to(np.array(rows, dtype=bool).reshape(t_q, t_kv), shape)
