"""Right and wrong solutions of chapter 7's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

ROPE = function("rope(x, positions, base)")
SPEED = "speed = base ** (-2 * np.arange(half) / x.shape[1])"
ANGLE = "angle = positions[:, None] * speed"
TURN = "new = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=1)"


def numpy_rope(
    speed: str = SPEED, angle: str = ANGLE, turn: str = TURN, split: str = "a, b = x[:, :half], x[:, half:]"
) -> str:
    """The solution in five lines, each of which may be another."""
    lines = [
        "half = x.shape[1] // 2",
        speed,
        angle,
        "cos, sin = np.cos(angle), np.sin(angle)",
        split,
        turn,
        "return new",
    ]
    return with_numpy(ROPE("\n".join(lines)))


def torch_rope(rotate: str = "torch.cat([-b, a], 1)", speed: str = "2 / d", positions: str = "positions") -> str:
    """As transformers writes it: x cos + rotate_half(x) sin."""
    return with_torch(
        ROPE(f"""
        d = x.shape[1]
        speed = 1.0 / base ** (torch.arange(d // 2).float() * ({speed}))
        angle = torch.outer({positions}.float(), speed).repeat(1, 2)
        a, b = x.chunk(2, dim=1)
        return x * angle.cos() + {rotate} * angle.sin()
        """)
    )


def loops(first: str = "a * c - b * s", second: str = "a * s + b * c", j: str = "i + d // 2", i: str = "i") -> str:
    """In plain Python."""
    return f"""
import math
def rope(x, positions, base):
    out = [[float(c) for c in row] for row in x]
    for row, p in zip(out, positions):
        d = len(row)
        for i in range(d // 2):
            angle = int(p) * base ** (-2 * i / d)
            c, s = math.cos(angle), math.sin(angle)
            a, b = row[{i}], row[{j}]
            row[{i}] = {first}
            row[{j}] = {second}
    return out
"""


RIGHT = {
    "numpy": numpy_rope(),
    "float32": numpy_rope(
        speed="speed = (1 / base ** (np.arange(half, dtype=np.float32) / np.float32(half))).astype(np.float32)",
        angle="angle = positions.astype(np.float32)[:, None] * speed",
    ),
    "through the logarithm, float32": numpy_rope(
        speed="speed = np.exp(-np.log(np.float32(base)) * np.arange(half, dtype=np.float32) / np.float32(half))",
        angle="angle = np.outer(positions.astype(np.float32), speed).astype(np.float32)",
    ),
    "torch": torch_rope(),
    "loops": loops(),
    "complex": with_numpy(
        ROPE("""
        half = x.shape[1] // 2
        z = x[:, :half] + 1j * x[:, half:]
        z = z * np.exp(1j * np.outer(positions, base ** (-np.arange(half) / half)))
        return np.hstack([z.real, z.imag])
        """)
    ),
    "in place of a copy": with_numpy(
        ROPE("""
        y, d = x.copy(), x.shape[1]
        for n in range(d // 2):
            angle = positions / base ** (2 * n / d)
            y[:, n] = x[:, n] * np.cos(angle) - x[:, n + d // 2] * np.sin(angle)
            y[:, n + d // 2] = x[:, n] * np.sin(angle) + x[:, n + d // 2] * np.cos(angle)
        return y
        """)
    ),
    "matrices": with_torch(
        ROPE("""
        t, d = x.shape
        angle = positions[:, None] * base ** (-2 * torch.arange(d // 2) / d)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).view(t, d // 2, 2, 2)
        return torch.einsum('tnij,tjn->tin', turn, x.view(t, 2, d // 2)).reshape(t, d)
        """)
    ),
    "rotate half": with_numpy(
        ROPE("""
        d = x.shape[-1]
        angle = np.concatenate([np.outer(positions, 1.0 / base ** (np.arange(0, d, 2) / d))] * 2, -1)
        turned = np.concatenate([-x[:, d // 2:], x[:, :d // 2]], -1)
        return x * np.cos(angle) + turned * np.sin(angle)
        """)
    ),
    "polar": with_torch(
        ROPE("""
        d = x.shape[-1]
        speed = torch.pow(torch.tensor(base), -torch.arange(0, d, 2, dtype=torch.float32) / d)
        angle = positions.float()[:, None] * speed
        z = torch.complex(x[:, :d // 2].contiguous(), x[:, d // 2:].contiguous())
        z = z * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([z.real, z.imag], -1)
        """)
    ),
    "a matrix a token": with_numpy(
        ROPE("""
        t, d = x.shape
        turn = np.zeros((t, d, d))
        for p in range(t):
            for i in range(d // 2):
                angle = positions[p] * base ** (-2 * i / d)
                turn[p, i, i] = turn[p, i + d // 2, i + d // 2] = np.cos(angle)
                turn[p, i + d // 2, i] = np.sin(angle)
                turn[p, i, i + d // 2] = -np.sin(angle)
        return np.einsum('tij,tj->ti', turn, x)
        """)
    ),
}

WRONG = {
    "neighbours": [
        numpy_rope(
            split="a, b = x[:, 0::2], x[:, 1::2]",
            turn="new = np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)",
        ),
        loops(i="2 * i", j="2 * i + 1"),
        with_torch(ROPE("""
            z = torch.view_as_complex(x.reshape(len(x), -1, 2))
            angle = positions[:, None] * base ** (-torch.arange(0, x.shape[1], 2) / x.shape[1])
            return torch.view_as_real(z * torch.exp(1j * angle)).flatten(1)
            """)),
    ],
    "backwards": [
        numpy_rope(turn="new = np.concatenate([a * cos + b * sin, b * cos - a * sin], axis=1)"),
        torch_rope(rotate="torch.cat([b, -a], 1)"),
        numpy_rope(angle="angle = -positions[:, None] * speed"),
    ],
    "speed_without_two": [
        numpy_rope(speed="speed = base ** (-np.arange(half) / x.shape[1])"),
        torch_rope(speed="1 / d"),
    ],
    "one_speed": [
        numpy_rope(speed="speed = np.ones(half)"),
        numpy_rope(angle="angle = np.repeat(positions[:, None], half, axis=1)"),
    ],
    "faster_and_faster": [
        numpy_rope(speed="speed = base ** (2 * np.arange(half) / x.shape[1])"),
        torch_rope(speed="-2 / d"),
    ],
    "from_one": [
        numpy_rope(angle="angle = (positions[:, None] + 1) * speed"),
        torch_rope(positions="(1 + positions)"),
    ],
    "from_zero": [
        numpy_rope(angle="angle = np.arange(len(x))[:, None] * speed"),
        torch_rope(positions="torch.arange(x.shape[0])"),
    ],
    "no_minus": [
        numpy_rope(turn="new = np.concatenate([a * cos + b * sin, a * sin + b * cos], axis=1)"),
        torch_rope(rotate="torch.cat([b, a], 1)"),
    ],
    "overwritten": [
        numpy_rope(turn="a = a * cos - b * sin\nnew = np.concatenate([a, a * sin + b * cos], axis=1)"),
        loops(second="row[i] * s + b * c"),
    ],
    "added": [
        numpy_rope(turn="new = np.concatenate([a + cos, b + sin], axis=1)"),
        numpy_rope(turn="new = x + np.hstack([cos, sin])"),
    ],
    "fixed_base": [
        numpy_rope(speed="speed = 10000 ** (-2 * np.arange(half) / x.shape[1])"),
        torch_rope(speed="2 / d").replace("/ base", "/ 10000"),
    ],
    "degrees": [
        numpy_rope(angle="angle = np.radians(positions[:, None] * speed)"),
        numpy_rope(angle="angle = positions[:, None] * speed * np.pi / 180"),
    ],
}  # fmt: skip
