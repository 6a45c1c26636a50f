"""What a step of the lab is made of: functions to write, inputs to try them on, mistakes to know them by.

A mistake is known by what the reader's function does, never by its text. Most are imitated: the step's `model` computes
what a function with that mistake returns, and who returns the same on every input has made it. The others have a
recogniser, which may call the reader's function on inputs of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Given:
    """A function that is handed to the reader's function, made in the reader's own process.

    path: "module:function" below attnbook.lab. settings: keywords that the function gets beside what the reader passes.
    """

    path: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, here and not in the reader's process: for models."""
        module, _, name = self.path.partition(":")
        if not module.startswith("attnbook.lab."):
            raise ValueError(f"{self.path!r} is not below attnbook.lab")
        return getattr(import_module(module), name)(*arguments, **self.settings)

    def __str__(self) -> str:
        name = self.path.rpartition(":")[2]
        told = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{name}({told})" if told else name


Argument: TypeAlias = "Array | int | float | bool | Given"


@dataclass(frozen=True)
class Case:
    """One input of a function. A part lists its cases from small to large: the first that fails is shown.

    names: of the arguments, as the exercise calls them. Floating arrays are float32 unless float64 is the point.
    """

    arguments: tuple[Argument, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.arguments) != len(self.names):
            raise ValueError(f"a case has {len(self.arguments)} arguments and {len(self.names)} names")


@dataclass(frozen=True)
class Failure:
    """Why a call returned nothing that could be compared.

    kind: one of `KINDS`. text: one line about it, such as the exception's. line: where in the reader's file, if known.
    """

    kind: str
    text: str = ""
    line: int | None = None


KINDS = (
    "unwritten",  # it raised NotImplementedError: the hole is still there
    "unwritten_import",  # a function that it imports from another file of the reader's did; the text names the file
    "missing",  # there is no function of that name
    "unloadable",  # the file itself raises, or is no Python
    "raised",
    "exited",  # sys.exit or quit
    "endless",  # longer than the limit
    "memory",
    "died",  # the process ended by itself: os._exit, a crash in native code
    "none",
    "not_numbers",  # something that no array of numbers can be made of
    "unavailable",  # a driver lacks something that is not the reader's to write, such as a model's file; not a mistake
)


class Unavailable(RuntimeError):
    """Raised by a driver that lacks something on this machine; the text says how it gets there."""


@dataclass(frozen=True)
class Told:
    """What a driver may return in place of a bare array: the array, and words that only it can know.

    words: such as the text that a model wrote; they are an Outcome's `told`.
    """

    value: Any
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What one call of the reader's function did.

    value: what it returned, as an array of float64 (complex, bool and integer results keep their kind); None with a
    failure. dtype: the name of the type it had, "float32" or "bool"; "float" and "int" for Python's numbers and lists
    of them. changed: positions of arguments that it changed in place. seconds: of the call. told: the words
    of a driver's `Told`.
    """

    value: Array | None = None
    dtype: str = ""
    failure: Failure | None = None
    changed: tuple[int, ...] = ()
    seconds: float = 0.0
    told: Mapping[str, str] = field(default_factory=dict)


class Reader(Protocol):
    """The reader's function, as a recogniser meets it."""

    cases: Sequence[Case]
    outcomes: Sequence[Outcome]
    """Of the cases in order; fewer where a call ended the process."""

    def call(self, *arguments: Argument) -> Outcome:
        """Call the function once more; after the process has ended, every call is a failure."""
        ...


@dataclass(frozen=True)
class Seen:
    """A recogniser's evidence: the input that shows the mistake, what was expected there, what came.

    details: what the message of the mistake fills in, such as {"factor": "1/64"}.
    """

    case: Case
    expected: Array
    outcome: Outcome
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recogniser:
    """A mistake with no single imitation, and how it is seen; `see` returns None for "not this one".

    among_right: ask also where all numbers are right, for a promise that no tolerance can hold. last: ask
    after the imitations, for what is less telling than any of them.
    """

    name: str
    see: Callable[[Reader], Seen | None]
    among_right: bool = False
    last: bool = False


Model: TypeAlias = Callable[..., Any]
"""The right answer to a case's arguments in float64, or with `flaws=frozenset(…)` what a function with them returns."""


@dataclass(frozen=True)
class Part:
    """One function that the reader writes.

    name: of the function. model: the right answer, and its imitations. flaws: mistakes that the model can imitate, the
    most telling first; they are tried alone, then in pairs. recognisers: tried before the imitations. driver: where the
    function is not called itself, "module:function" below attnbook.lab that calls it, with the reader's function as
    its first argument. also: other models that are as right, such as a standard deviation with n − 1: who agrees with
    one of them on every case has passed, and they imitate the flaws too. key: where two parts try the same function,
    what this one is called among the step's texts (`[parts.KEY]`). seconds: the limit of one call, in processor time
    where the system tells it.
    """

    name: str
    model: Model
    cases: tuple[Case, ...]
    flaws: tuple[str, ...] = ()
    recognisers: tuple[Recogniser, ...] = ()
    driver: str | None = None
    also: tuple[Model, ...] = ()
    key: str = ""
    seconds: float = 3.0


@dataclass(frozen=True)
class Step:
    """A step of the lab: its key ("1", "capstone"), the stem of its files, its functions in the order of the file."""

    key: str
    stem: str
    parts: tuple[Part, ...]
    page: str
    """Where the book has it, as "lab/1-three-lines"."""
    folder: str = ""
    """Below the lab's own folder, where its files are written: "" for the lab's steps, "exercises" for a chapter's."""

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of its functions, each once, in order: two parts may try the same one."""
        return tuple(dict.fromkeys(part.name for part in self.parts))
