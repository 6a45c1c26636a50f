"""The reader's process from outside: start it, ask it, notice that it hangs or has died, end it with all it started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from attnbook.lab.step import Argument, Failure, Outcome
from attnbook.lab.wire import pack, unpack_outcome

LOAD_SECONDS = 30.0
"""To start Python, import what the reader imports (torch on a slow disk) and run the top of the file."""

PATIENCE = 4.0
"""A call that waits and computes nothing, or one whose processor time is unknown, has so many times its limit."""

KEPT = 4096
"""Bytes kept of what the reader's code prints: the end of it."""


class Process:
    """A Python of its own for the reader's code; use it as a context manager. Once ended, it answers failures.

    megabytes: how far it may grow after loading. folder: where the code runs; files there can be imported.
    """

    def __init__(self, *, megabytes: int = 2048, folder: Path | None = None) -> None:
        self._megabytes = megabytes
        self._folder = folder
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        self._printed = b""
        self._lock = threading.Lock()
        self.ended: Failure | None = None
        self.told: Mapping[str, str] = {}
        """The words of the last call's driver, if it told any."""
        self._process = subprocess.Popen(
            # -P: a file of the reader's that is called numpy.py must not be what our own imports find.
            [sys.executable, "-P", "-W", "default", "-m", "attnbook.lab.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=folder, env=_environment(), start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=target, args=(stream,), daemon=True)
            for target, stream in (
                (self._read_answers, self._process.stdout),
                (self._read_printed, self._process.stderr),
            )
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def load(self, code: Mapping[str, Any], names: tuple[str, ...]) -> tuple[tuple[str, ...], Failure | None]:
        """Run the reader's code; the functions among `names` that it has, and why it could not run, if so.

        code: {"source": text, "file": name} or {"pickle": base64 of a list of functions}, with "tensors" as in
        `check_code`.
        """
        request = {**code, "names": names, "megabytes": self._megabytes, "folder": str(self._folder or "")}
        answer = self._ask(request, LOAD_SECONDS)
        if isinstance(answer, Failure):
            return (), answer
        if "functions" not in answer:
            return (), unpack_outcome(answer).failure
        return tuple(answer["functions"]), None

    def call(self, function: str, arguments: tuple[Argument, ...], *, seconds: float, driver: str | None) -> Outcome:
        """Call the reader's function once; what did not come back in time ends the process."""
        request = {"function": function, "driver": driver, "arguments": [pack(argument) for argument in arguments]}
        answer = self._ask(request, seconds)
        outcome = Outcome(failure=answer) if isinstance(answer, Failure) else unpack_outcome(answer)
        self.told = outcome.told
        return outcome

    def printed(self) -> str:
        """The end of what the reader's code has printed, and warnings of the libraries that it uses.

        All of it after `end`; before, what has arrived.
        """
        with self._lock:
            return self._printed.decode("utf-8", errors="replace")

    def end(self) -> None:
        """Kill the process and what it started, if it still runs."""
        if self.ended is None:
            self.ended = Failure("died", "ended")
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for thread in self._threads:
            thread.join(1)  # a process that left the group may still hold the other end

    def _ask(self, request: Mapping[str, Any], seconds: float) -> Any:
        if self.ended is not None:
            return self.ended
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._wait(seconds)
        except BrokenPipeError:
            line = None
        except TimeoutError:
            self.ended = Failure("endless", f"{seconds:g}")
            self.end()
            return self.ended
        if line is None:
            status = self._process.wait()
            self.ended = Failure("died", f"signal {-status}" if status < 0 else f"exit status {status}")
            return self.ended
        return json.loads(line)

    def _wait(self, seconds: float) -> bytes | None:
        """The next answer; None at the end of the stream. TimeoutError once processor time or patience is used up."""
        start, used = time.monotonic(), _processor_seconds(self._process.pid)
        while True:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=0.05)
            now = _processor_seconds(self._process.pid)
            computed = now - used if now is not None and used is not None else 0.0
            if computed > seconds or time.monotonic() - start > PATIENCE * seconds:
                raise TimeoutError

    def _read_answers(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._answers.put(line)
        self._answers.put(None)

    def _read_printed(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                with self._lock:
                    self._printed = (self._printed + chunk)[-KEPT:]


def _environment() -> dict[str, str]:
    """Of the child: our own package is found wherever we found it, nothing is written beside the reader's file.

    One thread, so that processor time is time, and a machine with many cores needs no more memory.
    """
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{key: value for key, value in os.environ.items() if key not in ("PYTHONWARNINGS", "PYTHONSTARTUP")},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _processor_seconds(pid: int) -> float | None:
    """Processor time of a process, its threads included, so far; None where the system does not say."""
    try:
        # After the last ")": the name before it may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
