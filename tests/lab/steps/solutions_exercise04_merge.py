"""Right and wrong solutions of chapter 4's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

MERGE = function("merge(out_a, lse_a, out_b, lse_b)")


def numpy_merge(lines: str, end: str = "(a * out_a + b * out_b) / np.where(a + b == 0, 1, a + b)") -> str:
    """These lines make a and b (t,) of which the end makes the result."""
    return with_numpy(MERGE(f"{lines}\na, b = a[:, None], b[:, None]\nreturn {end}"))


TOP = "top = np.maximum(lse_a, lse_b)\ntop = np.where(np.isinf(top), 0, top)\n"
EXP = "a, b = np.exp(lse_a - top), np.exp(lse_b - top)"
TORCH = "lse = torch.stack([lse_a, lse_b])\nout = torch.stack([out_a, out_b])\n"
MIX = "return (w[..., None] * out).sum(0)"
PLAIN = "(a * out_a + b * out_b) / (a + b)"
LOOP = """
import math
def merge(out_a, lse_a, out_b, lse_b):
    rows = []
    for x, m, y, n in zip(out_a.tolist(), lse_a.tolist(), out_b.tolist(), lse_b.tolist()):
        {top}
        p, q = math.exp(m - top), math.exp(n - top)
        rows.append([(p * a + q * b) / {total} for a, b in zip(x, y)])
    return rows
"""

RIGHT = {
    "numpy": numpy_merge(TOP + EXP),
    "logaddexp": numpy_merge(
        "lse = np.logaddexp(lse_a, lse_b)\nlse = np.where(lse == -np.inf, 0, lse)\n"
        "a, b = np.exp(lse_a - lse), np.exp(lse_b - lse)",
        "a * out_a + b * out_b",
    ),
    "nan to 0": with_numpy(
        MERGE("""
        with np.errstate(all="ignore"):
            s = 1 / (1 + np.exp(lse_b - lse_a))
        s = np.nan_to_num(s)[:, None]
        return s * out_a + (1 - s) * out_b
        """)
    ),
    "torch": with_torch(MERGE(TORCH + "w = torch.softmax(lse, 0).nan_to_num(0)\n" + MIX)),
    "sigmoid": with_torch(
        MERGE("s = torch.sigmoid(lse_a - lse_b).nan_to_num(0.5)[:, None]\nreturn out_a * s + out_b * (1 - s)")
    ),
    "loops": LOOP.format(top="top = max(m, n) if max(m, n) > -math.inf else 0.0", total="((p + q) or 1.0)"),
    "early return": """
import numpy as np
def merge(a, la, b, lb):
    out = np.zeros_like(a)
    for i in range(len(a)):
        if la[i] == -np.inf and lb[i] == -np.inf:
            continue
        w = np.exp(np.array([la[i], lb[i]]) - max(la[i], lb[i]))
        out[i] = (w[0] * a[i] + w[1] * b[i]) / w.sum()
    return out
""",
    "einsum in float64": with_numpy(
        MERGE("""
        lse = np.stack([lse_a, lse_b]).astype(np.float64)
        top = lse.max(0)
        w = np.exp(lse - np.where(np.isfinite(top), top, 0))
        w = w / np.maximum(w.sum(0), 1e-300)
        return np.einsum('st,std->td', w, np.stack([out_a, out_b]))
        """)
    ),
    "a finite stand-in": with_numpy(
        MERGE("""
        la, lb = np.maximum(lse_a, -1e30), np.maximum(lse_b, -1e30)
        w = 1 / (1 + np.exp(np.clip(lb - la, -80, 80)))[:, None]
        return w * out_a + (1 - w) * out_b
        """)
    ),
    "logaddexp of each": with_numpy(
        MERGE("""
        lse = np.logaddexp(lse_a, lse_b)
        a = np.where(np.isneginf(lse_a), 0, np.exp(lse_a - lse))
        b = np.where(np.isneginf(lse_b), 0, np.exp(lse_b - lse))
        return a[:, None] * out_a + b[:, None] * out_b
        """)
    ),
    "tanh": with_numpy(
        MERGE("""
        d = np.nan_to_num(lse_b - lse_a, nan=0, posinf=1e30, neginf=-1e30)[:, None]
        return out_a + (1 + np.tanh(d / 2)) / 2 * (out_b - out_a)
        """)
    ),
    "case by case": with_numpy(
        MERGE("""
        out = []
        for x, m, y, n in zip(out_a, lse_a, out_b, lse_b):
            if n == -np.inf:
                out.append(x)
            elif m == -np.inf:
                out.append(y)
            else:
                r = np.exp(-abs(m - n))
                out.append((x + r * y) / (1 + r) if m > n else (r * x + y) / (1 + r))
        return np.array(out)
        """)
    ),
    "clamped": with_torch(
        MERGE("""
        top = torch.maximum(lse_a, lse_b).clamp_min(-1e20)
        a, b = (lse_a - top).exp(), (lse_b - top).exp()
        return (out_a * a[:, None] + out_b * b[:, None]) / (a + b).clamp_min(1e-20)[:, None]
        """)
    ),
    "plain Python, with its own 0": """
import math
def merge(out_a, lse_a, out_b, lse_b):
    rows = []
    for i in range(len(out_a)):
        top = max(float(lse_a[i]), float(lse_b[i]))
        if math.isinf(top):
            rows.append([0] * len(out_a[i]))
            continue
        p, q = math.exp(lse_a[i] - top), math.exp(lse_b[i] - top)
        rows.append([(p * float(a) + q * float(b)) / (p + q) for a, b in zip(out_a[i], out_b[i])])
    return rows
""",
}

WRONG = {
    "no_maximum": [
        numpy_merge("a, b = np.exp(lse_a), np.exp(lse_b)", PLAIN),
        numpy_merge("a, b = np.exp(lse_a), np.exp(lse_b)"),
        with_torch(MERGE(TORCH + "w = lse.exp() / lse.exp().sum(0)\n" + MIX)),
        LOOP.format(top="top = 0.0", total="((p + q) or 1.0)"),
        LOOP.format(top="top = 0.0", total="(p + q)"),
    ],
    "maximum_over_all": [
        numpy_merge("top = max(lse_a.max(), lse_b.max(), -1e9)\n" + EXP),
        with_torch(
            MERGE(
                TORCH + "w = (lse - lse.max().clamp(min=-1e30)).exp()\nw = w / w.sum(0)\n"
                f"w[:, lse.amax(0) < -1e30] = 0\n{MIX}"
            )
        ),
    ],
    "not_divided": [
        numpy_merge(TOP + EXP, "a * out_a + b * out_b"),
        numpy_merge("a, b = np.exp(lse_a), np.exp(lse_b)", "a * out_a + b * out_b"),
    ],
    "larger_wins": [
        with_numpy(MERGE("return np.where((lse_a >= lse_b)[:, None], out_a, out_b)")),
        with_torch(MERGE("return torch.where((lse_a > lse_b)[:, None], out_a, out_b)")),
    ],
    "empty_is_nan": [
        numpy_merge("top = np.maximum(lse_a, lse_b)\n" + EXP, PLAIN),
        with_torch(MERGE(TORCH + "return (torch.softmax(lse, 0)[..., None] * out).sum(0)")),
        with_torch(MERGE("s = torch.sigmoid(lse_a - lse_b)[:, None]\nreturn out_a * s + out_b * (1 - s)")),
        LOOP.format(top="top = max(m, n)", total="(p + q)"),
    ],
    "plain_average": [
        with_numpy(MERGE("return (out_a + out_b) / 2")),
        with_torch(MERGE("return torch.stack([out_a, out_b]).mean(0)")),
    ],
    "swapped": [
        numpy_merge(TOP + "b, a = np.exp(lse_a - top), np.exp(lse_b - top)"),
        with_torch(MERGE(TORCH + "w = torch.softmax(lse, 0).nan_to_num(0).flip(0)\n" + MIX)),
    ],
    "lse_as_weight": [
        numpy_merge("a, b = lse_a, lse_b", PLAIN),
        with_torch(MERGE(TORCH + "w = lse / lse.sum(0)\n" + MIX)),
    ],
    "base_two": [
        numpy_merge(TOP + "a, b = 2 ** (lse_a - top), 2 ** (lse_b - top)"),
        numpy_merge(TOP + "a, b = np.exp2(lse_a - top), np.exp2(lse_b - top)"),
    ],
    "sum_of_both": [
        with_numpy(MERGE("return out_a + out_b")),
        with_torch(MERGE("return torch.stack([out_a, out_b]).sum(0)")),
    ],
}  # fmt: skip
