"""The check itself: takes functions or a file, runs them in a process of their own, and reports."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from importlib.util import decode_source, find_spec
from pathlib import Path
from typing import Any

from attnbook.lab.judge import Finding, judge
from attnbook.lab.process import Process
from attnbook.lab.report import Report, Result
from attnbook.lab.step import KINDS, Step
from attnbook.lab.steps import step as step_of
from attnbook.lab.texts import language


def check(key: int | str, *functions: Callable[..., Any], lang: str | None = None) -> Report:
    """Check the reader's functions of a step, as `check(1, attention)` in a notebook.

    key: of the step. functions: in the order of the step; their own names do not matter. lang: "ja", "ko" or "en",
    else the locale's. They run in another process, with limits of time and memory; nothing that they do reaches here.

    Raises KeyError for an unknown step, TypeError for another number of functions or for something that is none or
    can't be taken along, ModuleNotFoundError without cloudpickle.
    """
    step = step_of(key)
    names = step.functions
    if len(functions) != len(names):
        raise TypeError(f"step {step.key} has {len(names)} functions ({', '.join(names)}), got {len(functions)}")
    for function in functions:
        if not callable(function):
            raise TypeError(f"step {step.key} takes functions, got {type(function).__name__}")
    # Functions of a notebook are no module's: cloudpickle takes their code along, and what of the notebook they use.
    try:
        import cloudpickle  # type: ignore[import-untyped]  # it has no types
    except ModuleNotFoundError as error:
        needed = "a check of functions needs cloudpickle, which is not installed: pip install 'attnbook[lab]'"
        raise ModuleNotFoundError(needed, name="cloudpickle") from error

    try:
        pickled = base64.b64encode(cloudpickle.dumps(list(functions))).decode("ascii")
    except Exception as error:  # whatever objects raise that are asked to be taken along
        why = f"{type(error).__name__}: {error}"
        raise TypeError(f"these functions can't be taken to the process that tries them ({why}): "
                        "check them as they are written, before they are compiled or wrapped") from error  # fmt: skip
    return _with_arrays_or_tensors(step, {"pickle": pickled}, lang)


def _with_arrays_or_tensors(step: Step, code: Mapping[str, Any], lang: str | None) -> Report:
    """The report with arrays; where that fails for want of tensors, and torch is installed, the one with tensors.

    Not all code that wants tensors names torch where it can be seen: `scores.softmax(-1)` does not.
    """
    report = check_code(step, code, folder=Path.cwd(), lang=lang)
    if "numpy.ndarray" not in _raised(report) or find_spec("torch") is None:
        return report
    other = check_code(step, {**code, "tensors": True}, folder=Path.cwd(), lang=lang)
    return report if "Tensor" in _raised(other) else other


def _raised(report: Report) -> str:
    """The texts of the exceptions that the functions raised."""
    findings = (result.finding for result in report.results if result.finding is not None)
    return "\n".join(finding.details["text"] for finding in findings if finding.mistakes == ("raised",))


def check_file(key: int | str, path: Path, *, lang: str | None = None) -> Report:
    """Check the functions of a Python file. Only read: nothing is written to it or beside it.

    Raises OSError if it can't be read, UnicodeDecodeError or SyntaxError if it is no text.
    """
    code = {"source": decode_source(path.read_bytes()), "file": path.name}
    return check_code(step_of(key), code, folder=path.resolve().parent, lang=lang)


def check_code(step: Step, code: Mapping[str, Any], *, folder: Path, lang: str | None = None) -> Report:
    """Check code that defines the step's functions: {"source": text, "file": name} or {"pickle": base64}.

    With "tensors": True beside a pickle they get torch's tensors; else only where they are seen to use torch.

    folder: where the code runs; files there can be imported.
    """
    spoken, start, printed = language(lang), time.perf_counter(), ""
    results: list[Result] = []
    names = step.functions
    process, found, failure = _started(code, names, folder)
    try:
        for part in step.parts:
            if any(_unusable(result, part.name) for result in results):
                continue  # tried in another way, it would only do the same again
            if process.ended is not None and failure is None:  # the last function ended it
                printed += process.printed()
                process, found, failure = _started(code, names, folder)
            if failure is not None:
                line = {} if failure.line is None else {"line": str(failure.line)}
                results.append(Result(part.name, Finding((failure.kind,), details={"text": failure.text, **line})))
                break
            finding = judge(process, part) if part.name in found else Finding(("missing",))
            results.append(Result(part.name, finding, part.key, process.told if finding is None else {}))
    finally:
        process.end()
        printed += process.printed()
    return Report(step.key, spoken, tuple(results), printed, time.perf_counter() - start)


def _unusable(result: Result, function: str) -> bool:
    """Whether this is that function's, and it returned nothing, or nothing of the right shape."""
    finding = result.finding
    return result.function == function and finding is not None and finding.mistakes[0] in (*KINDS, "shape")


def _started(code: Mapping[str, Any], names: tuple[str, ...], folder: Path) -> tuple[Process, tuple[str, ...], Any]:
    process = Process(folder=folder)
    return process, *process.load(code, names)
