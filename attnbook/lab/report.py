"""What the check says: for a terminal, for a notebook, for a program."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnbook.lab.judge import Finding
from attnbook.lab.step import Argument, Array, Given
from attnbook.lab.texts import Language, say, texts
from attnbook.lab.wrapping import columns, fitted

SHOWN = 40
"""Numbers of an array that are shown; of a larger one its shape."""

UNSHOWN = ("unwritten", "unwritten_import", "missing", "unavailable")
"""Findings that say nothing of the input at which they came up."""

PRINTED = 10
"""Lines shown of what the reader's function printed."""


@dataclass(frozen=True)
class Result:
    """One function of the step: what is wrong with it, or None.

    part: the key of its part, where it is tried in two. told: what a driver told of a function that is right.
    """

    function: str
    finding: Finding | None
    part: str = ""
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What a check found. `print(report)` in a terminal; a notebook shows it by itself.

    step: its key. results: of the step's functions in order. printed: the end of what the reader's code printed.
    seconds: that the check took.
    """

    step: str
    lang: Language
    results: tuple[Result, ...]
    printed: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every function is right."""
        return all(result.finding is None for result in self.results)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The names of all mistakes found, in order."""
        return tuple(name for result in self.results if result.finding for name in result.finding.mistakes)

    def __str__(self) -> str:
        blocks = [self.heading(), *("\n".join(self._told(result)) for result in self.results)]
        if self.printed.strip() and not self.ok:
            lines = self.printed.strip().splitlines()[-PRINTED:]
            blocks.append("\n".join([say(self.lang, "report.printed") + ":", *(f"  | {line}" for line in lines)]))
        return "\n".join(blocks)

    __repr__ = __str__  # a prompt of Python, or of IPython in a terminal, shows a last value so

    def _repr_html_(self) -> str:
        return f'<pre class="attnbook-lab" lang="{self.lang}">{html.escape(str(self))}</pre>'

    def heading(self) -> str:
        """The step's key and title."""
        kind = "step" if self.step.isdigit() else "capstone" if self.step == "capstone" else "exercise"
        return say(self.lang, f"report.{kind}", step=self.step, title=texts(self.step).title(self.lang))

    def _told(self, result: Result) -> Iterator[str]:
        finding, name = result.finding, result.function
        if result.part:
            name = f"{name} ({texts(self.step).part(result.part, self.lang)})"
        if finding is None:
            yield f"✓ {name}: {say(self.lang, 'report.right')}"
            if result.told:
                for line in texts(self.step).passed(result.part, self.lang, **result.told).splitlines():
                    yield from (f"  {part}" for part in fitted(line, 2))
            return
        yield f"{'–' if finding.mistakes == ('unavailable',) else '✗'} {name}"
        if len(finding.mistakes) > 1:
            yield f"  {say(self.lang, 'report.together')}"
        for name in finding.mistakes:
            for line in message(self.step, name, finding, self.lang).splitlines():
                yield from (f"  {part}" for part in fitted(line, 2))
        yield from (f"  {line}" for line in self._shown(finding))
        for name in finding.mistakes:
            if (page := texts(self.step).page(name)) is not None:
                yield f"  {say(self.lang, 'report.page')}: {_address(page)}"

    def _shown(self, finding: Finding) -> Iterator[str]:
        """The input, the right answer, and what came instead."""
        case, outcome, expected = finding.case, finding.outcome, finding.expected
        if case is None or outcome is None or expected is None or finding.mistakes[0] in UNSHOWN:
            return
        yield f"{say(self.lang, 'report.smallest')}:"
        for name, argument in zip(case.names, case.arguments, strict=True):
            yield from _named(name, shown(argument))
        yield from _named(say(self.lang, "report.expected"), shown(expected))
        if outcome.value is None:
            return
        yield from _named(say(self.lang, "report.actual"), shown(outcome.value))
        if expected.size > SHOWN and outcome.value.shape == expected.shape:
            place = np.unravel_index(_worst(expected, outcome.value), expected.shape)
            yield "  " + say(
                self.lang, "report.largest", place=[int(i) for i in place],
                expected=shown(expected[place]), actual=shown(outcome.value[place]),
            )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON's types; numbers that JSON lacks (inf, nan) are strings."""
        return {
            "step": self.step,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "functions": [
                {
                    "name": result.function,
                    "part": result.part,
                    "ok": result.finding is None,
                    "told": dict(result.told),
                    **_found(self, result.finding),
                }
                for result in self.results
            ],
            "printed": self.printed,
        }


def message(step: str, name: str, finding: Finding, lang: Language) -> str:
    """What a mistake is, in one or two sentences."""
    details = dict(finding.details)
    if "line" in details:  # languages that put spaces between words put one before a bracket
        where = say(lang, "report.cell_line" if "cell" in details else "report.line", **details)
        details["line"] = (" " if lang == "en" else "") + where
    details.setdefault("line", "")
    if finding.expected is not None and finding.outcome is not None and finding.outcome.value is not None:
        kinds = name in ("kind", "low_precision")
        expected, value = finding.expected, finding.outcome.value
        details.setdefault("expected", _kind(expected) if kinds else str(expected.shape))
        details.setdefault("actual", finding.outcome.dtype if kinds else str(value.shape))
    return texts(step).mistake(name, lang, **details)


def _found(report: Report, finding: Finding | None) -> dict[str, Any]:
    if finding is None:
        return {}
    case, outcome = finding.case, finding.outcome
    pages = [texts(report.step).page(name) for name in finding.mistakes]
    return {
        "mistakes": list(finding.mistakes),
        "messages": [message(report.step, name, finding, report.lang) for name in finding.mistakes],
        "pages": [page for page in pages if page is not None],
        "details": dict(finding.details),
        "input": None if case is None
        else {name: plain(value) for name, value in zip(case.names, case.arguments, strict=True)},
        "expected": None if finding.expected is None else plain(finding.expected),
        "returned": None if outcome is None or outcome.value is None else plain(outcome.value),
    }  # fmt: skip


def plain(value: Argument) -> Any:
    """A value for JSON: nested lists, and strings for numbers that JSON lacks."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, complex | Given) or (isinstance(value, float) and not np.isfinite(value)):
        return str(value)
    return value


def shown(value: Argument | np.generic) -> str:
    """A value as people read it: four digits; of a large array its shape."""
    if isinstance(value, np.ndarray) and value.size > SHOWN:
        return f"({', '.join(map(str, value.shape))}) {value.dtype.name}"
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, suppress_small=_plain_range(value), separator=", ")
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)


def _plain_range(value: Array) -> bool:
    """Whether no number would become 0 by leaving its exponent out."""
    if value.dtype.kind != "f":
        return True
    return bool((np.abs(value[np.isfinite(value) & (value != 0)]) >= 1e-4).all())


def _named(name: str, text: str) -> Iterator[str]:
    first, *rest = text.splitlines()
    yield f"  {name} = {first}"
    # Below each other in a terminal, where an ideograph is as wide as two letters.
    yield from (" " * (columns(name) + 5) + line for line in rest)


def _kind(value: Array) -> str:
    return {"f": "float", "i": "int", "b": "bool"}.get(value.dtype.kind, value.dtype.name)


def _worst(expected: Array, value: Array) -> int:
    difference = np.abs(expected.astype(np.float64) - value)
    return int(np.argmax(np.where(np.isnan(difference), np.inf, difference)))


def _address(page: str) -> str:
    file, _, label = page.partition("#")
    return f"{file}.html#{label}" if label else f"{file}.html"
