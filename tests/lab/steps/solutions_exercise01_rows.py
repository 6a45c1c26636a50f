"""Right and wrong tests of chapter 1's exercise as source text: of each mistake at least two, differently written."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

ROWS = function("rows_sum_to_one(fn)")


def numpy_ones(end: str, t_q: int = 5, t_kv: int = 11, v: str = "np.ones((11, 3))", before: str = "") -> str:
    """A test with random q and k, these sizes and these values, that ends so."""
    return with_numpy(
        ROWS(f"""
        rng = np.random.default_rng(0)
        q, k = rng.standard_normal(({t_q}, 7)), rng.standard_normal(({t_kv}, 7))
        {before}
        out = fn(q, k, {v})
        return {end}
        """)
    )


RIGHT = {
    "chapter": with_torch(
        ROWS("""
        q, k, v = torch.randn(5, 7), torch.randn(11, 7), torch.ones(11, 3)
        return torch.allclose(fn(q, k, v), torch.ones(5, 3))
        """)
    ),
    "numpy": numpy_ones("np.allclose(out, 1)"),
    "float32": with_numpy(
        ROWS("""
        rng = np.random.default_rng()
        q, k = (rng.normal(size=(t, 7)).astype(np.float32) for t in (5, 11))
        out = fn(q, k, np.ones((11, 1), np.float32))
        return abs(out - 1).max() < 1e-5
        """)
    ),
    "identity": numpy_ones("np.allclose(out.sum(-1), 1)", v="np.eye(11)"),
    "shifted values": with_numpy(
        ROWS("""
        rng = np.random.default_rng(3)
        q, k, v = (rng.standard_normal(shape) for shape in ((3, 2), (5, 2), (5, 4)))
        return bool(np.allclose(fn(q, k, v + 100) - fn(q, k, v), 100))
        """)
    ),
    "loops": with_numpy(
        ROWS("""
        q, k = np.random.rand(4, 3), np.random.rand(6, 3)
        for row in fn(q, k, np.ones((6, 1))):
            if abs(row[0] - 1) > 1e-4:
                return False
        return True
        """)
    ),
    "batch, torch, gradients": with_torch(
        ROWS("""
        q = torch.randn(2, 3, 5, 8, requires_grad=True)
        k, v = torch.randn(2, 3, 7, 8), torch.ones(2, 3, 7, 2)
        return ((fn(q, k, v) - 1).abs() < 1e-4).all()
        """)
    ),
    "lists and another name": """
def rows_sum_to_one(attention):
    q = [[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]
    k = [[0.0, 1.0], [1.0, 1.0], [2.0, -1.0], [0.3, 0.7]]
    out = attention(q, k, [[1.0]] * 4)
    return all(abs(float(row[0]) - 1) < 1e-6 for row in out)
""",
    "half precision": with_torch(
        ROWS("""
        q, k, v = torch.randn(5, 8).half(), torch.randn(11, 8).half(), torch.ones(11, 3).half()
        return torch.allclose(fn(q, k, v).float(), torch.ones(5, 3), atol=2e-3)
        """)
    ),
    "as many queries as keys": numpy_ones("np.allclose(out, 1)", t_q=11),
    "0 and 1": numpy_ones("int(np.max(np.abs(out - 1)) < 1e-6)"),
}

WRONG = {
    "columns": [
        numpy_ones("np.allclose(out.sum(0), 1)", v="np.eye(11)"),
        with_torch(
            ROWS("""
            weights = fn(torch.randn(6, 4), torch.randn(6, 4), torch.eye(6))
            return torch.allclose(weights.sum(dim=0), torch.ones(6))
            """)
        ),
    ],
    "blind": [
        numpy_ones("np.allclose(out.mean(), 1)", t_q=11),
        with_numpy(ROWS("return np.allclose(fn(np.ones((4, 2)), np.ones((4, 2)), np.ones((4, 1))), 1)")),
        with_torch(ROWS("return abs(fn(torch.randn(1, 3), torch.randn(1, 3), torch.ones(1, 1)).item() - 1) < 1e-5")),
    ],
    "too_strict": [
        with_numpy(
            ROWS("""
            rng = np.random.default_rng(0)
            q, k = rng.standard_normal((29, 7)).astype(np.float32), rng.standard_normal((31, 7)).astype(np.float32)
            return (fn(q, k, np.ones((31, 1), np.float32)) == 1).all()
            """)
        ),
        with_torch(
            ROWS("""
            torch.manual_seed(0)
            out = fn(torch.randn(29, 7), torch.randn(31, 7), torch.ones(31, 3))
            return torch.equal(out, torch.ones(29, 3))
            """)
        ),
    ],
    "always_true": [
        numpy_ones("out.shape == (5, 3)"),
        numpy_ones("np.isfinite(out).all()"),
        ROWS("return True"),
    ],
    "always_false": [
        numpy_ones("np.allclose(out, 1)", v="rng.standard_normal((11, 3))"),
        with_torch(ROWS("return (fn(torch.randn(5, 7), torch.randn(11, 7), torch.ones(11, 3)).sum(-1) == 1).all()")),
    ],
    "inverted": [
        numpy_ones("not np.allclose(out, 1)"),
        numpy_ones("np.abs(out - 1).max() > 1e-6"),
    ],
    "only_the_formula": [
        numpy_ones(
            "np.allclose(out, w / w.sum(-1, keepdims=True) @ v)",
            v="v",
            before="v = rng.standard_normal((11, 3)); w = np.exp(q @ k.T / np.sqrt(7))",
        ),
        with_torch(
            ROWS("""
            q, k, v = torch.randn(5, 7), torch.randn(11, 7), torch.randn(11, 3)
            told = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
            return torch.allclose(fn(q, k, v), told, atol=1e-5)
            """)
        ),
    ],
    "one_query": [
        numpy_ones("np.allclose(out, 1)", t_q=1),
        with_torch(ROWS("return abs(fn(torch.randn(1, 7), torch.randn(11, 7), torch.ones(11, 1)).item() - 1) < 1e-5")),
    ],
    "one_row": [
        numpy_ones("np.allclose(out[0], 1)"),
        numpy_ones("all(abs(x - 1) < 1e-6 for x in out[:-1, 0])"),
        numpy_ones("np.allclose(out[-1], 1)"),
        numpy_ones("abs(out[2, 1] - 1) < 1e-6"),
    ],
    "average": [
        numpy_ones("np.isclose(out.mean(), 1)"),
        numpy_ones("abs(out[:, 0].sum() - 5) < 1e-6"),
    ],
    "too_loose": [
        numpy_ones("np.allclose(out, 1, atol=0.1)"),
        numpy_ones("(out.round(1) == 1).all()"),
    ],
}  # fmt: skip
