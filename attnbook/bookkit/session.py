"""One chapter in one kernel: its cells run in order, each with a time limit, and what they gave."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import copy
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from attnbook.bookkit import store
from attnbook.bookkit.chapter import Cell, Chapter
from attnbook.bookkit.failure import Frame, kernel_failed, raised, timed_out
from attnbook.bookkit.store import Result
from attnbook.bookkit.trace import Files
from attnbook.measure import EXPERIMENT

ENVIRONMENT = {
    # One thread, whatever the machine: sums in another order are other numbers. Chapters run side by side instead.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TRITON_INTERPRET": "0",  # kernels are compiled, whatever the user's shell is set up for
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "MPLBACKEND": "agg",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}
"""Set before a kernel starts, so that results depend neither on the number of cores nor on the user's settings."""

SILENT = logging.getLogger(f"{__name__}.silent")
"""What Jupyter would print about a chapter is said by us, in the chapter's terms."""
SILENT.propagate = False
SILENT.addHandler(logging.NullHandler())

READY = 60.0
"""Seconds within which a kernel must have started."""
SOCKET_PATH = 90
"""Bytes that the path of a kernel's sockets may have, without their numbers: systems take about a hundred in all."""
GRACE = 5.0
"""Seconds that an interrupted cell has to say where it was."""


class _ThisPython(KernelSpecManager):
    """Every kernel is the Python that runs the build: a kernel of the same name that a user installed is not asked."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


async def run(chapter: Chapter, files: Files, timeout: float, on_cell: Callable[[int], None]) -> Result:
    """Run a chapter's cells and return what they gave and what they depended on.

    Raises ChapterFailed when a cell raises, exceeds `timeout` seconds, or its kernel dies; trace.Changed when a file it
    depended on changed meanwhile.
    """
    start = time.perf_counter()
    on_cell(0)
    with tempfile.TemporaryDirectory(prefix="attnbook-", ignore_cleanup_errors=True) as work:
        trace = Path(work, "trace")
        trace.touch()
        environment = os.environ | ENVIRONMENT | files.environment(trace) | {"IPYTHONDIR": str(Path(work, "ipython"))}
        async with _kernel(chapter, Path(work), environment) as manager:
            session = _Session(chapter, files, manager, timeout)
            try:
                language_info = await session.language_info()
                for cell in chapter.cells:
                    on_cell(cell.number)
                    await session.run_cell(cell)
            finally:
                session.kernel.stop_channels()
        depends = files.used(trace)
    return Result(
        chapter=chapter.name,
        key=store.key(chapter),
        depends=depends,
        seconds=round(time.perf_counter() - start, 3),
        experiments=session.experiments,
        cells=session.results,
        language_info=language_info,
    )


@contextlib.asynccontextmanager
async def _kernel(chapter: Chapter, work: Path, environment: dict[str, str]) -> AsyncIterator[AsyncKernelManager]:
    manager = AsyncKernelManager(
        kernel_spec_manager=_ThisPython(), connection_file=str(work / "kernel.json"), log=SILENT
    )
    sockets = work / "k"
    if os.name == "posix" and len(os.fsencode(sockets)) <= SOCKET_PATH:
        # Sockets in our own folder: two builds at once cannot draw the same free port.
        manager.transport = "ipc"
        manager.ip = str(sockets)
    else:
        manager.transport = "tcp"
        manager.ip = "127.0.0.1"
    log = work / "log"
    try:
        with log.open("wb") as output:
            # No history file: kernels side by side would wait for one another's lock on it.
            arguments = ["--HistoryManager.hist_file=:memory:"]
            await manager.start_kernel(
                cwd=str(chapter.path.parent), env=environment, extra_arguments=arguments, stdout=output, stderr=output
            )
        yield manager
    except (DeadKernelError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "Kernel" not in str(error):
            raise
        raise kernel_failed(chapter, None, log.read_text(errors="replace")) from error
    finally:
        # At once: a chapter leaves nothing that would want to be closed politely.
        await manager.shutdown_kernel(now=True)


class _Session:
    def __init__(self, chapter: Chapter, files: Files, manager: AsyncKernelManager, timeout: float) -> None:
        self.chapter = chapter
        self.files = files
        self.manager = manager
        self.timeout = timeout
        self.kernel = manager.client()
        self.notebook = copy.deepcopy(chapter.notebook)
        self.client = NotebookClient(self.notebook, km=manager, timeout=None, coalesce_streams=True, log=SILENT)
        self.results: list[dict[str, Any]] = []
        self.experiments: list[tuple[str, float]] = []
        self._numbers: dict[int, Cell] = {}
        """Which cell had an execution count: a frame in a function of an earlier cell is named by it."""

    async def language_info(self) -> dict[str, Any]:
        """Wait until the kernel is ready, and ask what it is."""
        self.kernel.start_channels()
        await self.kernel.wait_for_ready(timeout=READY)
        self.client.kc = self.kernel
        self.client.reset_execution_trackers()
        reply = await self.client.async_wait_for_reply(self.kernel.kernel_info())
        assert reply is not None
        info: dict[str, Any] = reply["content"]["language_info"]
        return info

    async def run_cell(self, cell: Cell) -> None:
        count = self.client.code_cells_executed + 1
        self._numbers[count] = cell
        node = self.notebook.cells[cell.index]
        node["outputs"] = []
        running = asyncio.ensure_future(self.client.async_execute_cell(node, cell.index, execution_count=count))
        try:
            done, _ = await asyncio.wait({running}, timeout=self.timeout)
            if not done:
                raise timed_out(self.chapter, cell, self.timeout, await self._interrupted(running))
            await running
        except CellExecutionError as error:
            frames = await self._frames()
            raise raised(self.chapter, cell, error.ename, self.files.neutral(error.evalue), frames) from error
        except DeadKernelError as error:
            raise kernel_failed(self.chapter, cell, "") from error
        finally:
            if not running.done():
                running.cancel()
                with contextlib.suppress(DeadKernelError, asyncio.CancelledError):
                    await running
        self._keep(node)

    async def _interrupted(self, running: asyncio.Future[Any]) -> list[Frame]:
        await self.manager.interrupt_kernel()
        done, _ = await asyncio.wait({running}, timeout=GRACE)
        if not done:
            return []
        with contextlib.suppress(CellExecutionError, DeadKernelError):
            await running
        return await self._frames()

    async def _frames(self) -> list[Frame]:
        """Where the kernel's last exception came from; empty when it can't say."""
        question = {"frames": "__import__('chapter_trace').failure()"}
        for _ in range(10):  # right after an error a kernel refuses requests for a moment
            message = self.kernel.execute("", silent=True, user_expressions=question)
            try:
                reply = await asyncio.wait_for(self.client.async_wait_for_reply(message), GRACE)
            except (TimeoutError, DeadKernelError):
                return []
            if reply is not None and reply["content"]["status"] == "ok":
                answer = reply["content"]["user_expressions"]["frames"]
                if answer["status"] != "ok":
                    return []
                found = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
                return [self._frame(frame) for frame in found]
            await asyncio.sleep(0.05)
        return []

    def _frame(self, frame: dict[str, Any]) -> Frame:
        cell = self._numbers.get(frame["count"] or 0)
        if cell is not None:
            place = f"{self.chapter.shown}:{cell.line + frame['line'] - 1}"
        else:
            place = f"{self.files.shown(frame['file'])}:{frame['line']}"
        ours = cell is not None or self.files.ours(frame["file"])
        return Frame(place, cell.number if cell else None, frame["function"], frame["code"], ours)

    def _keep(self, node: Any) -> None:
        """Keep a cell's outputs: as plain JSON, without what only says how long it took or where things lie."""
        outputs = json.loads(json.dumps(node.get("outputs", [])))
        for output in outputs:
            experiment = output.get("data", {}).pop(EXPERIMENT, None)
            if experiment is not None:
                self.experiments.append((experiment["name"], experiment["seconds"]))
            for name in ("text", "traceback", "evalue"):
                if output["output_type"] in ("stream", "error") and name in output:
                    output[name] = self._neutral(output[name])
        kept = [output for output in outputs if output.get("data") != {}]
        self.results.append({"outputs": kept, "count": node.get("execution_count")})

    def _neutral(self, text: str | list[str]) -> str | list[str]:
        """Warnings and tracebacks say where files lie on this machine: a page says it from the project on."""
        return self.files.neutral(text) if isinstance(text, str) else [self.files.neutral(line) for line in text]
