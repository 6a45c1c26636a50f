"""Step 1: every mistake is recognised in differently written functions, and nobody who is right is accused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from attnbook import reference
from attnbook.lab.judge import truth
from attnbook.lab.steps import step
from tests.lab.run import Desk

STEP = step(1)
PART = STEP.parts[0]

HEAD = "import math\nimport numpy as np\n\ndef attention(q, k, v):\n"
TORCH = "import math\nimport torch\n\ndef attention(q, k, v):\n"

RIGHT = {
    "numpy": HEAD
    + "    s = q @ k.T / np.sqrt(q.shape[1])\n    w = np.exp(s)\n    return w / w.sum(1, keepdims=True) @ v",
    "with the maximum": HEAD
    + "    s = q @ k.T / math.sqrt(k.shape[-1])\n    w = np.exp(s - s.max(-1, keepdims=True))\n"
    "    return (w / w.sum(-1, keepdims=True)) @ v",
    "divided at the end": HEAD
    + "    w = np.exp(q @ k.T * q.shape[1] ** -0.5)\n    return w @ v / w.sum(axis=1)[:, None]",
    "scaled queries": HEAD
    + "    w = np.exp((q / np.sqrt(q.shape[1])) @ np.transpose(k))\n    return w @ v / w.sum(1, keepdims=True)",
    "einsum": HEAD + "    w = np.exp(np.einsum('id,jd->ij', q, k) / np.sqrt(q.shape[1]))\n"
    "    return np.einsum('ij,jc->ic', w / np.einsum('ij->i', w)[:, None], v)",
    "transposed table": HEAD + "    w = np.exp(k @ q.T / np.sqrt(q.shape[1]))\n    return (v.T @ (w / w.sum(0))).T",
    "loops over lists": """
        import math
        def attention(questions, marks, contents):
            out = []
            for question in questions.tolist():
                weights = [math.exp(sum(a * b for a, b in zip(question, mark)) / math.sqrt(len(question)))
                           for mark in marks.tolist()]
                total = sum(weights)
                out.append([sum(w * c[i] for w, c in zip(weights, contents.tolist())) / total
                            for i in range(contents.shape[1])])
            return out
        """,
    "one query at a time": HEAD + "    out = np.zeros((len(q), v.shape[1]), np.float32)\n    for i in range(len(q)):\n"
    "        w = np.exp(k @ q[i] / np.sqrt(len(q[i])))\n        out[i] = w @ v / w.sum()\n    return out",
    "float64": HEAD + "    q, k, v = (x.astype(np.float64) for x in (q, k, v))\n    s = q @ k.T / np.sqrt(q.shape[1])\n"
    "    w = np.exp(s - np.logaddexp.reduce(s, axis=1, keepdims=True))\n    return w @ v",
    "helpers": "import numpy as np\ndef softmax(x):\n    e = np.exp(x)\n    return e / e.sum(-1, keepdims=True)\n"
    "attention = lambda Q, K, V: softmax(Q @ K.T / np.sqrt(Q.shape[-1])) @ V",
    "torch": TORCH + "    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), dim=-1) @ v",
    "torch's own": TORCH + "    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]",
    "torch einsum, in double precision": TORCH
    + "    w = torch.einsum('id,jd->ij', q.double(), k.double()).div(q.shape[1] ** 0.5).softmax(1)\n"
    "    return torch.einsum('ij,jc->ic', w, v.double())",
    "a class": "import numpy as np\nclass Attention:\n    def __call__(self, q, k, v):\n"
    "        w = np.exp(q @ k.T / np.sqrt(q.shape[1]))\n        return w @ v / w.sum(1, keepdims=True)\n"
    "attention = Attention()",
}

_SOFTMAX = "    w = np.exp(s)\n    return w / w.sum(-1, keepdims=True) @ v"
WRONG = {
    "wrong_axis": [
        HEAD + "    s = q @ k.T / np.sqrt(q.shape[1])\n    w = np.exp(s)\n    return w / w.sum(0, keepdims=True) @ v",
        TORCH + "    return (q @ k.T / math.sqrt(q.shape[1])).softmax(dim=0) @ v",
        HEAD + "    w = np.exp(k @ q.T / np.sqrt(q.shape[1]))\n    return (w / w.sum(1)[:, None]).T @ v",
    ],
    "no_scale": [
        HEAD + "    s = q @ k.T\n" + _SOFTMAX,
        TORCH + "    return torch.softmax(torch.einsum('id,jd->ij', q, k), -1) @ v",
    ],
    "scale_by_d": [
        HEAD + "    s = q @ k.T / q.shape[1]\n" + _SOFTMAX,
        HEAD + "    s = (q / np.sqrt(q.shape[1])) @ (k / np.sqrt(k.shape[1])).T\n" + _SOFTMAX,
    ],
    "scale_up": [
        HEAD + "    s = q @ k.T * np.sqrt(q.shape[1])\n" + _SOFTMAX,
        TORCH + "    return torch.softmax((q @ k.T) / q.shape[1] ** -0.5, -1) @ v",
    ],
    "scale_by_keys": [
        HEAD + "    s = q @ k.T / np.sqrt(len(k))\n" + _SOFTMAX,
        HEAD + "    s = q @ k.T\n    s = s / np.sqrt(s.shape[1])\n" + _SOFTMAX,
    ],
    "scale_by_values": [
        HEAD + "    s = q @ k.T / np.sqrt(v.shape[-1])\n" + _SOFTMAX,
        TORCH + "    return torch.softmax(q @ k.T / math.sqrt(v.size(1)), -1) @ v",
    ],
    "other_scale": [
        HEAD + "    s = q @ k.T / 8\n" + _SOFTMAX,
        HEAD + "    s = q @ k.T / q.shape[1] ** 0.25\n" + _SOFTMAX,
    ],
    "no_softmax": [
        HEAD + "    return q @ k.T / np.sqrt(q.shape[1]) @ v",
        TORCH + "    return torch.einsum('id,jd,jc->ic', q, k, v) / math.sqrt(q.shape[1])",
    ],
    "no_sum": [
        HEAD + "    return np.exp(q @ k.T / np.sqrt(q.shape[1])) @ v",
        TORCH + "    w = (q @ k.T / math.sqrt(q.shape[1])).exp()\n    return torch.einsum('ij,jc->ic', w, v)",
    ],
    "whole_softmax": [
        HEAD + "    w = np.exp(q @ k.T / np.sqrt(q.shape[1]))\n    return w / w.sum() @ v",
        TORCH + "    s = q @ k.T / math.sqrt(q.shape[1])\n    return s.flatten().softmax(0).view_as(s) @ v",
    ],
    "keys_for_values": [
        HEAD + "    s = q @ k.T / np.sqrt(q.shape[1])\n    w = np.exp(s)\n    return w / w.sum(-1, keepdims=True) @ k",
        TORCH + "    v = k\n    return torch.softmax(q @ k.T / math.sqrt(q.shape[1]), -1) @ v",
    ],
    "no_values": [
        HEAD + "    s = q @ k.T / np.sqrt(q.shape[1])\n    w = np.exp(s)\n    return w / w.sum(1, keepdims=True)",
        TORCH + "    return torch.softmax(q @ k.T / math.sqrt(q.shape[1]), -1)",
    ],
    "wrong": [
        HEAD + "    s = q @ k.T / np.sqrt(q.shape[1]) + 1e-2 * np.arange(len(k))\n" + _SOFTMAX,
        HEAD + "    s = abs(q @ k.T / np.sqrt(q.shape[1]))\n" + _SOFTMAX,
    ],
    "shape": [
        HEAD
        + "    s = q @ k.T / np.sqrt(q.shape[1])\n    w = np.exp(s)\n    return (w / w.sum(1, keepdims=True) @ v).T",
        HEAD + "    w = np.exp(q @ k.T / np.sqrt(q.shape[1]))\n    return (w / w.sum(1, keepdims=True) @ v)[0]",
    ],
    "kind": [
        HEAD + "    w = np.exp(q @ k.T / np.sqrt(q.shape[1]))\n    return (w @ v / w.sum(1)[:, None]).astype(int)",
        TORCH + "    return (torch.softmax(q @ k.T / math.sqrt(q.shape[1]), -1) @ v).to(torch.complex64)",
    ],
    "low_precision": [
        HEAD + "    s = q @ k.T / np.sqrt(q.shape[1])\n    w = np.exp(s)\n"
        "    return (w @ v / w.sum(1)[:, None]).astype(np.float16)",
        TORCH + "    q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()\n"
        "    return torch.softmax(q @ k.T / math.sqrt(q.shape[1]), -1) @ v",
    ],
    "changed": [
        HEAD + "    q /= np.sqrt(q.shape[1])\n    w = np.exp(q @ k.T)\n    return w / w.sum(1, keepdims=True) @ v",
        TORCH + "    k.mul_(k.shape[1] ** -0.5)\n    return torch.softmax(q @ k.T, -1) @ v",
    ],
    "none": [HEAD + "    w = np.exp(q @ k.T)", "import numpy as np\nattention = lambda *qkv: print(np.exp(qkv[0]))"],
    "raised": [HEAD + "    return q @ k", TORCH + "    return torch.softmax(q @ k.T, axs=-1) @ v"],
    "missing": ["def attend(q, k, v):\n    return v", "attention = 3"],
    "unwritten": [
        HEAD + "    raise NotImplementedError",
        "def attention(q, k, v):\n    raise NotImplementedError('later')",
    ],
}


@pytest.mark.parametrize("style", RIGHT)
def test_whoever_is_right_is_not_accused(judged: Desk, style: str):
    assert judged.diagnose(STEP, RIGHT[style]) == ()


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_recognised_however_it_is_written(judged: Desk, mistake: str):
    assert len(WRONG[mistake]) >= 2
    for source in WRONG[mistake]:
        assert judged.diagnose(STEP, source) == (mistake,), source


def test_two_mistakes_at_once_are_both_named(judged: Desk):
    source = HEAD + "    w = np.exp(q @ k.T)\n    return w / w.sum(0, keepdims=True) @ v"
    assert set(judged.diagnose(STEP, source)) == {"wrong_axis", "no_scale"}


def test_the_factor_that_was_used_is_said(judged: Desk):
    finding = judged.finding(STEP, HEAD + "    s = q @ k.T / 8\n" + _SOFTMAX)
    assert finding is not None
    assert finding.details["factors"] == "0.125, 0.125, 0.125"
    assert finding.details["wanted"] == "0.5, 0.3333, 0.25"


def test_the_input_shown_is_the_smallest_that_shows_it(judged: Desk):
    """Without a scale, four components with equal entries are the first at which anything differs."""
    finding = judged.finding(STEP, WRONG["no_scale"][0])
    assert finding is not None
    assert finding.case is PART.cases[1]


def test_the_right_answer_is_the_reference_s():
    for case in PART.cases:
        q, k, v = (torch.from_numpy(np.asarray(x, np.float64))[None, None] for x in case.arguments)
        np.testing.assert_allclose(truth(PART.model, case), reference.attention(q, k, v)[0, 0], rtol=1e-12)


def test_every_two_imitations_and_the_truth_differ_in_some_case():
    made: list[frozenset[str]] = [frozenset(), *(frozenset({flaw}) for flaw in PART.flaws)]
    for one, other in combinations(made, 2):
        assert any(_far(case.arguments, one, other) for case in PART.cases), (one, other)


def _far(arguments, one, other):
    a, b = (PART.model(*arguments, flaws=flaws) for flaws in (one, other))
    return a.shape != b.shape or np.abs(a - b).max() > 0.01 * np.abs(b).max()
