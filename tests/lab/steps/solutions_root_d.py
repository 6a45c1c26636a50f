"""Right and wrong solutions of step 2 as source text: of each mistake at least two that are written differently."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

SPREAD = function("score_sd(q, k)")
WEIGHT = function("largest_weight(q, k, scale)")

RIGHT_SPREAD = {
    "numpy": with_numpy(SPREAD("return (q * k).sum(axis=-1).std()")),
    "n - 1": with_numpy(SPREAD("return np.std((q * k).sum(-1), ddof=1)")),
    "einsum": with_numpy(SPREAD("return np.std(np.einsum('nd,nd->n', q, k))")),
    "diagonal": with_numpy(SPREAD("return np.sqrt(np.var(np.diag(q @ k.T)))")),
    "torch": with_torch(SPREAD("return (q * k).sum(-1).std()")),
    "torch by n, a Python number": with_torch(SPREAD("return torch.linalg.vecdot(q, k).std(correction=0).item()")),
    "statistics": "import statistics\n"
    + SPREAD("return statistics.stdev(sum(float(a) * float(b) for a, b in zip(x, y)) for x, y in zip(q, k))"),
    "mean of squares": with_numpy(
        SPREAD("""
        s = (q.astype(np.float64) * k).sum(1)
        return np.sqrt((s ** 2).mean() - s.mean() ** 2)
        """)
    ),
    "loops, other names": """
        from math import sqrt
        def score_sd(queries, keys):
            dots = []
            for i in range(len(queries)):
                total = 0.0
                for j in range(len(queries[0])):
                    total += float(queries[i][j]) * float(keys[i][j])
                dots.append(total)
            mean = sum(dots) / len(dots)
            return sqrt(sum((x - mean) ** 2 for x in dots) / (len(dots) - 1))
    """,
    "matmul, one element": with_numpy(SPREAD("return (q[:, None, :] @ k[:, :, None]).std(axis=0)[0, 0]")),
    "covariance": with_numpy(SPREAD("return np.cov((q * k).sum(1)) ** 0.5")),
}

RIGHT_WEIGHT = {
    "numpy": with_numpy(
        WEIGHT("""
        s = q @ k.T * scale
        e = np.exp(s - s.max(1, keepdims=True))
        return (e / e.sum(1, keepdims=True)).max(1).mean()
        """)
    ),
    "one over the sum": with_numpy(
        WEIGHT("""
        s = scale * (q @ k.T)
        return (1 / np.exp(s - s.max(-1, keepdims=True)).sum(-1)).mean()
        """)
    ),
    "scaled queries": with_numpy(
        WEIGHT("""
        s = (scale * q) @ k.T
        top = s.max(axis=1)
        return np.mean([1 / np.exp(row - m).sum() for row, m in zip(s, top)])
        """)
    ),
    "logsumexp": with_torch(
        WEIGHT("""
        s = q @ k.mT * scale
        return torch.exp(s.amax(-1) - torch.logsumexp(s, -1)).mean()
        """)
    ),
    "torch": with_torch(WEIGHT("return torch.softmax(q @ k.T * scale, -1).max(-1).values.mean()")),
    "attention of an identity": with_torch(
        WEIGHT("""
        one = torch.eye(len(k))[None]
        w = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], one, scale=scale)[0]
        return float(w.amax(1).mean())
        """)
    ),
    "loops": "import math\n"
    + WEIGHT("""
        total = 0
        for row in q.tolist():
            s = [scale * sum(a * b for a, b in zip(row, key)) for key in k.tolist()]
            e = [math.exp(x - max(s)) for x in s]
            total += max(e) / sum(e)
        return total / len(q)
        """),
    "float64": with_numpy(
        WEIGHT("""
        s = q.astype(np.float64) @ k.T.astype(np.float64) * scale
        w = np.exp(s - np.logaddexp.reduce(s, axis=-1, keepdims=True))
        return np.sort(w)[:, -1].mean()
        """)
    ),
    "einsum and sigmoid-like sums": with_numpy(
        WEIGHT("""
        s = np.einsum('id,jd->ij', q, k) * scale
        top = np.take_along_axis(s, s.argmax(-1)[:, None], -1)
        return np.average(1 / np.exp(s - top).sum(-1))
        """)
    ),
    "other names, keyword default": """
        import numpy
        def softmax(table):
            table = table - table.max(axis=-1, keepdims=True)
            numpy.exp(table, out=table)
            return table / table.sum(axis=-1, keepdims=True)
        def largest_weight(a, b, c=1.0):
            return softmax(a.dot(b.T) * c).max(axis=-1).mean()
    """,
}

WRONG_SPREAD = {
    "variance": [
        with_numpy(SPREAD("return (q * k).sum(-1).var()")),
        with_torch(SPREAD("return torch.var((q * k).sum(1))")),
    ],
    "divided_sd": [
        with_numpy(SPREAD("return ((q * k).sum(-1) / np.sqrt(q.shape[-1])).std()")),
        with_torch(SPREAD("return (q * k).sum(-1).std() * q.shape[1] ** -0.5")),
    ],
    "divided_by_d": [
        with_numpy(SPREAD("return (q * k).mean(-1).std()")),
        "import statistics\n"
        + SPREAD(
            "return statistics.stdev(sum(x * y for x, y in zip(a, b)) / len(a) for a, b in zip(q.tolist(), k.tolist()))"
        ),
    ],
    "all_pairs": [
        with_numpy(SPREAD("return (q @ k.T).std()")),
        with_torch(SPREAD("return torch.einsum('id,jd->ij', q, k).std()")),
    ],
    "no_mean": [
        with_numpy(SPREAD("return np.sqrt(((q * k).sum(-1) ** 2).mean())")),
        with_torch(SPREAD("return (q * k).sum(-1).norm() / len(q) ** 0.5")),
    ],
    "no_count": [
        with_numpy(SPREAD("s = (q * k).sum(-1)\nreturn np.sqrt(((s - s.mean()) ** 2).sum())")),
        with_torch(SPREAD("s = (q * k).sum(-1)\nreturn torch.linalg.vector_norm(s - s.mean())")),
    ],
    "absolute_deviation": [
        with_numpy(SPREAD("s = (q * k).sum(-1)\nreturn np.abs(s - s.mean()).mean()")),
        "def score_sd(q, k):\n    s = [float(a @ b) for a, b in zip(q, k)]\n"
        "    return sum(abs(x - sum(s) / len(s)) for x in s) / len(s)",
    ],
    "products": [with_numpy(SPREAD("return (q * k).std()")), with_torch(SPREAD("return torch.mul(q, k).std()"))],
    "wrong_sum": [
        with_numpy(SPREAD("return (q * k).sum(axis=0).std()")),
        with_torch(SPREAD("return torch.einsum('nd,nd->d', q, k).std(correction=0)")),
    ],
    "unwritten": [SPREAD("raise NotImplementedError")],
    "none": [with_numpy(SPREAD("np.std((q * k).sum(-1))"))],
    "shape": [with_numpy(SPREAD("return (q * k).std(axis=-1)"))],
}
"""Pairs are tried as well: the last ones make two mistakes at once."""

BOTH_SPREAD = {
    ("variance", "divided_sd"): with_torch(SPREAD("return ((q * k).sum(-1) / q.shape[-1] ** 0.5).var()")),
    ("variance", "all_pairs"): with_numpy(SPREAD("return (q @ k.T).var()")),
}

STABLE = "e = np.exp(s - s.max(-1, keepdims=True))\nw = e / e.sum(-1, keepdims=True)\n"


def _numpy(scores: str, end: str = "return w.max(-1).mean()", weights: str = STABLE) -> str:
    return with_numpy(WEIGHT(f"s = {scores}\n{weights}{end}"))


def _torch(body: str) -> str:
    return with_torch(WEIGHT(body))


NAIVE_LOOP = """
    import math
    def largest_weight(q, k, scale):
        total = 0.0
        for row in q.tolist():
            e = [math.exp(scale * sum(a * b for a, b in zip(row, key))) for key in k.tolist()]
            total += max(e) / sum(e)
        return total / len(q)
"""
WHOLE_LOOP = """
    import math
    def largest_weight(q, k, scale):
        s = [[scale * float(a @ b) for b in k] for a in q]
        top = max(max(row) for row in s)
        e = [[math.exp(x - top) for x in row] for row in s]
        return sum(max(row) / sum(row) for row in e) / len(e)
"""
S = "q @ k.T * scale"

WRONG_WEIGHT = {
    "no_scale": [_numpy("q @ k.T"), _torch("return (q @ k.T).softmax(-1).amax(-1).mean()")],
    "scale_twice": [
        _numpy("(q * scale) @ (k * scale).T"),
        _torch("return (q @ k.T * scale ** 2).softmax(-1).amax(-1).mean()"),
    ],
    "scale_divides": [_numpy("q @ k.T / scale"), _torch("return torch.softmax(q / scale @ k.T, 1).amax(1).mean()")],
    "root_for_scale": [
        _numpy("q @ k.T / np.sqrt(q.shape[-1])"),
        _torch("return torch.softmax(q @ k.T * k.shape[1] ** -0.5, 1).amax(1).mean()"),
    ],
    "scale_late": [
        _numpy("q @ k.T", "return scale * w.max(-1).mean()"),
        _torch("return (torch.softmax(q @ k.T, 1) * scale).amax(1).mean()"),
    ],
    "scale_and_root": [
        _numpy("q @ k.T * scale / np.sqrt(q.shape[-1])"),
        _torch("return torch.softmax(scale * q @ k.T / k.shape[1] ** 0.5, 1).amax(1).mean()"),
    ],
    "largest_score": [_numpy(S, "return s.max(-1).mean()", ""), _torch("return (scale * q @ k.T).amax(1).mean()")],
    "smallest": [_numpy(S, "return w.min(-1).mean()"), _torch("return (scale * q @ k.T).softmax(1).amin(1).mean()")],
    "every_weight": [_numpy(S, "return w.mean()"), _torch("return (scale * q @ k.T).softmax(1).mean(1).mean()")],
    "whole_largest": [_numpy(S, "return w.max()"), _torch("return (scale * q @ k.T).softmax(1).max()")],
    "largest_of_keys": [
        _numpy(S, "return w.max(axis=0).mean()"),
        _torch("return (scale * q @ k.T).softmax(1).max(0).values.mean()"),
    ],
    "added_up": [_numpy(S, "return w.max(-1).sum()"), _torch("return sum((scale * q @ k.T).softmax(1).amax(1))")],
    "wrong_axis": [
        _numpy(S, weights="e = np.exp(s - s.max(0))\nw = e / e.sum(0)\n"),
        _torch("return (scale * q @ k.T).softmax(0).amax(1).mean()"),
    ],
    "whole_softmax": [
        _numpy(S, weights="e = np.exp(s - s.max())\nw = e / e.sum()\n"),
        _torch("return (scale * q @ k.T).flatten().softmax(0).view(len(q), -1).amax(1).mean()"),
    ],
    "no_sum": [
        _numpy(S, weights="w = np.exp(s)\n"),
        NAIVE_LOOP.replace("max(e) / sum(e)", "max(e)"),
    ],
    "always_one": [
        _numpy(S, weights="w = np.exp(s - s.max(-1, keepdims=True))\n"),
        _torch("s = scale * q @ k.T\nreturn torch.exp(s - s.amax(1)[:, None]).amax(1).mean()"),
    ],
    "no_maximum": [_numpy(S, weights="w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)\n"), NAIVE_LOOP],
    "whole_maximum": [
        _numpy(S, weights="e = np.exp(s - s.max())\nw = e / e.sum(-1, keepdims=True)\n"),
        WHOLE_LOOP,
    ],
    "shape": [_numpy(S, "return w.max(-1)")],
    "raised": [_numpy("q @ k * scale")],
}

BOTH_WEIGHT = {
    ("no_scale", "no_maximum"): _numpy("q @ k.T", weights="w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)\n"),
    ("largest_of_keys", "wrong_axis"): _torch("return (scale * q @ k.T).softmax(0).amax(0).mean()"),
}
