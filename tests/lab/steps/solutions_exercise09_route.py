"""Right and wrong solutions of chapter 9c's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

ROUTE = function("route(logits, k)")
SOFTMAX = "def softmax(z, axis=-1):\n    e = np.exp(z - z.max(axis=axis, keepdims=True))\n"
SOFTMAX += "    return e / e.sum(axis=axis, keepdims=True)\n"


def numpy_route(end: str, least: str = "np.sort(logits, axis=1)[:, -k][:, None]") -> str:
    """`least` is the smallest logit that is chosen, `chosen` the booleans; `softmax` is at hand."""
    return with_numpy(SOFTMAX + ROUTE(f"least = {least}\nchosen = logits >= least\nreturn {end}"))


def torch_route(values: str, k: str = "k", dim: int = -1, largest: bool = True) -> str:
    """With torch's topk and scatter; `top` are the chosen logits, `where` their numbers."""
    return with_torch(
        ROUTE(f"""
        top, where = torch.topk(logits, {k}, dim={dim}, largest={largest})
        return torch.zeros_like(logits).scatter({dim}, where, {values})
        """)
    )


HIDDEN = "softmax(np.where(chosen, logits, -np.inf))"


def torch_hidden(least: str, dim: int = 1) -> str:
    """With torch: what is below `least` hidden, then softmax."""
    return with_torch(ROUTE(f"return logits.masked_fill(logits < {least}, float('-inf')).softmax({dim})"))


RIGHT = {
    "sorted": numpy_route(HIDDEN),
    "softmax, then divided again": numpy_route(
        "np.where(chosen, softmax(logits), 0) / np.where(chosen, softmax(logits), 0).sum(1, keepdims=True)"
    ),
    "torch": torch_route("torch.softmax(top, -1)"),
    "torch, hidden": torch_hidden("logits.topk(k).values[:, -1:]"),
    "argpartition": with_numpy(
        ROUTE("""
        w = np.zeros_like(logits)
        for i, row in enumerate(logits):
            best = np.argpartition(row, -k)[-k:]
            e = np.exp(row[best])
            w[i, best] = e / e.sum()
        return w
        """)
    ),
    "loops over lists": """
import math
def route(scores, top_k):
    out = []
    for row in scores.tolist():
        best = sorted(range(len(row)), key=lambda j: -row[j])[:top_k]
        total = sum(math.exp(row[j]) for j in best)
        out.append([math.exp(row[j]) / total if j in best else 0.0 for j in range(len(row))])
    return out
""",
    "ranks, float64": with_numpy(
        ROUTE("""
        z = logits.astype(np.float64)
        rank = (z[:, None, :] > z[:, :, None]).sum(-1)
        e = np.exp(z) * (rank < k)
        return e / e.sum(1)[:, None]
        """)
    ),
    "one hot": with_torch(
        ROUTE("""
        top, where = logits.topk(k, dim=1)
        return torch.einsum('tk,tke->te', top.softmax(1), torch.nn.functional.one_hot(where, logits.shape[1]).float())
        """)
    ),
    "unsorted": with_torch(
        ROUTE("""
        top, where = torch.topk(logits, k, sorted=False)
        hidden = torch.full_like(logits, -torch.inf)
        hidden[torch.arange(len(logits))[:, None], where] = top
        return torch.softmax(hidden, -1)
        """)
    ),
    "all, then zeroed": with_numpy(
        ROUTE("""
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        for row in p:
            row[np.argsort(row)[:-k]] = 0
        return p / p.sum(1, keepdims=True)
        """)
    ),
    "a large number": with_numpy(
        SOFTMAX + ROUTE("return softmax(np.where(np.argsort(np.argsort(-logits, 1), 1) < k, logits, -1e9))")
    ),
}

WRONG = {
    "not_divided_again": [
        numpy_route("np.where(chosen, softmax(logits), 0)"),
        torch_route("torch.softmax(logits, -1).gather(1, where)"),
    ],
    "all_experts": [
        numpy_route("softmax(logits)"),
        with_torch(ROUTE("return logits.softmax(-1)")),
    ],
    "down_the_tokens": [
        numpy_route(HIDDEN, least="np.sort(logits, axis=0)[-k]"),
        torch_hidden("logits.topk(k, dim=0).values[-1]"),
    ],
    "of_the_whole_table": [
        numpy_route(HIDDEN, least="np.sort(logits, axis=None)[-k]"),
        torch_hidden("logits.flatten().topk(k).values[-1]"),
    ],
    "smallest": [
        with_numpy(SOFTMAX + ROUTE("return softmax(np.where(logits <= np.sort(logits)[:, k - 1:k], logits, -np.inf))")),
        torch_route("torch.softmax(top, -1)", largest=False),
    ],
    "one_fewer": [
        numpy_route("softmax(np.where(logits > least, logits, -np.inf))"),
        torch_route("torch.softmax(top, -1)", k="k - 1"),
    ],
    "one_more": [
        numpy_route(HIDDEN, least="np.sort(logits, axis=1)[:, -k - 1][:, None]"),
        torch_route("torch.softmax(top, -1)", k="k + 1"),
    ],
    "zeros_share": [
        numpy_route("softmax(logits * chosen)"),
        with_torch(
            ROUTE("top, where = logits.topk(k)\nreturn torch.zeros_like(logits).scatter(1, where, top).softmax(1)")
        ),
    ],
    "equal_shares": [
        numpy_route("chosen / k"),
        torch_route("torch.full_like(top, 1 / k)"),
    ],
    "no_softmax": [
        numpy_route("logits * chosen"),
        torch_route("top"),
    ],
    "column_shares": [
        numpy_route("softmax(np.where(chosen, logits, -np.inf), axis=0)"),
        torch_hidden("logits.topk(k).values[:, -1:]", dim=0),
    ],
}  # fmt: skip
