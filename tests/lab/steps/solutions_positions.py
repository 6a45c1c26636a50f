"""Step 5 as readers write it: right in many styles, and wrong in at least two ways a mistake."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

_placed = function("attention_with_positions(x, p)")
_gap = function("reordered_gap(fn, x, order)")

SOFT = """
def soft(s, axis=-1):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

"""


def placed(body: str) -> str:
    """Attention with positions in NumPy, which has `soft`."""
    return with_numpy(SOFT + _placed(body))


def placed_torch(body: str) -> str:
    return with_torch(_placed(body))


def gap(body: str) -> str:
    return with_numpy(_gap(body))


def gap_torch(body: str) -> str:
    return with_torch(_gap(body))


PLACED_RIGHT = {
    "three lines": placed("z = x + p\nreturn soft(z @ z.T / np.sqrt(x.shape[1])) @ x"),
    "nothing subtracted": placed("z = x + p\ne = np.exp(z @ z.T / len(z[0]) ** 0.5)\nreturn (e.T / e.sum(1)).T @ x"),
    "the products apart": placed(
        "s = x @ x.T + x @ p.T + p @ x.T + p @ p.T\nreturn soft(s / np.sqrt(x.shape[-1])) @ x"
    ),
    "einsum, float64": placed(
        """
        z = np.add(x, p, dtype=np.float64)
        w = soft(np.einsum('ic,jc->ij', z, z) * z.shape[1] ** -0.5)
        return np.einsum('ij,jc->ic', w, x)
        """
    ),
    "keys in rows": placed("z = (x + p) / x.shape[1] ** 0.25\nreturn (x.T @ soft(z @ z.T, axis=0)).T"),
    "a row at a time": placed(
        """
        k = x + p
        return np.stack([soft(k @ q / np.sqrt(len(q))) @ x for q in k])
        """
    ),
    "a matrix": placed("z = np.asmatrix(x + p)\nreturn soft(np.asarray(z * z.T) / np.sqrt(x.shape[1])) @ x"),
    "loops and lists": """
        from math import exp, sqrt

        def attention_with_positions(tokens, places):
            z = [[float(a) + float(b) for a, b in zip(token, place)] for token, place in zip(tokens, places)]
            out = []
            for q in z:
                e = [exp(sum(a * b for a, b in zip(q, k)) / sqrt(len(q))) for k in z]
                out.append([sum(w * float(x[c]) for w, x in zip(e, tokens)) / sum(e) for c in range(len(q))])
            return out
        """,
    "torch": placed_torch("z = x + p\nreturn torch.softmax(z @ z.T / x.shape[1] ** 0.5, -1) @ x"),
    "torch's own": placed_torch(
        "z = (x + p)[None]\nreturn torch.nn.functional.scaled_dot_product_attention(z, z, x[None])[0]"
    ),
    "torch, log-sum-exp": placed_torch(
        "s = (x + p) @ (x + p).mT / x.size(1) ** 0.5\nreturn (s - s.logsumexp(1, keepdim=True)).exp().mm(x)"
    ),
    "its own copy": placed("x = x.copy()\nv = x.copy()\nx += p\nreturn soft(x @ x.T / np.sqrt(x.shape[1])) @ v"),
}

GAP_RIGHT = {
    "one line": gap("return np.abs(fn(x[order]) - fn(x)[order]).max()"),
    "put back": gap("back = np.argsort(order)\nreturn float(abs(fn(x[order])[back] - fn(x)).max())"),
    "put back by assignment": gap(
        "there = fn(x[order])\nback = np.empty_like(there)\nback[order] = there\nreturn np.max(np.abs(back - fn(x)))"
    ),
    "the largest and the smallest": gap("d = fn(x[order]) - fn(x)[order]\nreturn max(d.max(), -d.min())"),
    "a norm": gap("return np.linalg.norm((fn(x.take(order, 0)) - fn(x).take(order, 0)).ravel(), np.inf)"),
    "a matrix of zeros and ones": gap(
        "m = np.eye(len(x), dtype=x.dtype)[order]\nreturn abs(fn(m @ x) - m @ fn(x)).max()"
    ),
    "float64": gap("x = x.astype(np.float64)\nreturn np.abs(fn(x[order]) - fn(x)[order]).max(axis=(0, 1))"),
    "loops": """
        def reordered_gap(function, tokens, order):
            import numpy as np
            before = function(tokens)
            after = function(np.stack([tokens[j] for j in order]))
            worst = 0.0
            for i, j in enumerate(order):
                for a, b in zip(after[i], before[j]):
                    worst = max(worst, abs(float(a) - float(b)))
            return worst
        """,
    "a list": gap("return max(abs(d) for row in fn(x[list(order)]) - fn(x)[list(order)] for d in row)"),
    "torch": gap_torch("return (fn(x[order]) - fn(x)[order]).abs().max()"),
    "torch, put back": gap_torch("return torch.dist(fn(x[order])[order.argsort()], fn(x), p=float('inf')).item()"),
    "torch, index_select": gap_torch(
        "d = fn(x.index_select(0, order)) - fn(x).index_select(0, order)\nreturn d.abs().amax((0, 1))"
    ),
}


def _scores(scores: str) -> tuple[str, str]:
    """Attention to x with those scores, once in NumPy and once in torch."""
    return (
        placed(f"return soft({scores} / np.sqrt(x.shape[1])) @ x"),
        placed_torch(f"s = ({scores}) * x.shape[1] ** -0.5\nreturn s.softmax(1) @ x"),
    )


PLACED_WRONG = {
    "positions_in_values": (
        placed("x = x + p\nreturn soft(x @ x.T / np.sqrt(x.shape[1])) @ x"),
        placed_torch("z = (x + p)[None]\nreturn torch.nn.functional.scaled_dot_product_attention(z, z, z)[0]"),
    ),
    "no_positions": _scores("(x @ x.T)"),
    "only_queries": _scores("((x + p) @ x.T)"),
    "only_keys": _scores("(x @ (x + p).T)"),
    "subtracted": _scores("((x - p) @ (x - p).T)"),
    "multiplied": _scores("((x * p) @ (x * p).T)"),
    "scored_apart": _scores("(x @ x.T + p @ p.T)"),
    "concatenated": (
        placed("z = np.hstack([x, p])\nreturn soft(z @ z.T / np.sqrt(z.shape[1])) @ x"),
        placed_torch("z = torch.cat([x, p], 1)\nreturn torch.softmax(z @ z.T / z.shape[1] ** 0.5, 1) @ x"),
    ),
    "added_to_output": (
        placed("z = x + p\nreturn soft(z @ z.T / np.sqrt(x.shape[1])) @ x + p"),
        placed_torch("z = x + p\nreturn torch.addmm(p, torch.softmax(z @ z.T / x.shape[1] ** 0.5, 1), x)"),
    ),
    "future_hidden": (
        placed("z = x + p\ns = z @ z.T / np.sqrt(x.shape[1])\nreturn soft(np.where(np.tri(len(x)), s, -np.inf)) @ x"),
        placed_torch(
            "z = (x + p)[None]\n"
            "return torch.nn.functional.scaled_dot_product_attention(z, z, x[None], is_causal=True)[0]"
        ),
    ),
    "no_scale": (
        placed("z = x + p\nreturn soft(z @ z.T) @ x"),
        placed_torch("return torch.softmax((x + p) @ (x + p).T, 1) @ x"),
    ),
    "scale_by_d": (
        placed("z = x + p\nreturn soft(z @ z.T / x.shape[1]) @ x"),
        placed_torch("z = (x + p) / x.size(1) ** 0.5\nreturn torch.softmax(z @ z.T, 1) @ x"),
    ),
    "scale_up": (
        placed("z = x + p\nreturn soft(z @ z.T * np.sqrt(x.shape[1])) @ x"),
        placed_torch("z = (x + p) * x.size(1) ** 0.25\nreturn torch.softmax(z @ z.T, 1) @ x"),
    ),
    "wrong_axis": (
        placed("z = x + p\nreturn soft(z @ z.T / np.sqrt(x.shape[1]), axis=0) @ x"),
        placed_torch("z = x + p\nreturn torch.softmax(z @ z.T / x.size(1) ** 0.5, 1).T @ x"),
    ),
    "whole_softmax": (
        placed("z = x + p\ne = np.exp(z @ z.T / np.sqrt(x.shape[1]))\nreturn e / e.sum() @ x"),
        placed_torch("z = x + p\ns = z @ z.T / x.size(1) ** 0.5\nreturn s.flatten().softmax(0).view_as(s) @ x"),
    ),
    "no_softmax": (
        placed("z = x + p\nreturn z @ z.T @ x / np.sqrt(x.shape[1])"),
        placed_torch("z = x + p\nreturn z @ (z.T @ x) * x.size(1) ** -0.5"),
    ),
    "no_positions no_scale": (
        placed("return soft(x @ x.T) @ x"),
        placed_torch("return torch.softmax(x @ x.T, 1) @ x"),
    ),
    "changed": (
        placed("v = x.copy()\nx += p\nreturn soft(x @ x.T / np.sqrt(x.shape[1])) @ v"),
        placed_torch("v = x.clone()\nz = p.add_(x)\nreturn torch.softmax(z @ z.T / x.size(1) ** 0.5, 1) @ v"),
    ),
}


def _compared(difference: str, summed_up: str = "abs(d).max()") -> tuple[str, str]:
    """A gap of that difference, once in NumPy and once in torch."""
    return gap(f"d = {difference}\nreturn {summed_up}"), gap_torch(f"d = {difference}\nreturn {summed_up}")


_RIGHT_DIFFERENCE = "fn(x[order]) - fn(x)[order]"

GAP_WRONG = {
    "input_only": _compared("fn(x[order]) - fn(x)"),
    "output_only": _compared("fn(x)[order] - fn(x)"),
    "inverse_output": (
        *_compared("fn(x[order])[order] - fn(x)"),
        *_compared("fn(x[order]) - fn(x)[order.argsort()]"),
    ),
    "inverse_order": (
        gap(
            """
            def moved(a):
                b = np.empty_like(a)
                b[order] = a
                return b
            return np.abs(fn(moved(x)) - moved(fn(x))).max()
            """
        ),
        gap_torch("back = order.argsort()\nreturn (fn(x[back]) - fn(x)[back]).abs().max()"),
    ),
    "columns": _compared("fn(x[:, order]) - fn(x)[:, order]"),
    "signed": _compared(_RIGHT_DIFFERENCE, "d.max()"),
    "mean": _compared(_RIGHT_DIFFERENCE, "abs(d).mean()"),
    "squared": _compared(_RIGHT_DIFFERENCE, "(d * d).mean()"),
    "total": _compared(_RIGHT_DIFFERENCE, "abs(d).sum()"),
    "norm": (
        gap(f"return np.linalg.norm({_RIGHT_DIFFERENCE})"),
        gap_torch(f"return torch.dist({_RIGHT_DIFFERENCE.replace(' -', ',')})"),
    ),
    "smallest": _compared(_RIGHT_DIFFERENCE, "abs(d).min()"),
    "returns_bool": (
        gap("return np.allclose(fn(x[order]), fn(x)[order])"),
        gap_torch("return (fn(x[order]) - fn(x)[order]).abs().max() > 1e-6"),
        gap("return not (fn(x[order]) == fn(x)[order]).all()"),
    ),
    "input_only mean": _compared("fn(x[order]) - fn(x)", "abs(d).mean()"),
    "shape": _compared(_RIGHT_DIFFERENCE, "abs(d)"),
}
