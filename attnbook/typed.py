"""Was a number typed or computed? Told from the source of the call that was handed it. Standard library only."""

from __future__ import annotations

import ast
import functools
import linecache
from types import FrameType

_CONVERSIONS = frozenset(
    {"int", "float", "bool", "Fraction", "round", "abs", "tensor", "array", "asarray"}
    | {f"{kind}{bits}" for kind in ("float", "int") for bits in (16, 32, 64)}
)
"""Calls that make no number but the one they are given."""


def argument(frame: FrameType, name: str, position: int) -> tuple[ast.expr, str] | None:
    """The expression handed over as an argument in the call that a frame is at, and the source around the call.

    The source is a module's or a cell's. None where there is no source, or no such argument.
    """
    call = _call_at(frame)
    if call is None:
        return None
    given = call.args[position] if len(call.args) > position else None
    expression = next((keyword.value for keyword in call.keywords if keyword.arg == name), given)
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    return None if expression is None else (expression, source)


def _call_at(frame: FrameType) -> ast.Call | None:
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, end_line, column, end_column = positions
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    if line is None or end_line is None or column is None or end_column is None or end_line > len(lines):
        return None
    # Columns count UTF-8 bytes, so cut bytes.
    rows = [row.encode() for row in lines[line - 1 : end_line]]
    rows[-1] = rows[-1][:end_column]
    rows[0] = rows[0][column:]
    try:
        expression = ast.parse(b"".join(rows).decode(), mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return None
    return expression if isinstance(expression, ast.Call) else None


def is_typed(node: ast.expr, source: str = "") -> bool:
    """Only constants and arithmetic on them, also converted (`float(…)`) or under a name for them.

    `source` is where such names are looked up: a cell or a module.
    """
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return _is_constant(name, source)
        case ast.UnaryOp(operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.Compare(left=left, comparators=others):
            parts = [left, *others]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[*parts]) if name in _CONVERSIONS:
            pass
        case _:
            return False
    return bool(parts) and all(is_typed(part, source) for part in parts)


@functools.lru_cache(maxsize=256)
def _is_constant(name: str, source: str) -> bool:
    """Is the name bound in one place of the source, to a literal?"""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with a line for IPython in it
        return False
    given = []
    bound = 0
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value) if any(_is_name(target, name) for target in targets):
                given.append(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_name(target, name):
                given.append(value)
            case ast.Name(id=found, ctx=ast.Store()) | ast.arg(arg=found) if found == name:
                bound += 1
            case ast.alias(name=found, asname=other) if name in (found, other):
                return False
    # Given in two places it was chosen between them, and choosing is computing.
    return bound == len(given) == 1 and is_typed(given[0])


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
