"""Right and wrong solutions of chapter 9d's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

MASK = function("window_mask(t_q, t_kv, window)")


def numpy_mask(condition: str, place: str = "np.arange(t_q)[:, None] + t_kv - t_q") -> str:
    """The condition compares p, where the queries stand, with j, the numbers of the keys."""
    return with_numpy(MASK(f"p, j = {place}, np.arange(t_kv)[None, :]\nreturn {condition}"))


def torch_band(lower: str, upper: str) -> str:
    """A band of ones cut out of a table by two triangles, both shifted to the bottom right."""
    return with_torch(
        MASK(f"s = t_kv - t_q\nreturn torch.ones(t_q, t_kv, dtype=torch.bool).tril({upper}).triu({lower})")
    )


def loops(condition: str) -> str:
    """In plain Python; p is where the query stands."""
    return MASK(
        "rows = []\nfor i in range(t_q):\n    p = i + t_kv - t_q\n"
        f"    rows.append([{condition} for j in range(t_kv)])\nreturn rows"
    )


RIGHT = {
    "numpy": numpy_mask("(j <= p) & (j > p - window)"),
    "distance": numpy_mask("(p - j >= 0) & (p - j < window)"),
    "torch": torch_band("s - window + 1", "s"),
    "triangles": with_numpy(
        MASK("""
        s = t_kv - t_q
        return np.tri(t_q, t_kv, s, dtype=bool) & ~np.tri(t_q, t_kv, s - window, dtype=bool)
        """)
    ),
    "loops": loops("p - window < j <= p"),
    "slices": with_numpy(
        MASK("""
        mask = np.zeros((t_q, t_kv), bool)
        for i in range(t_q):
            last = i + t_kv - t_q
            mask[i, max(0, last - window + 1):max(0, last + 1)] = True
        return mask
        """)
    ),
    "from the end": """
import torch
def window_mask(queries, keys, w):
    back = (keys - torch.arange(keys))[None] - (queries - torch.arange(queries))[:, None]
    return (0 <= back) & (back <= w - 1)
""",
    "logical functions": numpy_mask("np.logical_and(np.less_equal(j, p), np.greater_equal(j, p - window + 1))"),
    "difference of triangles": with_numpy(
        MASK("""
        s, ones = t_kv - t_q, np.ones((t_q, t_kv))
        return (np.tril(ones, s) - np.tril(ones, s - window)).astype(bool)
        """)
    ),
    "rows of a square": MASK("return [[i - window < j <= i for j in range(t_kv)] for i in range(t_kv - t_q, t_kv)]"),
    "fromfunction": with_numpy(
        MASK("return np.fromfunction(lambda i, j: (j - i <= t_kv - t_q) & (j - i > t_kv - t_q - window), (t_q, t_kv))")
    ),
}

WRONG = {
    "added": [
        numpy_mask("np.where((j <= p) & (j > p - window), 0.0, -np.inf)"),
        with_torch(
            MASK("s = t_kv - t_q\nreturn (1 - torch.ones(t_q, t_kv).tril(s).triu(s - window + 1)) * -1e9"),
        ),
    ],
    "one_more": [
        numpy_mask("(j <= p) & (j >= p - window)"),
        torch_band("s - window", "s"),
        loops("0 <= p - j <= window"),
    ],
    "one_fewer": [numpy_mask("(j <= p) & (j > p - window + 1)"), torch_band("s - window + 2", "s")],
    "top_left": [
        numpy_mask("(j <= p) & (j > p - window)", place="np.arange(t_q)[:, None]"),
        with_torch(MASK("return torch.ones(t_q, t_kv, dtype=torch.bool).tril().triu(1 - window)")),
    ],
    "inverted": [numpy_mask("(j > p) | (j <= p - window)"), loops("not p - window < j <= p")],
    "both_sides": [numpy_mask("abs(p - j) < window"), torch_band("s - window + 1", "s + window - 1")],
    "only_the_future": [numpy_mask("(j >= p) & (j < p + window)"), torch_band("s", "s + window - 1")],
    "no_window": [numpy_mask("j <= p"), with_torch(MASK("return torch.ones(t_q, t_kv).tril(t_kv - t_q).bool()"))],
    "not_causal": [numpy_mask("j > p - window"), loops("j > p - window")],
    "outside": [numpy_mask("(j <= p) & (j <= p - window)"), loops("j + window <= p")],
    "not_itself": [numpy_mask("(j < p) & (j > p - window)"), torch_band("s - window + 1", "s - 1")],
}  # fmt: skip
