"""Causal attention as readers write it: right in many styles, and wrong in at least two ways a mistake."""

NUMPY = """\
import numpy as np
from numpy import *

def soft(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

def causal_attention(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1])
    n, m = s.shape
    """
TORCH = """\
import torch
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention as own
from math import sqrt

def causal_attention(q, k, v):
    s = q @ k.T / sqrt(q.shape[1])
    n, m = s.shape
    """
BARE = "import numpy as np, math\n\ndef causal_attention(queries, keys, values):\n    "


def in_numpy(*lines: str) -> str:
    return NUMPY + "\n    ".join(lines)


def in_torch(*lines: str) -> str:
    return TORCH + "\n    ".join(lines)


def bare(*lines: str) -> str:
    return BARE + "\n    ".join(lines)


KEEP = "keep = np.tri(n, m, m - n, dtype=bool)"
KEEP_T = "keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)"

RIGHT = {
    "where": in_numpy(KEEP, "return soft(np.where(keep, s, -np.inf)) @ v"),
    "added minus a billion": in_numpy(KEEP, "return soft(s + (~keep) * -1e9) @ v"),
    "the smallest number": in_numpy(KEEP, "return soft(np.where(keep, s, np.finfo(s.dtype).min)) @ v"),
    "the smallest number added": in_numpy(KEEP, "return soft(s + np.where(keep, 0, np.finfo(np.float32).min)) @ v"),
    "in a new array": in_numpy("s = s.copy()", "s[np.triu_indices(n, m - n + 1, m)] = -np.inf", "return soft(s) @ v"),
    "a row at a time": in_numpy(
        "out = []",
        "for i in range(n):",
        "    end = i + m - n + 1",
        "    out.append(soft(s[i, :end]) @ v[:end])",
        "return np.stack(out)",
    ),
    "loops and lists": bare(
        "offset = len(keys) - len(queries)",
        "out = []",
        "for i, q in enumerate(queries):",
        "    seen = range(i + offset + 1)",
        "    scores = [sum(float(a) * float(b) for a, b in zip(q, keys[j])) / math.sqrt(len(q)) for j in seen]",
        "    top = max(scores)",
        "    e = [math.exp(s - top) for s in scores]",
        "    out.append([sum(e[j] * float(values[j][c]) for j in seen) / sum(e) for c in range(len(values[0]))])",
        "return out",
    ),
    "online": bare(
        "out = np.empty((len(queries), values.shape[1]), queries.dtype)",
        "for i, q in enumerate(queries):",
        "    top, total, sum_ = -np.inf, 0.0, np.zeros(values.shape[1])",
        "    for key, value in list(zip(keys, values))[: i + len(keys) - len(queries) + 1]:",
        "        s = float(q @ key) / len(q) ** 0.5",
        "        new = max(top, s)",
        "        total = total * math.exp(top - new) + math.exp(s - new)",
        "        sum_ = sum_ * math.exp(top - new) + math.exp(s - new) * value",
        "        top = new",
        "    out[i] = sum_ / total",
        "return out",
    ),
    "recursion": bare(
        "if len(queries) == 0:",
        "    return np.empty((0, values.shape[1]))",
        "before = causal_attention(queries[:-1], keys[:-1], values[:-1])",
        "s = keys @ queries[-1] / math.sqrt(keys.shape[1])",
        "e = np.exp(s - s.max())",
        "return np.vstack([before, e @ values / e.sum()])",
    ),
    "einsum in float64": bare(
        "q, k, v = (a.astype(np.float64) for a in (queries, keys, values))",
        "s = np.einsum('id,jd->ji', q, k) / np.sqrt(q.shape[1])",
        "j, i = np.indices(s.shape)",
        "s[j - i > len(k) - len(q)] = -math.inf",
        "e = np.exp(s - s.max(0))",
        "return np.einsum('ji,jc->ic', e / e.sum(0), v)",
    ),
    "masked maximum": in_numpy(
        KEEP,
        "e = np.exp(np.minimum(s - np.max(s, -1, where=keep, initial=-np.inf, keepdims=True), 0)) * keep",
        "return e @ v / e.sum(-1, keepdims=True)",
    ),
    "masked arrays": in_numpy(
        KEEP, "s = np.ma.array(s, mask=~keep)", "e = np.ma.exp(s - s.max(1, keepdims=True)).filled(0)",
        "return e / e.sum(1, keepdims=True) @ v",
    ),
    "torch": in_torch(KEEP_T, "return s.masked_fill(~keep, float('-inf')).softmax(-1) @ v"),
    "torch's own": in_torch(KEEP_T, "return own(q[None], k[None], v[None], attn_mask=keep)[0]"),
    "torch, triu added": in_torch("return F.softmax(s + torch.full((n, m), -torch.inf).triu(1 + m - n), dim=1) @ v"),
    "padded to a square": in_numpy(
        "full = np.vstack([np.zeros((m - n, q.shape[1]), q.dtype), q])",
        "s = full @ k.T / np.sqrt(q.shape[1])",
        "return (soft(np.where(np.arange(m) > np.arange(m)[:, None], -np.inf, s)) @ v)[m - n:]",
    ),
}  # fmt: skip

NO_MASK = "return soft(s) @ v"

WRONG = {
    ("no_mask",): (in_numpy(NO_MASK), in_torch("return own(q[None], k[None], v[None])[0]")),
    ("own_hidden",): (
        in_numpy("return soft(np.where(np.tri(n, m, m - n - 1), s, -np.inf)) @ v"),
        in_numpy("return soft(s + np.where(np.tri(n, m, m - n - 1), 0, -1e9)) @ v"),
        in_numpy("return soft(np.where(np.tri(n, m, m - n - 1), s, -1e9)) @ v"),
        in_torch("s[torch.ones(n, m).tril(m - n - 1) == 0] = -torch.inf", "return torch.nan_to_num(s.softmax(1)) @ v"),
        in_torch("keep = torch.ones(n, m).tril(m - n - 1).bool()",
                 "return own(q[None], k[None], v[None], attn_mask=keep)[0]"),
    ),
    ("future_seen",): (
        in_numpy("return soft(np.where(np.tri(n, m, m - n + 1), s, -np.inf)) @ v"),
        bare("out = []", "for i, q in enumerate(queries):", "    end = i + len(keys) - len(queries) + 2",
             "    s = keys[:end] @ q / math.sqrt(len(q))", "    e = np.exp(s - s.max())",
             "    out.append(e @ values[:end] / e.sum())", "return out"),
    ),
    ("only_future",): (
        in_numpy(KEEP, "return soft(np.where(keep, -np.inf, s)) @ v"),
        in_torch(KEEP_T, "return F.softmax(s.masked_fill(keep, -1e9), -1) @ v"),
        in_numpy(KEEP, "return np.nan_to_num(soft(np.where(keep, -np.inf, s))) @ v"),
    ),
    ("future_and_self",): (
        in_numpy("return soft(np.where(np.triu(np.ones((n, m)), m - n), s, -np.inf)) @ v"),
        in_numpy("drop = np.tri(n, m, m - n - 1, dtype=bool)", "s[drop] = -1e9", "return soft(s) @ v"),
    ),
    ("top_left",): (
        in_numpy("return soft(np.where(np.tri(n, m), s, -np.inf)) @ v"),
        in_torch("return own(q[None], k[None], v[None], is_causal=True)[0]"),
        in_numpy("buffer = np.tril(np.ones((99, 99), bool))", "return soft(np.where(buffer[:n, :m], s, -1e9)) @ v"),
    ),
    ("transposed",): (
        in_numpy("return soft(np.where(np.tri(m, n, m - n).T, s, -np.inf)) @ v"),
        in_numpy("for j in range(m):", "    s[j + m - n + 1 :, j] = -1e9", "return soft(s) @ v"),
    ),
    ("shifted_away",): (
        in_numpy("return soft(np.where(np.tri(n, m, n - m), s, -np.inf)) @ v"),
        in_torch("return F.softmax(s + torch.full((n, m), -1e9).triu(1 + n - m), dim=1) @ v"),
    ),
    ("mask_after",): (
        in_numpy(KEEP, "return (soft(s) * keep) @ v"),
        in_torch("return torch.tril(torch.softmax(s, -1), m - n) @ v"),
        in_numpy(KEEP, "return np.einsum('ij,ijc->ic', soft(s), np.where(keep[..., None], v, 0))"),
    ),
    ("zero_scores",): (
        in_numpy(KEEP, "return soft(s * keep) @ v"),
        in_torch("return F.softmax(torch.tril(s, m - n), -1) @ v"),
        in_numpy(KEEP, "return soft(np.where(keep, s, 1e-9)) @ v"),
    ),
    ("renormalised",): (
        in_numpy(KEEP, "w = soft(s) * keep", "return w / w.sum(-1, keepdims=True) @ v"),
        in_numpy(KEEP, "e = np.exp(s - s.max(1, keepdims=True)) * keep", "return e / e.sum(-1, keepdims=True) @ v"),
        in_torch("w = s.softmax(1).tril(m - n)", "return w / (w.sum(1, keepdim=True) + 1e-20) @ v"),
    ),
    ("whole_maximum",): (
        in_numpy(KEEP, "e = np.exp(s - s.max()) * keep", "return e / e.sum(-1, keepdims=True) @ v"),
        in_numpy(KEEP, "s[~keep] = -np.inf", "e = np.exp(s - s.max())", "return e / e.sum(1)[:, None] @ v"),
        in_torch(KEEP_T, "s = s.masked_fill(~keep, -1e9)", "e = (s - s.max()).exp()", "return e / e.sum(-1, True) @ v"),
    ),
    ("no_maximum",): (
        in_numpy(KEEP, "e = np.exp(s) * keep", "return e / e.sum(-1, keepdims=True) @ v"),
        in_numpy(KEEP, "e = np.exp(np.where(keep, s, -np.inf))", "return e / e.sum(-1, keepdims=True) @ v"),
        in_torch(KEEP_T, "e = s.masked_fill(~keep, -1e9).exp()", "return e / e.sum(-1, keepdim=True) @ v"),
    ),
    ("zero_times_inf",): (
        in_numpy(KEEP, "return soft(s + (1 - keep) * -np.inf) @ v"),
        in_torch("return torch.softmax(s - torch.triu(torch.ones(n, m), m - n + 1) * torch.inf, -1) @ v"),
    ),
    ("weak_mask",): (
        in_numpy(KEEP, "return soft(np.where(keep, s, -10)) @ v"),
        in_torch(KEEP_T, "return F.softmax(s + ~keep * -10.0, -1) @ v"),
        in_numpy(KEEP, "return soft(np.where(keep, s, -100)) @ v"),
        in_torch(KEEP_T, "return F.softmax(s.masked_fill(~keep, -1e4), -1) @ v"),
        in_numpy(KEEP, "return soft(s - 1e4 * ~keep) @ v"),
        in_numpy(KEEP, "return soft(np.where(keep, s, np.finfo(np.float16).min / 8)) @ v"),
    ),
    ("wrong_axis",): (
        in_numpy(KEEP, "return soft(np.where(keep, s, -np.inf), 0) @ v"),
        in_torch(KEEP_T, "return F.softmax(s.masked_fill(~keep, -1e9), 0) @ v"),
    ),
    ("no_scale",): (
        in_numpy(KEEP, "return soft(np.where(keep, q @ k.T, -np.inf)) @ v"),
        in_torch(KEEP_T, "return own(q[None], k[None], v[None], attn_mask=keep, scale=1)[0]"),
    ),
    ("scale_by_d",): (
        in_numpy(KEEP, "return soft(np.where(keep, q @ k.T / q.shape[1], -np.inf)) @ v"),
        in_torch(KEEP_T, "return F.softmax((q / q.shape[-1] @ k.T).masked_fill(~keep, -1e9), 1) @ v"),
    ),
    ("scale_up",): (
        in_numpy(KEEP, "return soft(np.where(keep, q @ k.T * sqrt(q.shape[1]), -np.inf)) @ v"),
        in_torch(KEEP_T, "return F.softmax((q @ k.T * q.shape[-1] ** 0.5).masked_fill(~keep, -1e9), 1) @ v"),
    ),
    ("whole_softmax",): (
        in_numpy(KEEP, "s = np.where(keep, s, -np.inf)", "e = np.exp(s - s.max())", "return e / e.sum() @ v"),
        in_torch(KEEP_T, "return F.softmax(s.masked_fill(~keep, -1e9).flatten(), 0).reshape(n, m) @ v"),
    ),
    ("no_mask", "no_scale"): (in_numpy("return soft(q @ k.T) @ v"), in_torch("return F.softmax(q @ k.T, 1) @ v")),
    ("top_left", "mask_after"): (
        in_numpy("return np.tril(soft(s)) @ v"),
        in_torch("return (s.softmax(-1) * torch.ones(n, m).tril()) @ v"),
    ),
    ("changed",): (
        in_numpy(KEEP, "out = soft(np.where(keep, s, -np.inf)) @ v", "q *= 0", "return out"),
        in_torch(KEEP_T, "out = s.masked_fill(~keep, -torch.inf).softmax(1) @ v", "v.zero_()", "return out"),
    ),
    ("shape",): (
        in_numpy(KEEP, "return (soft(np.where(keep, s, -np.inf)) @ v)[None]"),
        in_torch(KEEP_T, "return v.T @ s.masked_fill(~keep, -torch.inf).softmax(1).T"),
    ),
}  # fmt: skip
