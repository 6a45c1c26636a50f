"""The process in which the reader's function runs: it loads the code, calls it when told, and says what happened.

What the reader's code prints goes to standard error, reads of standard input find its end, and an exception, sys.exit
included, becomes an answer. Endless loops and crashes are the parent's to notice (`attnbook.lab.process`).
"""

from __future__ import annotations

import ast
import base64
import importlib
import json
import linecache
import os
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from attnbook.lab import own_files
from attnbook.lab.returned import NotNumbers, numbers
from attnbook.lab.step import Array, Failure, Given, Outcome, Told, Unavailable
from attnbook.lab.wire import pack_outcome, unpack_array

MEGABYTES_TO_LOAD = 16 * 1024
"""Room of addresses while the reader's file loads: importing torch maps gigabytes that it never touches."""

LONGEST = 300
"""Letters kept of an exception's message."""

Function: TypeAlias = Callable[..., Any]


class Loaded:
    """The reader's code once it has run: its functions by name, and whether they want tensors."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.tensors = False
        self.file = ""
        self.folder = ""

    def load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the reader's code, from source or from a pickle of functions; answer which of `names` there are."""
        self.file = str(request.get("file", ""))
        self.folder = str(request.get("folder", ""))
        sys.path.insert(0, self.folder)
        if "source" in request:
            space = self._run(str(request["source"]))
            found = {name: space.get(name) for name in request["names"]}
            self.tensors = _imports_torch(str(request["source"]))
        else:
            pickled = importlib.import_module("cloudpickle").loads(base64.b64decode(request["pickle"]))
            found = dict(zip(request["names"], pickled, strict=True))
            self.file = next((f.__code__.co_filename for f in pickled if hasattr(f, "__code__")), "")
            # cloudpickle keeps of a function's globals those that it uses.
            used = (value for f in pickled for value in getattr(f, "__globals__", {}).values())
            self.tensors = bool(request.get("tensors")) or any(_of_torch(value) for value in used)
        self.tensors = self.tensors or any(
            _of_torch(value) for module in own_files.modules(self.folder) for value in vars(module).values()
        )
        if self.tensors:
            importlib.import_module("torch")  # here, where it takes nothing of a call's time
        self.functions = {name: function for name, function in found.items() if callable(function)}
        return {"functions": sorted(self.functions)}

    def _run(self, source: str) -> dict[str, Any]:
        module = types.ModuleType("reader")
        module.__file__ = self.file
        sys.modules["reader"] = module  # so that dataclasses and pickles of the reader's code find their module
        lines = source.splitlines(keepends=True)
        linecache.cache[self.file] = (len(source), None, lines, self.file)
        exec(compile(source, self.file, "exec"), module.__dict__)
        return module.__dict__

    def call(self, request: Mapping[str, Any]) -> Outcome:
        """Call one function on copies of the arguments; compare them afterwards."""
        arguments = [self._unpack(argument) for argument in request["arguments"]]
        before = [_copy(argument) for argument in arguments]
        function = self.functions[request["function"]]
        if request["driver"] is not None:
            function = partial(Given(request["driver"]), function)
        start = time.perf_counter()
        value = function(*arguments)
        seconds = time.perf_counter() - start
        changed = tuple(i for i, old in enumerate(before) if old is not None and not _same(old, arguments[i]))
        if value is None:
            return Outcome(failure=Failure("none"), changed=changed, seconds=seconds)
        told = value.words if isinstance(value, Told) else {}
        array, dtype = _numbers(value.value if isinstance(value, Told) else value)
        return Outcome(array, dtype, None, changed, seconds, told)

    def _unpack(self, argument: Any) -> Any:
        if isinstance(argument, dict) and "given" in argument:
            return Given(argument["given"], argument["settings"])
        if isinstance(argument, dict):
            array = unpack_array(argument)
            return importlib.import_module("torch").from_numpy(array) if self.tensors else array
        return argument

    def failure(self, error: BaseException) -> Failure:
        """What an exception of the reader's code means, and the last line of theirs that it came through."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
        line = lines[-1] if lines else None
        text = _short(traceback.format_exception_only(error)[-1].strip())
        if isinstance(error, SyntaxError):
            return Failure("unloadable", text, error.lineno)
        if isinstance(error, NotImplementedError):
            elsewhere = own_files.raised_in(error, self.folder)
            return Failure("unwritten", text, line) if elsewhere is None else Failure("unwritten_import", elsewhere)
        if isinstance(error, SystemExit):
            return Failure("exited", text, line)
        if isinstance(error, Unavailable):
            return Failure("unavailable", str(error))
        if isinstance(error, NotNumbers):
            return Failure("not_numbers", str(error), line)
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return Failure("memory", text, line)
        return Failure("raised", text, line)


def _numbers(value: object) -> tuple[Array, str]:
    """The value as numbers; whatever a conversion of the reader's or of torch's raises, it is no failure of theirs."""
    try:
        return numbers(value)
    except NotNumbers:
        raise
    except Exception as error:
        raise NotNumbers(f"{type(value).__name__} ({_short(str(error))})") from error


def _short(text: str) -> str:
    """Messages are read by people: an array's whole text is not."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _imports_torch(source: str) -> bool:
    """Whether torch is imported anywhere in the source, also inside a function that has not run yet."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(name.name.partition(".")[0] == "torch" for name in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            return True
    return False


def _of_torch(value: object) -> bool:
    """Whether this is the module, one of its parts, or one of its functions (written in C, they name no module)."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    name = value.__name__ if isinstance(value, types.ModuleType) else (getattr(value, "__module__", None) or "")
    if str(name).partition(".")[0] == "torch" or isinstance(value, torch.Tensor | torch.dtype):
        return True
    return isinstance(value, types.BuiltinFunctionType) and getattr(torch, value.__name__, None) is value


def _copy(argument: Any) -> Array | None:
    """What the argument holds now; None for what cannot change."""
    if isinstance(argument, np.ndarray):
        return argument.copy()
    return argument.numpy().copy() if hasattr(argument, "numpy") else None


def _same(old: Array, now: Any) -> bool:
    new = now if isinstance(now, np.ndarray) else now.detach().numpy()
    return old.shape == new.shape and old.tobytes() == np.ascontiguousarray(new).tobytes()


def _size() -> int:
    """Bytes of addresses that the process has. Raises OSError where the system does not say."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmSize:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmSize")


def limit_memory(megabytes: int) -> bool:
    """Let the process grow by so much from here, and no further; False where the system has no such limit."""
    try:
        import resource

        now = _size()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = now + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    except (ImportError, OSError, ValueError):
        return False
    return True


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    loaded, process = Loaded(), os.getpid()
    for line in requests:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if "names" in request:
                limit_memory(MEGABYTES_TO_LOAD)
                answer = loaded.load(request)
                limit_memory(request["megabytes"])
            else:
                answer = pack_outcome(loaded.call(request))
        except BaseException as error:  # sys.exit and Ctrl-C of the reader's code are answers, too
            failure = loaded.failure(error)
            if "names" in request and failure.kind == "raised":
                failure = Failure("unloadable", failure.text, failure.line)
            answer = pack_outcome(Outcome(failure=failure))
        if os.getpid() != process:
            os._exit(0)  # the reader's code has forked, and this is the other one: a question has one answer
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Answer requests from standard input until it ends, then leave without waiting for threads of the reader's."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    _serve(requests, answers)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
