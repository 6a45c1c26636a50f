"""Every random experiment can be asked for other seeds: its random numbers come from a setting, not from a literal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "attnbook" / "experiments"
SEEDED = {"manual_seed", "default_rng", "Random", "seed"}
"""What starts random numbers, in torch, NumPy and Python."""


def typed_seeds(source: str) -> list[int]:
    """The lines on which random numbers are started from a literal, or from nothing at all."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg == "seed"]
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in SEEDED:
            given.append(ast.Tuple(node.args))
        if any(not any(isinstance(part, ast.Name) for part in ast.walk(value)) for value in given):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_seeds_come_from_settings(path: Path):
    """`nox -s seeds` can move them."""
    assert typed_seeds(path.read_text(encoding="utf-8")) == []


def test_a_typed_seed_is_found():
    """In each library's way; what comes from a name is fine."""
    bad = "torch.Generator().manual_seed(3)\nnp.random.default_rng()\nrandom.Random(0)\ntorch.manual_seed(1 + 2)\n"
    bad += "Transformer(11, seed=0)\n"
    assert typed_seeds(bad) == [1, 2, 3, 4, 5]
    assert (
        typed_seeds("Transformer(11, seed=seed + 1)\ntorch.Generator().manual_seed(seed + 1)\ndefault_rng([seed, 3])\n")
        == []
    )
