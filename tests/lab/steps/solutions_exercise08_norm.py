"""Right and wrong solutions of chapter 8's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

NORM = function("layer_norm(x, gamma, beta, eps)")


def numpy_norm(
    mean: str = "x.mean(axis=1, keepdims=True)",
    variance: str = "((x - mean) ** 2).mean(axis=1, keepdims=True)",
    z: str = "(x - mean) / np.sqrt(variance + eps)",
    end: str = "z * gamma + beta",
) -> str:
    """The solution in four lines, each of which may be another."""
    return with_numpy(NORM(f"mean = {mean}\nvariance = {variance}\nz = {z}\nreturn {end}"))


def torch_norm(correction: int = 0, dim: str = "-1", below: str = "(variance + eps).sqrt()") -> str:
    """The same with torch's own variance."""
    return with_torch(
        NORM(f"""
        mean = x.mean({dim}, keepdim=True)
        variance = x.var({dim}, correction={correction}, keepdim=True)
        return (x - mean) / {below} * gamma + beta
        """)
    )


LOOP = """
import math
def layer_norm(tokens, gamma, beta, eps):
    out = []
    for token in tokens:
        token = [float(c) for c in token]
        mean = sum(token) / len(token)
        variance = sum((c - mean) ** 2 for c in token) / {n}
        out.append([(c - mean) / {below} * float(g) + float(b) for c, g, b in zip(token, gamma, beta)])
    return out
"""

RIGHT = {
    "numpy": numpy_norm(),
    "var": numpy_norm(variance="x.var(axis=-1, keepdims=True)"),
    "torch": torch_norm(),
    "torch's own": with_torch(NORM("return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)")),
    "loops": LOOP.format(n="len(token)", below="math.sqrt(variance + eps)"),
    "one pass in float64": with_numpy(
        NORM("""
        y = x.astype(np.float64)
        mean = y.mean(1, keepdims=True)
        variance = (y ** 2).mean(1, keepdims=True) - mean ** 2
        return (y - mean) / np.sqrt(variance + eps) * gamma + beta
        """)
    ),
    "einsum": with_numpy(
        NORM("""
        c = x - np.einsum('td->t', x)[:, None] / x.shape[1]
        return c * (np.einsum('td,td->t', c, c)[:, None] / x.shape[1] + eps) ** -0.5 * gamma + beta
        """)
    ),
    "row by row": """
import numpy as np
def layer_norm(rows, scale, shift, small):
    return np.stack([scale * (r - np.mean(r)) / (np.var(r) + small) ** 0.5 + shift for r in rows])
""",
    "transposed": with_numpy(NORM("y = x.T\nreturn ((y - y.mean(0)) / np.sqrt(y.var(0) + eps)).T * gamma + beta")),
    "an unbiased variance made right": torch_norm(
        correction=1, below="(variance * (1 - 1 / x.shape[1]) + eps).sqrt()"
    ),
    "Welford in float32": with_numpy(
        NORM("""
        out = np.empty_like(x)
        for i, row in enumerate(x):
            mean, squares = np.float32(0), np.float32(0)
            for n, c in enumerate(row, 1):
                step = c - mean
                mean = mean + step / np.float32(n)
                squares = squares + step * (c - mean)
            out[i] = (row - mean) / np.sqrt(squares / np.float32(n) + eps) * gamma + beta
        return out
        """)
    ),
    "one pass, shifted": with_numpy(
        NORM("""
        y = x - x[:, :1]
        variance = (y * y).mean(1, keepdims=True) - y.mean(1, keepdims=True) ** 2
        return (y - y.mean(1, keepdims=True)) / np.sqrt(variance + eps) * gamma + beta
        """)
    ),
}  # fmt: skip

WRONG = {
    "one_pass": [
        numpy_norm(variance="(x ** 2).mean(axis=1, keepdims=True) - mean ** 2"),
        with_torch(
            NORM("""
            m = x.mean(1, keepdim=True)
            v = (x * x).mean(1, keepdim=True) - m * m
            return (x - m) * torch.rsqrt(v + eps) * gamma + beta
            """)
        ),
    ],
    "over_tokens": [
        numpy_norm(mean="x.mean(axis=0)", variance="x.var(axis=0)"),
        torch_norm(dim="0"),
    ],
    "over_everything": [
        numpy_norm(mean="x.mean()", variance="x.var()"),
        with_torch(NORM("return torch.nn.functional.layer_norm(x, x.shape, eps=eps) * gamma + beta")),
    ],
    "unbiased": [
        torch_norm(correction=1),
        numpy_norm(variance="x.var(axis=1, ddof=1, keepdims=True)"),
        LOOP.format(n="(len(token) - 1)", below="math.sqrt(variance + eps)"),
    ],
    "eps_outside": [
        numpy_norm(z="(x - mean) / (np.sqrt(variance) + eps)"),
        torch_norm(below="(x.std(-1, correction=0, keepdim=True) + eps)"),
        LOOP.format(n="len(token)", below="(math.sqrt(variance) + eps)"),
    ],
    "no_eps": [
        numpy_norm(z="(x - mean) / np.sqrt(variance)"),
        torch_norm(below="variance.sqrt()"),
        LOOP.format(n="len(token)", below="math.sqrt(variance)"),
    ],
    "no_mean": [
        with_numpy(NORM("return x / np.sqrt((x ** 2).mean(1, keepdims=True) + eps) * gamma + beta")),
        with_torch(NORM("return torch.nn.functional.rms_norm(x, x.shape[-1:], gamma, eps) + beta")),
    ],
    "no_root": [
        numpy_norm(z="(x - mean) / (variance + eps)"),
        torch_norm(below="(variance + eps)"),
    ],
    "no_gamma": [
        numpy_norm(end="z + beta"),
        with_torch(NORM("return torch.nn.functional.layer_norm(x, x.shape[-1:], None, beta, eps)")),
    ],
    "no_beta": [
        numpy_norm(end="gamma * z"),
        with_torch(NORM("return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, None, eps)")),
    ],
    "beta_scaled": [
        numpy_norm(end="gamma * (z + beta)"),
        with_torch(NORM("return (torch.nn.functional.layer_norm(x, x.shape[-1:], None, None, eps) + beta) * gamma")),
    ],
}  # fmt: skip
