"""The truth about attention, written twice by the definition and sharing no code with the package.

    truth(q, k, v, **options)    out and lse, one query at a time, over the keys that it may see
    exact(q, k, v, …)            all queries at once, and all gradients by the formulas worked out by hand

They are compared with each other in `tests/test_tolerance.py`. `exact` has more digits than its input: float64, and
NumPy's long double for float64 input, so that float64 results can be judged too.
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
        seen &= behind(shape) >= 0
    if window is not None:
        seen &= behind(shape) < window
    return seen


def exact(
    q, k, v, *, d_out=None, d_lse=None, allowed=None, bias=None, scale=None,
    is_causal=False, window=None, softcap=None, alibi_slopes=None, sinks=None,
):  # fmt: skip
    """{"out", "lse"}, and with d_out also the gradients of Σ d_out · out + Σ d_lse · lse by the name of each input.

    Shapes as in `truth`; NumPy arrays. Every input must be finite.
    """
    double = str(q.dtype) in ("torch.float64", "float64")
    q, k, v = (as_float64(x).astype(np.longdouble if double else np.float64) for x in (q, k, v))
    bias, alibi_slopes, sinks = (
        None if x is None else as_float64(x).astype(q.dtype) for x in (bias, alibi_slopes, sinks)
    )
    b, n_heads, t_q, d = q.shape
    _, n_kv_heads, t_kv, _ = v.shape
    group = n_heads // max(n_kv_heads, 1)
    scale = q.dtype.type(d) ** -0.5 if scale is None else q.dtype.type(scale)
    seen = visible((b, n_heads, t_q, t_kv), allowed=allowed, is_causal=is_causal, window=window)
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)

    score = scale * q @ keys.swapaxes(-1, -2)
    slope = 1.0 if softcap is None else 1 - np.tanh(score / softcap) ** 2  # of the cap, where it is applied
    score = score if softcap is None else softcap * np.tanh(score / softcap)
    far = np.abs(behind((t_q, t_kv)))
    if alibi_slopes is not None:
        score = score - alibi_slopes.reshape(-1, n_heads, 1, 1) * far
    if bias is not None:
        score = score + bias
    sink = np.full((1, n_heads, 1, 1), -np.inf) if sinks is None else sinks.reshape(1, n_heads, 1, 1)
    top = np.maximum(np.max(np.where(seen, score, -np.inf), axis=-1, keepdims=True, initial=-np.inf), sink)
    top = np.where(np.isfinite(top), top, 0)
    e = np.where(seen, np.exp(np.minimum(score - top, 0)), 0)
    total = e.sum(-1, keepdims=True) + np.exp(sink - top)
    weight = e / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    found = {"out": weight @ values, "lse": lse}
    if d_out is None:
        return found

    d_out = as_float64(d_out).astype(q.dtype)
    d_row = np.zeros(lse.shape, q.dtype) if d_lse is None else as_float64(d_lse).astype(q.dtype)
    d_row = np.where(np.isfinite(lse), d_row, 0) - (d_out * found["out"]).sum(-1)
    d_score = weight * (d_out @ values.swapaxes(-1, -2) + d_row[..., None])
    d_raw = d_score * slope * scale

    def of_group(x):
        return x.reshape(b, n_kv_heads, group, *x.shape[2:]).sum(2) if n_kv_heads else np.zeros_like(k)

    found["q"] = d_raw @ keys
    found["k"] = of_group(d_raw.swapaxes(-1, -2) @ q)
    found["v"] = of_group(weight.swapaxes(-1, -2) @ d_out)
    if bias is not None:
        found["bias"] = _sum_to(d_score, bias.shape)
    if alibi_slopes is not None:
        found["alibi_slopes"] = _sum_to(-(d_score * far).sum((-1, -2)), alibi_slopes.shape)
    if sinks is not None:
        found["sinks"] = (np.exp(sink[..., 0] - lse) * d_row).sum((0, 2))
    return found


def _sum_to(x, shape):
    """The sum over the axes along which an array of this shape was broadcast to x."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(axis for axis, size in enumerate(shape) if size == 1 != x.shape[axis]), keepdims=True)


def behind(shape):
    """How far key j lies behind query i, (t_q, t_kv): 0 for its own, negative for the future."""
    t_q, t_kv = shape[-2:]
    return np.arange(t_q)[:, None] + (t_kv - t_q) - np.arange(t_kv)[None, :]
