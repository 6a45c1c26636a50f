"""Heads as readers may write them: right in different styles, and each mistake in two."""

from __future__ import annotations

IMPORTS = "import math\nimport numpy as np\n\n"

SOFTMAX = """
def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

def split(x, h):
    return x.reshape(len(x), h, -1).transpose(1, 0, 2)

def join(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)

def attend(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])) @ v
"""


def numpy(body: str) -> str:
    """A file that has `softmax`, `split`, `join` and `attend` of NumPy beside the reader's function."""
    return IMPORTS + SOFTMAX + body


RIGHT = {
    "loop over slices": numpy("""
def multi_head(q, k, v, n_heads):
    d, d_v = q.shape[1] // n_heads, v.shape[1] // n_heads
    outs = []
    for h in range(n_heads):
        part = slice(h * d, (h + 1) * d)
        outs.append(attend(q[:, part], k[:, part], v[:, h * d_v:(h + 1) * d_v]))
    return np.concatenate(outs, axis=1)
"""),
    "np.split": numpy("""
def multi_head(a, b, c, count):
    return np.hstack([attend(*p) for p in zip(*(np.split(x, count, axis=-1) for x in (a, b, c)))])
"""),
    "einsum": numpy("""
def multi_head(q, k, v, n_heads):
    q, k, v = (x.reshape(x.shape[0], n_heads, -1) for x in (q, k, v))
    w = softmax(np.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5)
    return np.einsum("hqk,khe->qhe", w, v).reshape(len(q), -1)
"""),
    "float64, no maximum": numpy("""
def multi_head(q, k, v, n_heads):
    q, k, v = (split(x.astype(np.float64), n_heads) for x in (q, k, v))
    s = np.exp(np.matmul(q, k.swapaxes(1, 2)) * q.shape[2] ** -0.5)
    return join((s @ v) / s.sum(-1)[..., None])
"""),
    "pure Python, lists": """
import math

def multi_head(q, k, v, n_heads):
    d, e = len(q[0]) // n_heads, len(v[0]) // n_heads
    rows = []
    for a in q:
        row = []
        for h in range(n_heads):
            s = [sum(float(a[h * d + i]) * float(b[h * d + i]) for i in range(d)) / math.sqrt(d) for b in k]
            top = max(s)
            w = [math.exp(x - top) for x in s]
            row += [sum(x * float(c[h * e + j]) for x, c in zip(w, v)) / sum(w) for j in range(e)]
        rows.append(row)
    return rows
""",
    "recursion": numpy("""
def multi_head(q, k, v, n_heads):
    if n_heads == 1:
        return attend(q, k, v)
    d, e = q.shape[1] // n_heads, v.shape[1] // n_heads
    rest = multi_head(q[:, d:], k[:, d:], v[:, e:], n_heads - 1)
    return np.concatenate([attend(q[:, :d], k[:, :d], v[:, :e]), rest], axis=-1)
"""),
    "heads in the middle, filled in place": numpy("""
def multi_head(q, k, v, n_heads):
    out = np.empty((len(q), n_heads, v.shape[1] // n_heads), q.dtype)
    for h in range(n_heads):
        out[:, h] = attend(*(x.reshape(len(x), n_heads, -1)[:, h] for x in (q, k, v)))
    return out.reshape(len(q), -1)
"""),
    "moved axes, query by query": numpy("""
def multi_head(q, k, v, n_heads):
    k, v = (np.moveaxis(x.reshape(len(x), n_heads, -1), 1, 0) for x in (k, v))
    return np.array([(softmax((k @ a[:, :, None])[..., 0] / math.sqrt(k.shape[2]))[:, None] @ v).ravel()
                     for a in q.reshape(len(q), n_heads, -1)])
"""),
    "masked components": numpy("""
def multi_head(q, k, v, n_heads):
    of_q, of_v = (np.arange(x.shape[1]) // (x.shape[1] // n_heads) for x in (q, v))
    d = q.shape[1] // n_heads
    return sum(softmax((q * (of_q == h)) @ k.T / d ** 0.5) @ (v * (of_v == h)) for h in range(n_heads))
"""),
    "torch": """
import torch

def multi_head(q, k, v, n_heads):
    q, k, v = (x.unflatten(-1, (n_heads, -1)).transpose(0, 1) for x in (q, k, v))
    return (torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v).transpose(0, 1).flatten(1)
""",
    "torch's own": """
import torch.nn.functional as F

def multi_head(q, k, v, n_heads):
    q, k, v = (x.reshape(1, x.shape[0], n_heads, -1).transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v)
    return out[0].transpose(0, 1).reshape(q.shape[2], -1)
""",
}


def head(cut: str = "split(x, n_heads)", weights: str = "softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))",
         joined: str = "join(w @ v)") -> str:  # fmt: skip
    """A multi_head of three lines; each may be given."""
    return numpy(f"""
def multi_head(q, k, v, n_heads):
    d_model = q.shape[-1]
    q, k, v = ({cut} for x in (q, k, v))
    w = {weights}
    return {joined}
""")


def loop(
    attend: str, joined: str = "np.concatenate(outs, axis=1)", cut: str = "np.split(x, n_heads, axis=1)[h]"
) -> str:
    """A multi_head that goes through the heads."""
    return numpy(f"""
def multi_head(q, k, v, n_heads):
    outs = []
    for h in range(n_heads):
        a, b, c = ({cut} for x in (q, k, v))
        outs.append({attend})
    return {joined}
""")


SCORES = "q @ k.transpose(0, 2, 1)"
ONE = "softmax(a @ b.T / np.sqrt(a.shape[1])) @ c"

WRONG = {
    "one_head": [
        numpy("def multi_head(q, k, v, n_heads):\n    return attend(q, k, v)\n"),
        "from torch.nn.functional import scaled_dot_product_attention as sdpa\n\n"
        "def multi_head(q, k, v, n_heads):\n    return sdpa(q[None, None], k[None, None], v[None, None])[0, 0]\n",
    ],
    "one_softmax": [
        head(weights=f"softmax(({SCORES}).sum(0) / np.sqrt(q.shape[-1]))"),
        numpy("def multi_head(q, k, v, n_heads):\n    return softmax(q @ k.T * (q.shape[1] / n_heads) ** -0.5) @ v\n"),
    ],
    "scale_by_model": [
        head(weights=f"softmax({SCORES} / np.sqrt(d_model))"),
        loop("softmax(a @ b.T / math.sqrt(q.shape[1])) @ c"),
    ],
    "no_scale": [head(weights=f"softmax({SCORES})"), loop("softmax(a @ b.T) @ c")],
    "scale_by_d": [head(weights=f"softmax({SCORES} / q.shape[-1])"), loop("softmax(a @ b.T / a.shape[1]) @ c")],
    "wrong_axis": [
        head(weights=f"softmax({SCORES} / np.sqrt(q.shape[-1]), axis=1)"),
        loop("softmax(a @ b.T / np.sqrt(a.shape[1]), axis=0) @ c"),
    ],
    "softmax_over_heads": [
        head(weights=f"softmax({SCORES} / np.sqrt(q.shape[-1]), axis=0)"),
        numpy("""
def multi_head(q, k, v, n_heads):
    q, k, v = (x.reshape(len(x), n_heads, -1) for x in (q, k, v))
    s = np.einsum("qhd,khd->qkh", q, k) / q.shape[-1] ** 0.5
    return np.einsum("qkh,khe->qhe", softmax(s), v).reshape(len(q), -1)
"""),
    ],
    "within_tokens": [
        numpy("""
def multi_head(q, k, v, n_heads):
    q, k, v = (x.reshape(len(x), n_heads, -1) for x in (q, k, v))
    return attend(q, k, v).reshape(len(q), -1)
"""),
        """
import torch

def multi_head(q, k, v, n_heads):
    q, k, v = (x.view(x.shape[0], n_heads, -1) for x in (q, k, v))
    s = torch.einsum("thd,tgd->thg", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("thg,tge->the", s.softmax(-1), v).flatten(1)
""",
    ],
    "split_reshape": [
        head(cut="x.reshape(n_heads, len(x), -1)"),
        loop(ONE, cut="x.reshape(n_heads, x.shape[0], x.shape[1] // n_heads)[h]"),
    ],
    "merge_reshape": [
        head(joined="(w @ v).reshape(q.shape[1], -1)"),
        loop(ONE, joined="np.array(outs).reshape(len(q), v.shape[1])"),
    ],
    "split_in_turn": [
        head(cut="x.reshape(len(x), -1, n_heads).transpose(2, 0, 1)"),
        loop(ONE, cut="x[:, h::n_heads]"),
    ],
    "merge_in_turn": [
        head(joined="(w @ v).transpose(1, 2, 0).reshape(q.shape[1], -1)"),
        loop(ONE, joined="np.stack(outs, axis=-1).reshape(len(q), -1)"),
    ],
    "merge_reversed": [
        head(joined="join((w @ v)[::-1])"),
        loop(ONE, joined="np.concatenate(list(reversed(outs)), axis=1)"),
    ],
    "heads_averaged": [head(joined="(w @ v).mean(axis=0)"), loop(ONE, joined="sum(outs) / n_heads")],
    "heads_summed": [head(joined="(w @ v).sum(axis=0)"), loop(ONE, joined="sum(outs)")],
    "split_reshape merge_reshape": [
        head(cut="x.reshape(n_heads, len(x), -1)", joined="(w @ v).reshape(q.shape[1], -1)"),
        loop(ONE, cut="x.reshape(n_heads, len(x), -1)[h]", joined="np.stack(outs).reshape(len(q), -1)"),
    ],
}
