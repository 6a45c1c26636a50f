"""Right and wrong solutions of chapter 2's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

OTHERS = function("attend_to_others(x)")


def numpy_others(lines: str, end: str = "return weights @ x", scale: str = " / x.shape[1] ** 0.5") -> str:
    """Scores in float32, then these lines, then the end; `softmax` is at hand."""
    head = "def softmax(s, axis=-1):\n    e = np.exp(s - s.max(axis=axis, keepdims=True))\n"
    head += "    return e / e.sum(axis=axis, keepdims=True)\n"
    return with_numpy(head + OTHERS(f"scores = x @ x.T{scale}\nown = np.eye(len(x), dtype=bool)\n{lines}\n{end}"))


def torch_others(lines: str, scale: str = " / x.shape[1] ** 0.5") -> str:
    """The same with torch."""
    return with_torch(OTHERS(f"scores = x @ x.T{scale}\nown = torch.eye(len(x), dtype=torch.bool)\n{lines}"))


RIGHT = {
    "where": numpy_others("weights = softmax(np.where(own, -np.inf, scores))"),
    "without the maximum": numpy_others(
        "e = np.where(own, 0, np.exp(scores))", "return e @ x / e.sum(1, keepdims=True)"
    ),
    "added": numpy_others("weights = softmax(scores + np.where(own, -np.inf, 0))"),
    "a large number": numpy_others("scores[own] = -1e9\nweights = softmax(scores)"),
    "each without itself": with_numpy(
        OTHERS("""
        out = []
        for i in range(len(x)):
            others = np.delete(x, i, axis=0)
            e = np.exp(others @ x[i] / np.sqrt(x.shape[1]))
            out.append(e @ others / e.sum())
        return np.array(out)
        """)
    ),
    "loops over lists": """
import math
def attend_to_others(tokens):
    rows = [[float(c) for c in row] for row in tokens]
    out = []
    for i, a in enumerate(rows):
        total, mixed = 0.0, [0.0] * len(a)
        for j, b in enumerate(rows):
            if i != j:
                w = math.exp(sum(x * y for x, y in zip(a, b)) / math.sqrt(len(a)))
                total += w
                mixed = [m + w * y for m, y in zip(mixed, b)]
        out.append([m / total for m in mixed])
    return out
""",
    "torch": torch_others("return torch.softmax(scores.masked_fill(own, float('-inf')), -1) @ x"),
    "torch's own": torch_others(
        "return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=~own)[0]"
    ),
    "einsum": with_numpy(
        OTHERS("""
        y = x.astype(np.float64)
        s = np.einsum('id,jd->ij', y, y) * x.shape[1] ** -0.5
        np.fill_diagonal(s, -np.inf)
        w = np.exp(s - np.logaddexp.reduce(s, axis=1)[:, None])
        return np.einsum('ij,jd->id', w, y)
        """)
    ),
    "divided again, in float64": with_numpy(
        OTHERS("""
        y = x.astype(np.float64)
        e = np.exp(y @ y.T / np.sqrt(y.shape[1]))
        w = e / e.sum(1, keepdims=True) * (1 - np.eye(len(y)))
        return w / w.sum(1, keepdims=True) @ y
        """)
    ),
}

WRONG = {
    "only_the_past": [
        numpy_others("weights = softmax(np.where(np.tril(np.ones_like(scores), -1) == 1, scores, -np.inf))"),
        numpy_others("weights = softmax(np.where(np.tri(len(x), k=-1, dtype=bool), scores, -1e9))"),
        torch_others("w = scores.exp().tril(-1)\nreturn w @ x / w.sum(1, keepdim=True).clamp(min=1e-30)"),
    ],
    "sees_itself": [
        numpy_others("weights = softmax(scores)"),
        torch_others("return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0]"),
    ],
    "only_itself": [
        numpy_others("weights = softmax(np.where(own, scores, -np.inf))"),
        torch_others(
            "return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=own)[0]"
        ),
    ],
    "zero_score": [
        numpy_others("weights = softmax(scores * ~own)"),
        torch_others("return torch.softmax(scores.fill_diagonal_(0), -1) @ x"),
    ],
    "not_divided_again": [
        numpy_others("weights = softmax(scores) * ~own"),
        torch_others("return torch.softmax(scores, -1).masked_fill(own, 0) @ x"),
    ],
    "hidden_too_late": [
        numpy_others("weights = softmax(scores) * ~own\nweights = weights / weights.sum(1, keepdims=True)"),
        torch_others("w = torch.softmax(scores, -1).fill_diagonal_(0)\nreturn (w / w.sum(-1, keepdim=True)) @ x"),
    ],
    "wrong_axis": [
        numpy_others("weights = softmax(np.where(own, -np.inf, scores), axis=0)"),
        torch_others("return torch.softmax(scores.masked_fill(own, -1e9), 0) @ x"),
    ],
    "no_scale": [
        numpy_others("weights = softmax(np.where(own, -np.inf, scores))", scale=""),
        torch_others("return torch.softmax(scores.masked_fill(own, -1e9), -1) @ x", scale=""),
    ],
    "plain_average": [
        with_numpy(OTHERS("return (x.sum(0) - x) / (len(x) - 1)")),
        torch_others("return (~own).float() @ x / (len(x) - 1)"),
    ],
}
