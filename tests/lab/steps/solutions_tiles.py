"""Tiled attention as readers may write it: three templates with holes, right in other styles, each mistake in two."""

from __future__ import annotations


def arrays(start: str = "-np.inf", new: str = "np.maximum(largest, top)", shrink: str = "np.exp(largest - new)",
           weights: str = "np.exp(scores - new)", total: str = "total * shrink + weights.sum(1, keepdims=True)",
           out: str = "out * shrink + weights @ c", end: str = "out / total", tiles: str = "range(0, len(k), block)",
           scores: str = "q @ b.T / np.sqrt(q.shape[1])", after: str = "pass") -> str:  # fmt: skip
    """NumPy, with columns (t_q, 1); any expression may be given."""
    return f"""
import numpy as np

def tiled_attention(q, k, v, block):
    largest = np.full((len(q), 1), {start}, np.float32)
    total, out = np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for i in {tiles}:
        b, c = k[i:i + block], v[i:i + block]
        scores = {scores}
        top = scores.max(axis=1, keepdims=True)
        new = {new}
        shrink = {shrink}
        weights = {weights}
        total = {total}
        out = {out}
        {after}
        largest = new
    return {end}
"""


def tensors(m: str = "-torch.inf", new: str = "torch.maximum(m, top)", f: str = "(m - new).exp()",
            p: str = "(s - new[:, None]).exp()", li: str = "l * f + p.sum(1)", o: str = "o * f[:, None] + p @ c",
            end: str = "o / l[:, None]", tiles: str = "list(zip(k.split(block), v.split(block)))",
            s: str = "q @ b.T / q.shape[1] ** 0.5", after: str = "pass") -> str:  # fmt: skip
    """torch, with vectors (t_q,); any expression may be given. `n` counts the tiles."""
    return f"""
import torch

def tiled_attention(q, k, v, block):
    m, l, o = torch.full((len(q),), {m}), torch.zeros(len(q)), torch.zeros(len(q), v.shape[1])
    for n, (b, c) in enumerate({tiles}):
        s = {s}
        top = s.amax(1)
        new = {new}
        f = {f}
        p = {p}
        l = {li}
        o = {o}
        {after}
        m = new
    return {end}
"""


def numbers(start: str = "-math.inf", new: str = "max(m, *s)", f: str = "math.exp(m - new)",
            p: str = "[math.exp(x - new) for x in s]", li: str = "l * f + sum(p)", end: str = "y / l",
            tiles: str = "range(0, len(k), block)") -> str:  # fmt: skip
    """Plain Python, one query at a time."""
    return f"""
import math

def tiled_attention(q, k, v, block):
    q, k, v = q.tolist(), k.tolist(), v.tolist()
    rows = []
    for a in q:
        m, l, o = {start}, 0.0, [0.0] * len(v[0])
        for i in {tiles}:
            s = [sum(x * y for x, y in zip(a, b)) / math.sqrt(len(a)) for b in k[i:i + block]]
            new = {new}
            f, p = {f}, {p}
            l = {li}
            o = [y * f + sum(w * c[j] for w, c in zip(p, v[i:i + block])) for j, y in enumerate(o)]
            m = new
        rows.append([{end} for y in o])
    return rows
"""


def parts(end: str) -> str:
    """Each tile's own attention, its values (t_q, d_v) in `outs` and its keys in `sizes`; `end` puts them together."""
    return f"""
import numpy as np

def tiled_attention(q, k, v, block):
    outs, sizes = [], []
    for i in range(0, len(k), block):
        s = q @ k[i:i + block].T * q.shape[1] ** -0.5
        e = np.exp(s - s.max(-1, keepdims=True))
        outs.append((e / e.sum(-1, keepdims=True)) @ v[i:i + block])
        sizes.append(s.shape[1])
    return {end}
"""


MERGE = """
import numpy as np

def one(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1])
    top = s.max(1, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(1, keepdims=True)
    return e @ v / total, top + np.log(total)

def merge(a, b):
    (x, p), (y, r) = a, b
    lse = np.logaddexp(p, r)
    return x * np.exp(p - lse) + y * np.exp(r - lse), lse
"""

RIGHT = {
    "arrays": arrays(),
    "tensors": tensors(),
    "plain Python": numbers(),
    "starts at a very low number": arrays(start="-1e30"),
    "the first tile is the start": arrays(new="top if i == 0 else np.maximum(largest, top)",
                                          shrink="0 if i == 0 else np.exp(largest - new)", start="0.0"),
    "last tile first": arrays(tiles="reversed(range(0, len(k), block))"),
    "float64 in place": arrays(scores="(q.astype(np.float64) @ b.T) / q.shape[1] ** .5",
                               weights="np.subtract(scores, new, out=scores)", after="pass",
                               total="total * shrink + np.exp(weights, out=weights).sum(1, keepdims=True)"),
    "output kept divided": tensors(li="(last := l) * f + p.sum(1)", end="o",
                                   o="o * (last * f / l)[:, None] + p @ c / l[:, None]"),
    "queries in tiles, too": arrays().replace("tiled_attention", "some").replace("import numpy as np", """
import numpy as np

def tiled_attention(q, k, v, block):
    return np.concatenate([some(q[i:i + block], k, v, block) for i in range(0, len(q), block)])
"""),
    "two passes": """
import numpy as np

def tiled_attention(queries, keys, values, size):
    queries = queries / np.sqrt(queries.shape[-1], dtype=queries.dtype)
    ends = list(range(0, len(keys), size)) + [len(keys)]
    top = np.max([(queries @ keys[a:b].T).max(1) for a, b in zip(ends, ends[1:])], axis=0)[:, None]
    e = lambda a, b: np.exp(queries @ keys[a:b].T - top)
    total = sum(e(a, b).sum(1, keepdims=True) for a, b in zip(ends, ends[1:]))
    return sum(e(a, b) @ values[a:b] for a, b in zip(ends, ends[1:])) / total
""",
    "merged by log-sum-exp": MERGE + """
from functools import reduce

def tiled_attention(q, k, v, block):
    return reduce(merge, (one(q, k[i:i + block], v[i:i + block]) for i in range(0, len(k), block)))[0]
""",
    "recursion": MERGE + """
def rest(q, k, v, block):
    here = one(q, k[:block], v[:block])
    return merge(here, rest(q, k[block:], v[block:], block)) if len(k) > block else here

def tiled_attention(q, k, v, block):
    return rest(q, k, v, block)[0]
""",
    "a row at a time": """
import numpy as np

def tiled_attention(q, k, v, block):
    rows = []
    for x in q:
        top, total, out, i = -np.inf, 0.0, 0.0, 0
        while i < len(k):
            s = k[i:i + block] @ x / len(x) ** 0.5
            new = max(top, s.max())
            w = np.exp(s - new)
            total, out = total * np.exp(top - new) + w.sum(), out * np.exp(top - new) + w @ v[i:i + block]
            top, i = new, i + block
        rows.append(out / total)
    return rows
""",
}  # fmt: skip

WHOLE = """
import numpy as np

def tiled_attention(q, k, v, block):
    s = q @ k.T / np.sqrt(q.shape[1])
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=1, keepdims=True)
    return s @ v
"""
TABLES = """
import numpy as np

def tiled_attention(q, k, v, block):
    tiles = [q @ k[i:i + block].T / np.sqrt(q.shape[1]) for i in range(0, len(k), block)]
    top = np.max([t.max(1, keepdims=True) for t in tiles], axis=0)
    e = [np.exp(t - top) for t in tiles]
    out = sum(x @ v[i * block:(i + 1) * block] for i, x in enumerate(e))
    return out / sum(x.sum(1, keepdims=True) for x in e)
"""
SDPA = """
import torch

def tiled_attention(q, k, v, block):
    return torch.softmax(q @ k.T / q.shape[1] ** 0.5, -1) @ v
"""

LONE = "np.ones_like(total)"
WRONG = {
    "whole_table": [WHOLE, TABLES, SDPA],
    "whole_table no_maximum": [WHOLE.replace("s -= s.max(axis=1, keepdims=True)", "pass")],
    "no_rescale": [arrays(shrink="1"), tensors(f="torch.exp(new - new)")],
    "total_not_rescaled": [arrays(total="total + weights.sum(1, keepdims=True)"), tensors(li="l + p.sum(1)")],
    "out_not_rescaled": [arrays(out="out + weights @ c"), tensors(o="o + p @ c")],
    "inverted_rescale": [arrays(shrink="np.exp(new - largest) if i else 0"),
                         tensors(f="torch.exp(new - m).nan_to_num(0, posinf=0) if n == 0 else torch.exp(new - m)")],
    "nan_from_start": [arrays(shrink="np.exp(new - largest)"), tensors(p="(s - m[:, None]).exp()")],
    "rescale_to_tile": [arrays(shrink="np.exp(largest - top)"), tensors(f="(m - top).exp()")],
    "own_maximum": [arrays(shrink="1", weights="np.exp(scores - top)"),
                    tensors(f="torch.ones(len(q))", p="(s - s.amax(1, keepdim=True)).exp()")],
    "old_maximum": [arrays(weights="np.exp(scores - (largest if i else new))"),
                    tensors(p="(s - (m if n else new)[:, None]).exp()")],
    "not_divided": [arrays(end="out"), tensors(end="o")],
    "divided_each_tile": [
        arrays(after="out = out / total", end="out"), tensors(after="o = o / l[:, None]", end="o"),
        tensors(o="o * f[:, None] + p @ c / l[:, None]", end="o"), arrays(out="out * shrink + weights / total @ c"),
        arrays(out="out * shrink + weights / weights.sum(1, keepdims=True) @ c"),
        tensors(o="o * f[:, None] + torch.softmax(s, 1) @ c", end="o"),
    ],
    "divided_twice": [arrays(after="out = out / total"), tensors(after="o /= l[:, None]")],
    "tiles_averaged": [parts("np.mean(outs, axis=0)"), parts("sum(outs) / len(outs)")],
    "tiles_weighted": [parts("np.average(outs, axis=0, weights=sizes)"),
                       parts("sum(n * x for n, x in zip(sizes, outs)) / len(k)")],
    "tiles_added": [parts("sum(outs)"), parts("np.add.reduce(outs)")],
    "last_dropped": [arrays(tiles="[n * block for n in range(len(k) // block)]"),
                     tensors(tiles="[x for x in zip(k.split(block), v.split(block)) if len(x[0]) == block]"),
                     numbers(tiles="range(0, len(k) - block + 1, block)")],
    "last_padded": [
        arrays().replace("    largest", """    if len(k) % block:
        zeros = ((0, -len(k) % block), (0, 0))
        k, v = np.pad(k, zeros), np.pad(v, zeros)
    largest""", 1),
        tensors(s="torch.cat([q @ b.T / q.shape[1] ** 0.5, torch.zeros(len(q), block - len(b))], 1)",
                o="o * f[:, None] + p @ torch.cat([c, torch.zeros(block - len(c), c.shape[1])])"),
    ],
    "last_overlaps": [arrays(tiles="[max(0, min(i, len(k) - block)) for i in range(0, len(k), block)]"),
                      tensors(tiles="[(k[-block:], v[-block:]) if len(b) < block else (b, c) "
                                    "for b, c in zip(k.split(block), v.split(block))]")],
    "last_tile_only": [arrays(total="weights.sum(1, keepdims=True)", out="weights @ c"),
                       tensors(li="p.sum(1)", o="p @ c")],
    "maximum_not_kept": [arrays().replace("        largest = new\n", ""), tensors().replace("        m = new\n", ""),
                         SDPA.replace("    return", "    for k, v in zip(k.split(block), v.split(block)): out =")
                         + "    return out\n"],
    "total_of_last_tile": [arrays(total="weights.sum(1, keepdims=True)"), tensors(li="p.sum(1)")],
    "out_of_last_tile": [arrays(out="weights @ c"), tensors(o="p @ c")],
    "no_maximum": [arrays(new="0 * top", start="0"), tensors(m="0.", new="m"), numbers(start="0.0", new="0.0")],
    "start_at_zero": [arrays(start="0"), tensors(m="0."), numbers(start="0.0"), arrays(start="-100")],
    "start_low": [arrays(start="-1e4"), tensors(m="-65504.")],
    "first_maximum": [arrays(new="top if i == 0 else largest"), tensors(new="m if n else top")],
    "forgotten_maximum": [arrays(new="top"), tensors(new="top")],
    "shared_maximum": [arrays(new="np.maximum(largest, scores.max())"), tensors(new="torch.maximum(m, s.max())")],
    "no_scale": [arrays(scores="q @ b.T"), tensors(s="q @ b.T")],
    "scale_by_d": [arrays(scores="q @ b.T / q.shape[1]"), tensors(s="q @ b.T / q.shape[1]")],
    "wrong_axis": [
        parts("sum(outs)").replace("(-1, keepdims=True)", "(0, keepdims=True)"),
        tensors(p="(s - s.amax(0)).exp()", o="o + (p / p.sum(0)) @ c", end="o"),
    ],
}  # fmt: skip
