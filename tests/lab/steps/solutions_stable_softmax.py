"""Right and wrong solutions of step 3 as source text: of each mistake at least two that are written differently."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

SOFTMAX = function("softmax(x)")


def _numpy(body: str) -> str:
    return with_numpy(SOFTMAX(body))


def _torch(body: str) -> str:
    return with_torch(SOFTMAX(body))


def _rows(body: str) -> str:
    """Plain Python: `body` makes a list from the list `row`; lists of lists are taken apart."""
    inner = function("one(row)")(body)
    outer = "return [softmax(row) for row in x] if isinstance(x[0], list) else one(x)"
    lists = SOFTMAX("if not isinstance(x, list):\n    x = x.tolist()\n" + outer)
    return f"import math\n{inner}{lists}"


RIGHT = {
    "numpy": _numpy("e = np.exp(x - x.max(axis=-1, keepdims=True))\nreturn e / e.sum(axis=-1, keepdims=True)"),
    "torch": _torch("return torch.softmax(x, dim=-1)"),
    "torch by hand": _torch("e = (x - x.amax(-1, keepdim=True)).exp()\nreturn e / e.sum(-1, keepdim=True)"),
    "log-sum-exp": _torch("return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))"),
    "logaddexp": _numpy("return np.exp(x - np.logaddexp.reduce(x, axis=-1, keepdims=True))"),
    "plain Python": _rows(
        """
        m = max(row)
        e = [math.exp(v - m) for v in row]
        return [v / sum(e) for v in e]
        """
    ),
    "float64": _numpy(
        """
        y = np.asarray(x, dtype=np.float64)
        y = y - np.max(y, axis=-1)[..., None]
        np.exp(y, out=y)
        y /= y.sum(-1)[..., None]
        return y
        """
    ),
    "along an axis": _numpy(
        """
        def row(s):
            e = np.exp(s - s.max())
            return e / e.sum()
        return np.apply_along_axis(row, -1, x)
        """
    ),
    "recursion": _numpy(
        """
        if x.ndim > 1:
            return np.stack([softmax(part) for part in x])
        shifted = np.exp(x - max(x))
        return shifted / sum(shifted)
        """
    ),
    "loops, other names": """
        import numpy
        def softmax(scores):
            flat = scores.reshape(-1, scores.shape[-1])
            result = numpy.empty_like(flat)
            for i in range(len(flat)):
                for j in range(flat.shape[1]):
                    # one over the sum of exp of the differences, which may be inf and is then 1 / inf
                    with numpy.errstate(over='ignore'):
                        result[i, j] = 1 / numpy.exp(flat[i] - flat[i, j]).sum() if flat[i, j] > -numpy.inf else 0
            return result.reshape(scores.shape)
    """,
    "last axis in front": _numpy(
        """
        t = np.moveaxis(x, -1, 0)
        e = np.exp(t - t.max(0))
        return np.moveaxis(e / e.sum(0), 0, -1)
        """
    ),
    "einsum": _numpy(
        """
        e = np.exp(x - np.sort(x, axis=-1)[..., -1:])
        return np.einsum('...n,...->...n', e, 1 / np.einsum('...n->...', e))
        """
    ),
    "twice, for nothing": _numpy(
        """
        y = x.astype(np.float64) - x.max()
        y = y - y.max(-1, keepdims=True)
        return np.exp(y) / np.exp(y).sum(-1, keepdims=True)
        """
    ),
}

END = "return e / e.sum(-1, keepdims=True)"

WRONG = {
    "no_maximum": [
        _numpy(f"e = np.exp(x)\n{END}"),
        _torch("return x.exp() / x.exp().sum(-1, keepdim=True)"),
        _rows("e = [math.exp(v) for v in row]\nreturn [v / sum(e) for v in e]"),
        _numpy("e = np.exp(x)\nreturn np.nan_to_num(e / e.sum(-1, keepdims=True))"),
    ],
    "whole_maximum": [
        _numpy(f"e = np.exp(x - np.max(x))\n{END}"),
        _torch("e = torch.exp(x - x.max())\nreturn e / e.sum(-1, keepdim=True)"),
        """
        import math
        def softmax(x, top=None):
            if top is None:
                top = float(x.max())
            if x.ndim > 1:
                return [softmax(part, top) for part in x]
            e = [math.exp(float(v) - top) for v in x]
            return [v / sum(e) for v in e]
        """,
    ],
    "minimum": [
        _numpy(f"e = np.exp(x - x.min(axis=-1, keepdims=True))\n{END}"),
        _torch("e = torch.exp(x - x.amin(-1, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)"),
    ],
    "mean": [
        _numpy(f"e = np.exp(x - x.mean(axis=-1, keepdims=True))\n{END}"),
        _torch("e = torch.exp(x - x.mean(-1, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)"),
    ],
    "absolute": [
        _numpy(f"e = np.exp(x - np.abs(x).max(axis=-1, keepdims=True))\n{END}"),
        _rows("m = max(abs(v) for v in row)\ne = [math.exp(v - m) for v in row]\nreturn [v / sum(e) for v in e]"),
    ],
    "from_zero": [
        _numpy(f"e = np.exp(x - np.maximum(0, x.max(axis=-1, keepdims=True)))\n{END}"),
        _rows("m = max(0.0, *row)\ne = [math.exp(v - m) for v in row]\nreturn [v / sum(e) for v in e]"),
    ],
    "reversed": [
        _numpy(f"e = np.exp(x.max(axis=-1, keepdims=True) - x)\n{END}"),
        _torch("return torch.softmax(-x, -1)"),
        _rows("m = max(row)\ne = [math.exp(m - v) for v in row]\nreturn [v / sum(e) for v in e]"),
    ],
    "divided": [
        _numpy(f"e = np.exp(x / x.max(axis=-1, keepdims=True))\n{END}"),
        _torch("return torch.softmax(x / x.amax(-1, keepdim=True), -1)"),
    ],
    "not_hidden": [
        _numpy(f"e = np.exp(np.clip(x - x.max(-1, keepdims=True), -50, 0))\n{END}"),
        _torch("return torch.softmax((x - x.amax(-1, keepdim=True)).clamp(min=-40), -1)"),
    ],
    "added": [
        _numpy(f"e = np.exp(x + x.max(axis=-1, keepdims=True))\n{END}"),
        _rows("m = max(row)\ne = [math.exp(v + m) for v in row]\nreturn [v / sum(e) for v in e]"),
    ],
    "maximum_of_columns": [
        _numpy(f"e = np.exp(x - x.max(axis=0, keepdims=True))\n{END}"),
        _torch("e = torch.exp(x - x.max(0).values)\nreturn e / e.sum(-1, keepdim=True)"),
    ],
    "wrong_axis": [
        _numpy("e = np.exp(x - x.max(axis=0))\nreturn e / e.sum(axis=0)"),
        _torch("return x.softmax(0)"),
        _numpy("e = np.exp(x - x.max(axis=-2, keepdims=True))\nreturn e / e.sum(axis=-2, keepdims=True)"),
    ],
    "whole_softmax": [
        _numpy("e = np.exp(x - x.max())\nreturn e / e.sum()"),
        _torch("return x.flatten().softmax(0).reshape(x.shape)"),
    ],
    "sum_of_columns": [
        _numpy("e = np.exp(x - x.max(axis=-1, keepdims=True))\nreturn e / sum(e)"),
        _torch("e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / e.sum(0)"),
    ],
    "whole_sum": [
        _numpy("e = np.exp(x - x.max(axis=-1, keepdims=True))\nreturn e / e.sum()"),
        _torch("e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / torch.sum(e)"),
    ],
    "no_sum": [
        _numpy("return np.exp(x - x.max(axis=-1, keepdims=True))"),
        _rows("m = max(row)\nreturn [math.exp(v - m) for v in row]"),
    ],
    "no_exp": [
        _numpy("with np.errstate(all='ignore'):\n    return x / x.sum(-1, keepdims=True)"),
        _torch("return x / x.sum(-1, keepdim=True)"),
    ],
    "logarithm": [
        _torch("return torch.log_softmax(x, -1)"),
        _numpy("y = x - x.max(-1, keepdims=True)\nreturn y - np.log(np.exp(y).sum(-1, keepdims=True))"),
    ],
    "clipped": [
        _numpy(f"e = np.exp(np.clip(x, -50, 50))\n{END}"),
        _torch("e = x.clamp(-88, 88).exp()\nreturn e / e.sum(-1, keepdim=True)"),
        _numpy(f"e = np.exp(np.minimum(x, 80))\n{END}"),
    ],
    "epsilon": [
        _numpy("e = np.exp(x - x.max(-1, keepdims=True))\nreturn e / (e.sum(-1, keepdims=True) + 1e-6)"),
        _torch("e = (x - x.amax(-1, keepdim=True)).exp()\nreturn e / (1e-12 + e.sum(-1, keepdim=True))"),
        _numpy("e = np.exp(x - x.max(-1, keepdims=True))\nreturn e / (e.sum(-1, keepdims=True) + 1e-3)"),
    ],
    "one_axis_only": [
        "import math\n"
        + SOFTMAX("m = max(x)\ne = [math.exp(v - m) for v in x]\ns = sum(e)\nreturn [v / s for v in e]"),
        _numpy("(n,) = x.shape\ne = np.exp(x - x.max())\nreturn e / e.sum()"),
    ],
    "two_axes_only": [
        _numpy("e = np.exp(x - x.max(axis=1)[:, None])\nreturn e / e.sum(axis=1)[:, None]"),
        _torch("return torch.softmax(x, dim=1)"),
        "import math\n"
        + SOFTMAX("""
        made = []
        for row in x:
            e = [math.exp(v - max(row)) for v in row]
            made.append([v / sum(e) for v in e])
        return made
        """),
    ],
    "changed": [
        _numpy("x -= x.max(-1, keepdims=True)\nnp.exp(x, out=x)\nx /= x.sum(-1, keepdims=True)\nreturn x"),
        _torch("x -= x.amax(-1, keepdim=True)\nreturn x.softmax(-1)"),
    ],
    "none": [_numpy("e = np.exp(x - x.max())\ne / e.sum()")],
    "low_precision": [_numpy("y = x.astype(np.float64)\ny = y - y.max(-1, keepdims=True)\n"
                             "e = np.exp(y)\nreturn (e / e.sum(-1, keepdims=True)).astype(np.float16)"),
                      _torch("return x.float().softmax(-1)")],
}  # fmt: skip

BOTH = {
    ("no_maximum", "wrong_axis"): _numpy("return np.exp(x) / np.exp(x).sum(axis=0)"),
    ("no_maximum", "whole_softmax"): _torch("return x.exp() / x.exp().sum()"),
    ("no_maximum", "no_sum"): _numpy("return np.exp(x)"),
    ("whole_maximum", "wrong_axis"): _numpy("e = np.exp(x - np.max(x))\nreturn e / sum(e)"),
}
