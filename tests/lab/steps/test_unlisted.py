"""Mistakes that no step lists: they do not pass, and are not taken for one that they are not."""

from __future__ import annotations

import pytest

from attnbook.lab.steps import step
from tests.lab.run import Desk

SPREAD = "import numpy as np\ndef largest_weight(q, k, scale):\n    s = q @ k.T * scale\n"
SOFTMAX = "import numpy as np\ndef softmax(x):\n"
GAP = "def reordered_gap(fn, x, order):\n    d = abs(fn(x[order]) - fn(x)[order])\n"
SCALED = "import numpy as np\ndef attention(q, k, v):\n    d = q.shape[1]\n"
WEIGHTS = "e / e.sum(-1, keepdims=True)"

WRONG = [
    ("2", SPREAD + f"    e = np.exp(s - s.mean(1, keepdims=True))\n    return ({WEIGHTS}).max(1).mean()"),
    ("2", SPREAD + f"    e = np.exp(s - s.min(1, keepdims=True))\n    return ({WEIGHTS}).max(1).mean()"),
    ("3", SOFTMAX + f"    x = np.maximum(x, -1e4)\n    e = np.exp(x - x.max(-1, keepdims=True))\n    return {WEIGHTS}"),
    ("3", SOFTMAX + f"    e = np.exp(x - np.where(np.isinf(x), 0, x).max(-1, keepdims=True))\n    return {WEIGHTS}"),
    ("3", SOFTMAX + f"    e = np.exp(x.astype(np.longdouble))\n    return {WEIGHTS}"),
    ("5", GAP + "    return d[1:].max()"),
    ("5", GAP + "    return d[:-1].max()"),
    ("5", GAP + "    return d[:, 1:].max()"),
    ("5", GAP + "    return d[:, :-1].max()"),
    ("5", "def reordered_gap(fn, x, order):\n    return 0.0"),
    ("1", SCALED + f"    e = np.exp(q[:, 1:] @ k[:, 1:].T / d**0.5)\n    return {WEIGHTS} @ v"),
    ("1", SCALED + f"    e = np.exp(q[:, :-1] @ k[:, :-1].T / d**0.5)\n    return {WEIGHTS} @ v"),
    ("1", SCALED + f"    e = np.exp((q @ k.T + q[:, :1] @ k[:, :1].T) / d**0.5)\n    return {WEIGHTS} @ v"),
    ("1", SCALED + "    return np.tile(v.mean(0), (len(q), 1))"),
    ("1", SCALED + "    return [[0 for _ in v[0]] for _ in q]"),
    (
        "chapter-4",
        "import numpy as np\ndef merge(out_a, lse_a, out_b, lse_b):\n"
        "    a, b = np.maximum(lse_a, -1e4), np.maximum(lse_b, -1e4)\n    top = np.maximum(a, b)\n"
        "    a, b = np.exp(a - top)[:, None], np.exp(b - top)[:, None]\n    return (a * out_a + b * out_b) / (a + b)",
    ),
    (
        "chapter-1",
        "import numpy as np\ndef rows_sum_to_one(fn):\n    rng = np.random.default_rng(1)\n"
        "    return (fn(rng.normal(size=(5, 3)), rng.normal(size=(7, 3)), np.ones((7, 1))) < 1.001).all()",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source"), WRONG)
def test_what_is_not_listed_is_wrong_and_has_no_name(judged: Desk, key: str, source: str):
    """Nobody is told a mistake that they have not made: the smallest failing input is all that there is to say."""
    part = next(part for part in step(key).parts if f"def {part.name}" in source)
    finding = judged.finding(step(key), source, part)
    assert finding is not None
    assert finding.mistakes == ("wrong",)
    assert finding.case is not None
