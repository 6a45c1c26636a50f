"""Angles of RoPE calculated in few bits: how wrong is the cosine, and which positions become the same?

An angle is a position times a speed. A number of p bits holds it to about one part in 2^p, and the cosine asks for the
angle to a fraction of a radian, however large it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.measure import experiment, measure
from attnbook.reference import rope_cos_sin

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@experiment
def run(
    head_dim: int = 128,
    theta: float = 10000.0,
    near: int = 2048,
    counted: int = 4096,
    far: int = 131_072,
    farthest: int = 2**20,
) -> dict[str, Any]:
    """Cosines of all pairs of a head at many positions, against float64."""
    measure("position.far", far)
    measure("position.near", near)
    measure("position.positions_counted", counted)
    at_2048, around = torch.tensor([near]), torch.arange(1, counted)
    for name, dtype in DTYPES.items():
        measure(f"position.{name}_error_2048", _error(at_2048, head_dim, theta, dtype).max())
        kept = set(torch.arange(counted).to(dtype).tolist())
        measure(f"position.{name}_distinct", len(kept))
    before_far = torch.arange(far - 1024, far)
    measure("position.float32_error_far", _error(before_far, head_dim, theta, torch.float32).max())

    many = torch.cat([torch.arange(0, farthest, 997), before_far, torch.tensor([near, farthest])])
    ours = rope_cos_sin(many, head_dim, theta=theta)[0].double() - _cosine(many, head_dim, theta)
    measure("position.ours_error", ours.abs().max())
    measure("position.farthest", farthest)
    halves = rope_cos_sin(around, head_dim, theta=theta, dtype=torch.bfloat16)[0].double()
    measure("position.rounded_cosine_error", (halves - _cosine(around, head_dim, theta)).abs().max())

    grid = torch.tensor(sorted({round(2 ** (i / 7)) for i in range(120)}))
    errors = {name: _error(grid, head_dim, theta, dtype).amax(1) for name, dtype in DTYPES.items()}
    return {"positions": grid, "errors": errors}


def _cosine(positions: Tensor, head_dim: int, theta: float) -> Tensor:
    """In float64 throughout: (t, head_dim / 2)."""
    speed = torch.tensor([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)], dtype=torch.float64)
    return (positions.double()[:, None] * speed).cos()


def _error(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> Tensor:
    """|cosine − cosine| where position, speed and angle are numbers of that dtype, (t, head_dim / 2).

    The cosine itself is taken exactly: what is left is the angle's doing.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    speed = (theta**-exponent).to(dtype)
    angle = positions.to(dtype)[:, None] * speed
    return (angle.double().cos() - _cosine(positions, head_dim, theta)).abs()
