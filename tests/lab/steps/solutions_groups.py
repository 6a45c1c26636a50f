"""Grouped heads as readers may write them: right in different styles, and each mistake in two."""

from __future__ import annotations

from tests.lab.steps.solutions_heads import RIGHT as HEADS
from tests.lab.steps.solutions_heads import numpy


def grouped(reads: str, joined: str = "np.concatenate(outs, axis=1)", kv: str = "kv") -> str:
    """A grouped_heads that goes through the query heads; `reads` is the number of the key and value head."""
    return numpy(f"""
def grouped_heads(q, k, v, n_heads, n_kv_heads):
    kv = list(zip(np.split(k, n_kv_heads, axis=1), np.split(v, n_kv_heads, axis=1)))
    outs = []
    for h, a in enumerate(np.split(q, n_heads, axis=1)):
        b, c = {kv}[{reads}]
        outs.append(attend(a, b, c))
    return {joined}
""")


def spread(way: str, joined: str = "join(attend(q, k, v))") -> str:
    """A grouped_heads that makes as many key and value heads as there are query heads, x (n_kv_heads, t, d)."""
    return numpy(f"""
def grouped_heads(q, k, v, n_heads, n_kv_heads):
    size = n_heads // n_kv_heads
    q, k, v = split(q, n_heads), split(k, n_kv_heads), split(v, n_kv_heads)
    k, v = ({way} for x in (k, v))
    return {joined}
""")


TORCH_GROUPS = """
import torch

def grouped_heads(q, k, v, n_heads, n_kv_heads):
    q, k, v = (x.reshape(len(x), n, -1).transpose(0, 1)[None]
               for x, n in ((q, n_heads), (k, n_kv_heads), (v, n_kv_heads)))
    SPREAD
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, OPTIONS)[0].transpose(0, 1).flatten(1)
"""

RIGHT = {
    "loop": grouped("h // (n_heads // n_kv_heads)"),
    "loop, by proportion": grouped("h * n_kv_heads // n_heads"),
    "np.repeat": spread("np.repeat(x, size, axis=0)"),
    "indexed": spread("x[np.arange(n_heads) // size]"),
    "listed": spread("np.array([head for head in x for _ in range(size)])"),
    "broadcast": spread(
        "np.broadcast_to(x[:, None], (n_kv_heads, size, *x.shape[1:])).reshape(n_heads, *x.shape[1:])"
    ),
    "five axes": numpy("""
def grouped_heads(q, k, v, n_heads, n_kv_heads):
    q = q.reshape(len(q), n_kv_heads, n_heads // n_kv_heads, -1)
    k, v = (x.reshape(len(x), n_kv_heads, -1) for x in (k, v))
    w = softmax(np.einsum("qgsd,kgd->gsqk", q, k) / np.sqrt(q.shape[-1]))
    return np.einsum("gsqk,kge->qgse", w, v).reshape(len(q), -1)
"""),
    "queries of a group stacked": numpy("""
def grouped_heads(q, k, v, n_heads, n_kv_heads):
    q, k, v = split(q, n_heads), split(k, n_kv_heads), split(v, n_kv_heads)
    long = attend(q.reshape(n_kv_heads, -1, q.shape[2]), k, v)
    return join(long.reshape(n_heads, q.shape[1], -1))
"""),
    "torch": TORCH_GROUPS.replace("SPREAD", "").replace("OPTIONS", "enable_gqa=True"),
    "torch, repeated": TORCH_GROUPS.replace("SPREAD", "k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) "
                                            "for x in (k, v))").replace("OPTIONS", ""),
    "pure Python": HEADS["pure Python, lists"].replace("v, n_heads):", "v, n_heads, n_kv_heads):")
    .replace("multi_head", "grouped_heads").replace("len(v[0]) // n_heads", "len(v[0]) // n_kv_heads")
    .replace("float(b[h * d + i])", "float(b[h * n_kv_heads // n_heads * d + i])")
    .replace("float(c[h * e + j])", "float(c[h * n_kv_heads // n_heads * e + j])"),
}  # fmt: skip

WRONG = {
    "groups_in_turn": [
        grouped("h % n_kv_heads"),
        spread("np.tile(x, (size, 1, 1))"),
        TORCH_GROUPS.replace("SPREAD", "k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v))")
        .replace("OPTIONS", ""),
    ],
    "first_kv_head": [grouped("0"), spread("x[:1]")],
    "kv_averaged": [
        spread("x.mean(axis=0, keepdims=True)"),
        grouped("0", kv="[tuple(sum(x) / n_kv_heads for x in zip(*kv))]"),
    ],
    "groups_reversed": [grouped("n_kv_heads - 1 - h // (n_heads // n_kv_heads)"),
                        spread("np.repeat(x[::-1], size, axis=0)")],
    "groups_of_kv_heads": [grouped("h // n_kv_heads"), spread("x[np.arange(n_heads) // n_kv_heads]")],
    "merge_reversed": [grouped("h // (n_heads // n_kv_heads)", joined="np.hstack(outs[::-1])"),
                       spread("np.repeat(x, size, axis=0)", joined="join(attend(q, k, v)[::-1])")],
    "merge_reshape": [
        spread("np.repeat(x, size, axis=0)", joined="attend(q, k, v).reshape(q.shape[1], -1)"),
        grouped("h // (n_heads // n_kv_heads)", joined="np.stack(outs).reshape(len(q), -1)"),
    ],
    "no_scale": [
        spread("np.repeat(x, size, axis=0)", joined="join(attend(q * np.sqrt(q.shape[2]), k, v))"),
        spread("x[np.arange(n_heads) // size]", joined="join(softmax(q @ k.transpose(0, 2, 1)) @ v)"),
    ],
}  # fmt: skip
