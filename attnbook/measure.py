"""What a measured number is: id, value, unit, kind, spread, and where it came from.

Standard library only, so that claims, costs and the command line can read measurements without numpy or torch. Inside
a Jupyter kernel `measure` also publishes the measurement as an output of the running cell (MIME type `MEASUREMENT`),
which is how a number travels from executed code to the sentence that quotes it, through any cache in between.
"""

from __future__ import annotations

import ast
import contextvars
import functools
import inspect
import linecache
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import FrameType
from typing import Any, Literal, ParamSpec, get_args

MEASUREMENT = "application/vnd.attnbook.measurement+json"
EXPERIMENT = "application/vnd.attnbook.experiment+json"

Kind = Literal["measured", "parameter", "derived", "recorded", "cited"]
Value = bool | int | float | Fraction
P = ParamSpec("P")


@dataclass(frozen=True)
class Measurement:
    """A value that executed code produced, ready to be quoted.

    `unit` is "" for a bare number, "ratio" where per cent, "times" or a fraction make sense, "point" for percentage
    points, or a unit symbol (`B`, `bit`, `FLOP`, `s`, `token`). `spread` is the standard deviation of the reported
    statistic over repeats; None says that the value is not random.
    """

    id: str
    value: Value
    unit: str = ""
    kind: Kind = "measured"
    spread: float | None = None
    quote: bool = True
    """Must some sentence quote it? A measurement made to be quoted and quoted nowhere fails the build."""
    experiment: str = ""
    """Dotted name of the experiment that made it; empty for a value measured directly in a cell."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the experiment was really called with, as `repr` text."""
    source: str = ""
    """For *cited*: where the fact was published. For *recorded*: the record's path."""
    device: str = ""
    date: str = ""
    sources: tuple[str, ...] = ()
    """For *derived*: the ids of the measurements it was computed from."""
    stale: tuple[str, ...] = ()
    """For *recorded*: the source files that changed after the record was made."""

    def as_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` turns back into an equal measurement (NaN and infinities included)."""
        return {
            "id": self.id, "value": _value_to_json(self.value), "unit": self.unit, "kind": self.kind,
            "spread": self.spread, "quote": self.quote, "experiment": self.experiment,
            "settings": dict(self.settings), "source": self.source, "device": self.device, "date": self.date,
            "sources": list(self.sources), "stale": list(self.stale),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """The inverse of `as_json`."""
        fields = dict(data)
        fields["value"] = _value_from_json(fields["value"])
        fields["sources"] = tuple(fields["sources"])
        fields["stale"] = tuple(fields["stale"])
        return cls(**fields)

    def __str__(self) -> str:
        spread = f" (standard deviation {self.spread:.2g})" if self.spread is not None else ""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.id} = {format_value(self.value)}{unit}{spread}"


def format_value(value: Value) -> str:
    """The value as people read it: integers whole, reals at six significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _value_to_json(value: Value) -> dict[str, str]:
    # Text, not a JSON number: JSON has no NaN and no infinities, and loses the difference between 1 and 1.0.
    name = {bool: "boolean", int: "integer", float: "real", Fraction: "rational"}[type(value)]
    return {"type": name, "text": repr(value) if isinstance(value, float) else str(value)}


def _value_from_json(data: Mapping[str, str]) -> Value:
    readers: dict[str, Callable[[str], Value]] = {
        "boolean": lambda text: text == "True", "integer": int, "real": float, "rational": Fraction,
    }  # fmt: skip
    return readers[data["type"]](data["text"])


def plain_value(value: object) -> Value:
    """A Python scalar from a Python, NumPy or torch scalar.

    Raises TypeError for anything else (a string, an array of several elements, a complex number).
    """
    item = getattr(value, "item", None)
    if callable(item):
        try:
            value = item()
        except (ValueError, RuntimeError) as error:
            raise TypeError(f"a measurement is one number or boolean, got {type(value).__name__}: {error}") from error
    if isinstance(value, bool | int | float | Fraction):
        kind = next(t for t in (bool, int, float, Fraction) if isinstance(value, t))
        return kind(value)
    raise TypeError(f"a measurement is one number or boolean, got {type(value).__name__}")


@dataclass(frozen=True)
class _Running:
    """The experiment that is running, so that `measure` can say who measured."""

    name: str
    settings: Mapping[str, str]
    made: list[Measurement]


_running: contextvars.ContextVar[_Running | None] = contextvars.ContextVar("attnbook_experiment", default=None)


def measure(
    id: str,
    value: object,
    *,
    unit: str = "",
    kind: Kind = "measured",
    spread: float | None = None,
    quote: bool | None = None,
    source: str = "",
    device: str = "",
    date: str = "",
    derived_from: Iterable[str | Measurement] = (),
    stale: Iterable[str] = (),
) -> Measurement:
    """Name a value so that a sentence can quote it; in a Jupyter kernel, also publish it in the cell's output.

    `value` is a boolean, integer, real or Fraction, or a NumPy or torch scalar. `quote=False` says that no sentence
    needs to quote it; by default every measurement but a *parameter* must be quoted. A literal handed in is a
    *parameter*, whatever `kind` says: typing a number is not measuring it.

    Raises ValueError for an id that is not dotted words, an unknown kind, a spread that is negative or not finite, a
    *cited* or *recorded* value without a source, a *derived* one without what it was derived from; TypeError for a
    value that is not one number or boolean.
    """
    if not id or not all(part.isidentifier() for part in id.split(".")):
        raise ValueError(f"measurement id {id!r}: expected dotted words such as scaling.max_prob")
    if kind not in get_args(Kind):
        raise ValueError(f"measurement {id}: kind {kind!r} is none of {', '.join(get_args(Kind))}")
    if spread is not None:
        spread = float(spread)
        if not math.isfinite(spread) or spread < 0:
            raise ValueError(f"measurement {id}: spread must be finite and not negative, got {spread}")
    parents = tuple(parent if isinstance(parent, str) else parent.id for parent in derived_from)
    if parents and kind == "measured":
        kind = "derived"
    if kind in ("measured", "derived") and not parents and _value_is_literal(sys._getframe(1)):
        kind = "parameter"
    if kind in ("cited", "recorded") and not source:
        raise ValueError(f"measurement {id}: a {kind} value needs its source")
    if kind == "derived" and not parents:
        raise ValueError(f"measurement {id}: a derived value needs derived_from, the measurements it comes from")
    running = _running.get()
    made = Measurement(
        id, plain_value(value), unit, kind, spread,
        quote=(kind != "parameter") if quote is None else quote,
        experiment=running.name if running else "", settings=running.settings if running else {},
        source=source, device=device, date=date, sources=parents, stale=tuple(stale),
    )  # fmt: skip
    if running:
        running.made.append(made)
    _publish(MEASUREMENT, made.as_json())
    return made


def measure_mean(id: str, samples: Iterable[object], *, unit: str = "", quote: bool | None = None) -> Measurement:
    """Measure the mean of repeats; its spread is the standard deviation of that mean, s/√n.

    Raises ValueError for fewer than two repeats: their spread is unknown.
    """
    values = [float(plain_value(sample)) for sample in samples]
    if len(values) < 2:
        raise ValueError(f"measurement {id}: a mean needs at least 2 repeats, got {len(values)}")
    # A NaN or infinity among the repeats makes the mean one; the claim on it fails, so its spread does not matter.
    finite = all(map(math.isfinite, values))
    spread = statistics.stdev(values) / math.sqrt(len(values)) if finite else None
    return measure(
        id, math.fsum(values) / len(values) if finite else sum(values), unit=unit, spread=spread, quote=quote
    )


@dataclass(frozen=True)
class Findings:
    """What an experiment returns: its measurements, and the arrays that a figure draws."""

    measurements: tuple[Measurement, ...]
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, id: str) -> Value:
        """The measured value with that id; KeyError names the ids that exist."""
        for measurement in self.measurements:
            if measurement.id == id:
                return measurement.value
        known = ", ".join(measurement.id for measurement in self.measurements)
        raise KeyError(f"no measurement {id!r}; this experiment made: {known}")

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def __str__(self) -> str:
        return "\n".join(str(measurement) for measurement in self.measurements)


def experiment(run: Callable[P, Mapping[str, Any] | None]) -> Callable[P, Findings]:
    """Make a function an experiment: whatever it measures carries its name and settings, and it returns `Findings`.

    The function measures with `measure` and returns the arrays for figures as a mapping, or None. In a Jupyter kernel
    the time it took is published too, so that a build can print it; a time is never a measurement.
    """
    name = run.__module__
    signature = inspect.signature(run)

    @functools.wraps(run)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Findings:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()  # a default is a setting too
        settings = {key: repr(value) for key, value in bound.arguments.items()}
        running = _Running(name, settings, [])
        token = _running.set(running)
        start = time.perf_counter()
        try:
            data = run(*args, **kwargs)
        finally:
            _running.reset(token)
        _publish(EXPERIMENT, {"name": name, "seconds": round(time.perf_counter() - start, 3)})
        return Findings(tuple(running.made), data or {})

    return wrapper


def _publish(mime: str, payload: Mapping[str, Any]) -> None:
    """Put a payload into the output of the running cell; outside a Jupyter kernel, nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        shell.display_pub.publish(data={mime: payload}, metadata={})


def _value_is_literal(frame: FrameType) -> bool:
    """Was the value handed to the `measure` call in this frame typed rather than computed?

    Read from the caller's source at the exact position of the call; where there is no source the answer is no.
    """
    call = _call_at(frame)
    if call is None:
        return False
    value = next((k.value for k in call.keywords if k.arg == "value"), call.args[1] if len(call.args) > 1 else None)
    return value is not None and _is_literal(value)


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


def _is_literal(node: ast.expr) -> bool:
    """Only constants and arithmetic on them, also inside `int(…)`, `float(…)`, `bool(…)`, `Fraction(…)`."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp():
            return _is_literal(node.operand)
        case ast.BinOp():
            return _is_literal(node.left) and _is_literal(node.right)
        case ast.Compare():
            return _is_literal(node.left) and all(map(_is_literal, node.comparators))
        case ast.Call(func=ast.Name(id="int" | "float" | "bool" | "Fraction")):
            return all(map(_is_literal, node.args)) and not node.keywords
    return False
