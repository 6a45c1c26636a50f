"""Does inline code or a formula state a result? Definitions may stand there (`d = 64`), results belong into a claim.

The rule, by form alone:

- a number with no name to it is a result: `0.98`, `= 8886110`, `[0.87, 0.13]` (but whole
  numbers in brackets, `(2, 3)`, are a shape or an input);
- a number beside ≈ is a result: `x ≈ 3`;
- a number beside = or an inequality is a result when the other side is computed: `softmax(x)[0] = 0.98`,
  `max(error) < 1e-6`, `2^{17} = 131072`. It is a definition when the other side is a name: `d = 64`, `d_k = 8`; and a
  law when the number is 0 or 1: `w.sum() == 1`.
"""

from __future__ import annotations

import re

from attnbook.claims.numerals import LANGUAGES, Unreadable, read
from attnbook.claims.numerals.digits import fold

_LATEX = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?s)\\begin\{([a-z]*matrix|cases|array)\}.*?\\end\{\1\}", " matrix "),
        (r"\\\\\s*&?\s*(?==|≈|\\approx|\\[lg]e)", " "),  # a chain of equations over several lines
        (r"\\(?:begin|end|tag|label)\{[^{}]*\}", ""),
        (r"\\(?:mathrm|text|mathbf|mathit|mathsf|operatorname|boxed|textbf)\s?\{([^{}]*)\}", r"\1"),
        (r"\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}", r"\1/\2"),
        (r"\\(?:approx|simeq|sim|fallingdotseq|doteq|thickapprox|cong)(?![A-Za-z])", "≈"),
        (r"\\leq?(?:slant)?(?![A-Za-z])", "≤"),
        (r"\\geq?(?:slant)?(?![A-Za-z])", "≥"),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:to|rightarrow|longrightarrow|mapsto|Rightarrow)(?![A-Za-z])", "→"),
        (r"\\times(?![A-Za-z])", "×"),
        (r"\\(?:left|right|big|Big|displaystyle|quad|qquad)(?![A-Za-z])", " "),
        (r"\{,\}", ","),
        (r"\\%", "%"),
        (r"\^\{([-+]?[0-9]+)\}", r"^\1"),
        (r"\\\\", ";"),
        (r"\\[,;:! ]", " "),
        (r"[&$]", " "),
    )
)
_RELATION = re.compile(r"≈|≒|≃|≅|∼|~=|:=|==|!=|<=|>=|->|=>|[=<>≤≥≠→]")
_NEARLY = frozenset(["≈", "≒", "≃", "≅", "∼", "~="])
_STATES = _NEARLY | frozenset(["=", "==", "<", ">", "<=", ">=", "≤", "≥", "->", "=>", "→"])
_NAME = re.compile(r"[^\W0-9\s]*\\?[^\W0-9][\w.'*]*(?:_\{[^{}]*\}|_\\?\w+|\\_\w+)*", re.UNICODE)
_LAWS = ("0", "1", "-1")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_LOOSE_NUMBER = re.compile(
    r"[-+±~]?\s?(?:[0-9][0-9_,]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+|\s?[×*]\s?10(?:\^|\*\*)\(?[-+]?[0-9]+\)?)?\s?[A-Za-z%]{0,4}"
)


def states_result(code: str, language: str = "en") -> bool:
    """Does a piece of inline code or a formula (LaTeX) state a result, in the sense of this module's rule?"""
    return any(_states(part) for part in _split(without_latex(code), ",;\n#"))


def without_latex(code: str) -> str:
    """Code or a formula with the characters that LaTeX's commands stand for: × for times, % for an escaped %."""
    plain = fold(code).strip().strip("`")
    for pattern, replacement in _LATEX:
        plain = pattern.sub(replacement, plain)
    return plain


def _states(statement: str) -> bool:
    sides, relations = _sides(statement)
    if len(sides) == 1:
        return _is_number(sides[0]) or _is_list_of_reals(sides[0])
    for index, relation in enumerate(relations):
        left, right = sides[index], sides[index + 1]
        if relation not in _STATES or not (_is_number(left) or _is_number(right)):
            continue
        number, others = (right, sides[: index + 1]) if _is_number(right) else (left, sides[index + 1 :])
        if relation in _NEARLY or (number is right and not left):
            return True
        if number not in _LAWS and any(map(_is_computed, others)):
            return True
    return False


def _sides(statement: str) -> tuple[list[str], list[str]]:
    """The sides of a chain of relations, and the relations between them; brackets are not looked into."""
    sides, relations, depth, start = [], [], 0, 0
    position = 0
    while position < len(statement):
        character = statement[position]
        depth += (character in "([{") - (character in ")]}")
        relation = _RELATION.match(statement, position) if depth <= 0 else None
        if relation is None:
            position += 1
            continue
        sides.append(statement[start:position].strip())
        relations.append(relation[0])
        start = position = relation.end()
    return [*sides, statement[start:].strip()], relations


def _split(text: str, separators: str) -> list[str]:
    """The parts of a text between separators that stand in no brackets; a comma between digits is no separator."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        among_digits = character == "," and re.match(r"[0-9],[0-9]{3}(?![0-9])", text[max(0, position - 1) :])
        if character in separators and depth <= 0 and not among_digits:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _is_number(side: str) -> bool:
    side = side.strip("\"' ")
    if not re.search(r"[0-9]", side):
        return False
    if _LOOSE_NUMBER.fullmatch(side):
        return True
    for language in LANGUAGES:
        try:
            read(side, language)
        except Unreadable:
            continue
        return True
    return False


def _is_list_of_reals(side: str) -> bool:
    if len(side) < 2 or side[0] not in "([{" or side[-1] not in ")]}":
        return False
    parts = [part for part in _split(side[1:-1], ",;") if part.strip()]
    return (
        bool(parts)
        and all(
            _is_number(part) or _is_list_of_reals(part.strip()) or re.fullmatch(r"\s*[-+]?(?:inf|nan|∞)\s*", part)
            for part in parts
        )
        and any(re.search(r"[0-9]\.[0-9]|[0-9][eE]-", part) for part in parts)
    )


def _is_computed(side: str) -> bool:
    return bool(side) and not _NAME.fullmatch(side) and not _OPTION.fullmatch(side)
