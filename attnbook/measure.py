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
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, ParamSpec, get_args

from attnbook.typed import argument, is_typed

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
    *parameter*, whatever `kind` says, also by a name that holds nothing else, and so is a setting of the experiment:
    typing a number is not measuring it.

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
    running = _running.get()
    if kind in ("measured", "derived") and not parents:
        written = argument(sys._getframe(1), "value", 1)
        if written is not None and (is_typed(*written) or _is_setting(written[0], running, value)):
            kind = "parameter"
    if kind in ("cited", "recorded") and not source:
        raise ValueError(f"measurement {id}: a {kind} value needs its source")
    if kind == "derived" and not parents:
        raise ValueError(f"measurement {id}: a derived value needs derived_from, the measurements it comes from")
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


def _is_setting(expression: ast.expr, running: _Running | None, value: object) -> bool:
    """Is it an argument of the running experiment, as the experiment was called?"""
    return (
        running is not None and isinstance(expression, ast.Name) and running.settings.get(expression.id) == repr(value)
    )
