"""Telling a typed number from a computed one, from the source of the call that was handed it."""

from __future__ import annotations

import ast
import sys

import pytest

from attnbook.typed import argument, is_typed


def typed(expression: str, source: str = "") -> bool:
    """Is the expression, as it stands in the source, typed?"""
    return is_typed(ast.parse(expression, mode="eval").body, source)


def handed(value: object = None, other: object = None) -> str | None:
    """What the caller wrote for `value`."""
    found = argument(sys._getframe(1), "value", 0)
    return None if found is None else ast.unparse(found[0])


@pytest.mark.parametrize("expression", ["3", "0.87", "True", "1j", "-3", "+0.5", "not 1"])
def test_a_literal_is_typed(expression: str):
    """A constant, also with its sign."""
    assert typed(expression)


@pytest.mark.parametrize("expression", ["2**3", "1 - 0.13", "(1 + 2) * -3 / 7", "1 < 2", "1 <= 2 < 3"])
def test_arithmetic_on_literals_is_typed(expression: str):
    """Whoever writes 2**3 has typed 8; comparisons too."""
    assert typed(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "float(3)", "int(2.5)", "bool(1)", "Fraction(1, 3)", "round(0.8712, 2)", "abs(-3)", "int(float(3))",
        "np.float64(0.87)", "np.int32(7)", "np.asarray(3)", "torch.tensor(0.87, dtype=torch.float64)",
    ],
)  # fmt: skip
def test_a_literal_converted_is_typed(expression: str):
    """A conversion makes no number but the one it is given."""
    assert typed(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "f()", "f(3)", "math.sqrt(4)", "len('abc')", "max(1, 2)", "x.size", "x[0]", "[1][0]", "3 if x else 4",
        "float()", "float(x)", "float(f(3))", "3 * f()", "-f()", "1 < f()", "f() < 1", "round(0.87, f())",
    ],
)  # fmt: skip
def test_what_is_called_for_is_computed(expression: str):
    """One computed part is enough."""
    assert not typed(expression)


@pytest.mark.parametrize(
    "source",
    [
        "x = 3",
        "x = -2**3 / 7",
        "x = float(3)",
        "x: float = 0.87",
        "x = y = 3",
        "def run():\n    x = 3\n    return x",
        "import torch\nx = torch.tensor(3)\nprint(x)",
    ],
)
def test_a_literal_under_a_name_is_typed(source: str):
    """A name bound once, to a literal, is another way of typing it."""
    assert typed("x", source)
    assert typed("x + 1", source)
    assert not typed("other", source)


@pytest.mark.parametrize(
    "source",
    [
        "x = 3\nx = 4",
        "x = 3\nif f():\n    x = 4",
        "x = 0\nx += 1",
        "x = 0\nfor x in f(): pass",
        "def run(x=3):\n    return x",
        "x = 3\ndef run(x):\n    return x",
        "x = 3\nfrom m import x",
        "x = 3\nfrom m import y as x",
        "x = 3\nwith f() as x: pass",
        "x = 3\n(x := f())",
    ],
)
def test_a_name_given_in_two_places_is_measured(source: str):
    """What a name holds was chosen between them, and choosing is computing."""
    assert not typed("x", source)


@pytest.mark.parametrize("source", ["", "x = f()", "x, y = 1, 2", "for x in (1, 2): pass", "import x", "%time x = 3"])
def test_a_name_for_something_else_is_measured(source: str):
    """Nothing known of it, computed, unpacked, looped over, imported, or in a source that is not Python's."""
    assert not typed("x", source)


def test_the_argument_is_found_by_place_and_by_name():
    """As the call is written, over several lines too, wherever it stands in its line."""
    assert handed(3 + 4) == "3 + 4"
    assert handed(other=1, value=2 * 3) == "2 * 3"
    assert ("約", handed(7))[1] == "7", "columns count bytes"
    found = handed(
        round(0.5),
        other=2,
    )
    assert found == "round(0.5)"
    assert [handed(n) for n in (1, 2)] == ["n", "n"]


def test_without_the_argument_or_its_source_nothing_is_found():
    """A default, what is unpacked, and code that no file holds."""
    assert handed() is None
    assert handed(other=1) is None
    assert handed(**{"value": 3}) is None
    names: dict[str, object] = {"handed": handed}
    exec("found = handed(3)", names)
    assert names["found"] is None


def test_the_source_is_the_module_of_the_call():
    """There the names of an expression are looked up."""

    def source(value: object) -> str:
        found = argument(sys._getframe(1), "value", 0)
        assert found is not None
        return found[1]

    assert source(3).startswith('"""Telling a typed number from a computed one')
