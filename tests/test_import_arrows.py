"""Which room may import which: the sources are read, also the imports inside functions, and any other arrow fails."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "attnbook"

# The arrows. A room is a file or a folder directly below the package; "" is the package's own __init__ and __main__.
# `shapes`, `shapes_moe` and `errors` are open to everyone but claims, a room is always open to itself.
BASE = {"shapes", "shapes_moe", "errors"}
ARROWS: dict[str, set[str]] = {
    "": {
        *("errors", "measure", "api", "reference", "tiled", "costs", "probes", "experiments"),
        *("integrations", "kernels", "cli"),
    },
    "errors": set(),
    "shapes": {"errors"},
    "shapes_moe": {"errors", "shapes"},
    "typed": set(),
    "measure": {"typed"},
    "records": {"measure"},
    "reference": BASE,
    "tiled": BASE,
    "kernels": BASE,
    "api": BASE | {"reference", "tiled", "kernels", "parallel"},
    "costs": BASE,
    "models": BASE | {"reference", "api"},
    "probes": {"errors"},
    "experiments": BASE | {"measure", "records", "reference", "tiled", "kernels", "api", "models", "costs", "probes"},
    "claims": {"measure"},
    "bench": BASE | {"api", "tiled", "reference", "kernels", "costs", "records", "models"},
    # The pages of the lab show exercises, which are made from its solutions: imported where one is shown.
    "bookkit": BASE | {"measure", "records", "claims", "lab"},
    "integrations": BASE | {"api", "tiled"},
    "parallel": BASE | {"api", "tiled"},
    "lab": BASE | {"measure", "experiments", "reference", "probes", "models", "costs"},
    "cli": BASE | {"measure", "records", "claims", "experiments", "costs", "probes", "lab", "kernels", "bench"},
}

# Packages of others that a room may not import, not even lazily. Where nothing is said, anything goes.
FORBIDDEN: dict[str, set[str]] = {
    "": {"torch", "numpy", "triton", "matplotlib", "sphinx", "docutils"},
    "errors": {"torch", "numpy", "triton"},
    "typed": {"torch", "numpy", "triton", "IPython", "sphinx"},
    "measure": {"torch", "numpy", "triton", "IPython", "sphinx"},
    "records": {"torch", "numpy", "triton", "sphinx"},
    "costs": {"torch", "triton"},
    "reference": {"sphinx", "matplotlib", "triton"},
    "experiments": {"sphinx", "docutils", "matplotlib", "myst_nb", "myst_parser"},
    "probes": {"sphinx", "matplotlib"},
}
# The only packages of others that claims may import at all, beside the standard library.
CLAIMS_MAY = {"sphinx", "docutils", "babel", "myst_parser", "myst_nb", "nbformat"}


class Arrow(NamedTuple):
    """One import: where it stands, the room it stands in, what it imports."""

    file: str
    line: int
    room: str
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.room or 'the package itself'} imports {self.module}"


def arrows(root: Path) -> Iterator[Arrow]:
    """Every import of every source below `root`, whose name is the package's name; relative ones resolved."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        room = "" if parts[0] in ("__init__", "__main__") else parts[0]
        package = (root.name, *parts[:-1])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in imported(node, package):
                yield Arrow(f"{root.name}/{path.relative_to(root)}", getattr(node, "lineno", 0), room, module)


def imported(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """The dotted modules that a statement imports; `importlib.import_module("…")` and `__import__("…")` too."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = ".".join([*package[: len(package) - level + 1], *([module] if module else [])]) if level else module
            # `from attnbook import measure` may mean the room, so each name counts as a module.
            return [f"{base}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.JoinedStr(values=[ast.Constant(value=str(name)), *_]), *_],
        ):
            return [name.rstrip(".")]  # f"attnbook.cli.{name}": the fixed part says which room
    return []


def wrong(root: Path) -> list[str]:
    """The arrows that the tables above do not allow, each with its place."""
    return [str(arrow) for arrow in arrows(root) if not allowed(arrow, root.name)]


def allowed(arrow: Arrow, package: str) -> bool:
    top, *rest = arrow.module.split(".")
    if top != package:
        if arrow.room == "claims" and not is_standard(top):
            return top in CLAIMS_MAY
        return top not in FORBIDDEN.get(arrow.room, set())
    if not rest:
        return True
    if arrow.room not in ARROWS:
        return False  # a new room says in the table whom it may import
    target = rest[0]
    if target not in ARROWS:
        # `from attnbook import softmax`: a public name, which lives in some room; inside the package say which.
        return False
    return target == arrow.room or target in ARROWS[arrow.room]


def is_standard(top: str) -> bool:
    import sys

    return top in sys.stdlib_module_names or top == "__future__"


def test_no_arrow_but_those_of_the_table():
    """The package's sources import only along the arrows."""
    assert wrong(PACKAGE) == []


def test_every_room_is_in_the_table():
    """A new room is added to the table before it is imported or imports."""
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {"__init__", "__main__"} <= set(ARROWS)


def test_the_sources_are_really_read():
    """Known imports are among those found, also one inside a function and one by a computed name."""
    found = {(arrow.room, arrow.module) for arrow in arrows(PACKAGE)}
    assert ("", "attnbook.measure.measure") in found
    assert ("cli", "attnbook.measure.Findings") in found
    assert ("cli", "attnbook.experiments") in found


SAMPLES = {
    "claims/judge.py": ("from attnbook.reference import softmax", "claims imports attnbook.reference.softmax"),
    "claims/domain.py": ("import numpy as np", "claims imports numpy"),
    "claims/gate.py": ("from ..bookkit.site import page", "claims imports attnbook.bookkit.site.page"),
    "claims/lazy.py": (
        "def late():\n    from attnbook import errors",
        "claims imports attnbook.errors",
    ),
    "tiled/forward.py": (
        "def late():\n    import attnbook.reference.softmax",
        "tiled imports attnbook.reference.softmax",
    ),
    "kernels/flash/api.py": ("from ...tiled import plan", "kernels imports attnbook.tiled.plan"),
    "reference/masks.py": ("from .. import kernels", "reference imports attnbook.kernels"),
    "measure.py": ("import torch", "measure imports torch"),
    "costs/flops.py": ("if True:\n    import torch.nn", "costs imports torch.nn"),
    "experiments/bad.py": ("from attnbook.claims import judge", "experiments imports attnbook.claims.judge"),
    "experiments/public.py": ("from attnbook import softmax", "experiments imports attnbook.softmax"),
    "probes/leak.py": ("from attnbook.reference import softmax", "probes imports attnbook.reference.softmax"),
    "bookkit/late.py": (
        "import importlib\nimportlib.import_module('attnbook.experiments.names')",
        "bookkit imports attnbook.experiments.names",
    ),
    "bookkit/computed.py": (
        "import importlib\nimportlib.import_module(f'attnbook.experiments.{1}')",
        "bookkit imports attnbook.experiments",
    ),
    "newroom/x.py": ("from attnbook import measure", "newroom imports attnbook.measure"),
    "__init__.py": ("import torch", "the package itself imports torch"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_wrong_arrow_is_found(name, tmp_path):
    """The check can fail: each sample holds one forbidden import and it is reported with file and line."""
    source, message = SAMPLES[name]
    path = tmp_path / "attnbook" / name
    path.parent.mkdir(parents=True)
    path.write_text(source + "\n")
    found = wrong(tmp_path / "attnbook")
    assert len(found) == 1
    place, _, said = found[0].partition(": ")
    assert said == message
    assert place == f"attnbook/{name}:{len(source.splitlines())}"
