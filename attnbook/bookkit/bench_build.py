"""Times the build against stock MyST-NB on the same chapters, over throw-away copies, in one run.

`python -m attnbook.bookkit.bench_build book` prints medians, ratios and what is asked of them; the exit status is 1
when something asked for was missed, 2 when the book does not build at all.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import attnbook
from attnbook.bookkit import progress
from attnbook.bookkit.chapter import chapters
from attnbook.bookkit.session import ENVIRONMENT

COLD_RATIO = 1.3
EXECUTION_SECONDS = 60.0
UNCHANGED_SECONDS = 3.0
PROSE_SECONDS = 4.0


class DoesNotBuild(Exception):
    """A build failed, so that its time says nothing."""


@dataclass(frozen=True)
class Build:
    """What a build of ours took and did."""

    seconds: float
    execution: float
    """Seconds that its chapters took together, side by side; 0 where none was executed."""
    executed: frozenset[str]
    """The chapters it executed."""


@dataclass
class Copy:
    """A throw-away copy of a book and of the package."""

    folder: Path
    red: bool = False
    """Time also a build whose claims fail, as they do while a chapter is being written."""
    book: Path = field(init=False)

    def __post_init__(self) -> None:
        self.book = self.folder / "book"

    @classmethod
    def of(cls, book: Path, folder: Path, red: bool = False) -> Copy:
        """Copy without any output."""
        ignore = shutil.ignore_patterns("_build", "__pycache__")
        shutil.copytree(book, folder / "book", ignore=ignore)
        shutil.copytree(Path(attnbook.__file__).parent, folder / "attnbook", ignore=ignore)
        return cls(folder, red)

    def timed(self, *arguments: str | Path) -> tuple[float, str]:
        """Run Python with the copy's package; the seconds it took and what it printed."""
        # Stock MyST-NB gets the threads that we set: the comparison is of the builds, not of thread pools.
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(self.folder)}
        start = time.perf_counter()
        made = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.folder, env=environment, encoding="utf-8", errors="replace", capture_output=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        if made.returncode > self.red:
            raise DoesNotBuild(f"{' '.join(map(str, arguments))} ended with {made.returncode}:\n{made.stderr}")
        return seconds, made.stdout

    def ours(self) -> Build:
        """Our build."""
        seconds, out = self.timed("-m", "attnbook.bookkit", "build", "book")
        executed = re.search(r"^\d+ chapters? executed in ([\d.]+) s$", out, flags=re.MULTILINE)
        chapters = frozenset(re.findall(r"^(\S+) +done ", out, flags=re.MULTILINE))
        return Build(seconds, float(executed[1]) if executed else 0.0, chapters)

    def stock(self) -> float:
        """MyST-NB's own: its cache mode, one page after the other."""
        return self.timed(
            "-m", "sphinx", "-q", "-D", "bookkit_results=0", "-D", "nb_execution_mode=cache",
            "-D", "nb_execution_timeout=600", "-D", "nb_execution_raise_on_error=1",
            "-d", self.folder / "stock" / "doctrees", self.book, self.folder / "stock" / "html",
        )[0]  # fmt: skip


@dataclass
class Findings:
    """The times of all repeats, and what was executed that should not have been."""

    stock: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    unchanged: list[float] = field(default_factory=list)
    prose: list[float] = field(default_factory=list)
    experiment: list[float] = field(default_factory=list)
    execution: list[float] = field(default_factory=list)
    """Of the chapters alone, in the cold build."""
    wrong: list[str] = field(default_factory=list)


def measure(book: Path, repeats: int, say: Callable[[str], None], red: bool = False) -> Findings:
    """Build cold, unchanged, with prose edited and with an experiment edited. Raises DoesNotBuild."""
    found = Findings()
    for repeat in range(1, repeats + 1):
        with tempfile.TemporaryDirectory(prefix="bench-build-") as folder:
            say(f"{repeat} of {repeats}: stock MyST-NB …")
            found.stock.append(Copy.of(book, Path(folder, "stock"), red).stock())
            say(f"{repeat} of {repeats}: ours …")
            copy = Copy.of(book, Path(folder, "ours"), red)
            cold = copy.ours()
            if not cold.executed:
                raise DoesNotBuild("the build of a fresh copy executed no chapter")
            found.cold.append(cold.seconds)
            found.execution.append(cold.execution)
            _expect(found, "nothing changed", found.unchanged, copy, set())
            name = _edit_prose(copy)
            _expect(found, f"prose of {name} edited", found.prose, copy, set())
            module, importing = _edit_experiment(copy)
            _expect(found, f"{module} edited", found.experiment, copy, importing)
    return found


def _expect(found: Findings, what: str, times: list[float], copy: Copy, executed: set[str]) -> None:
    build = copy.ours()
    times.append(build.seconds)
    if build.executed != executed:
        expected = sorted(executed) or "nothing"
        found.wrong.append(f"{what}: expected {expected} to be executed, got {sorted(build.executed)}")


def _edit_prose(copy: Copy) -> str:
    """Add a sentence to the first paragraph of the first chapter."""
    path = next(path for path in sorted(copy.book.glob("*.md")) if "file_format: mystnb" in path.read_text("utf-8"))
    lines = path.read_text("utf-8").splitlines(keepends=True)
    paragraph = next(i for i, line in enumerate(lines) if re.match(r"[ぁ-んァ-ン一-龯].*。$", line))
    lines[paragraph] = lines[paragraph].rstrip() + "この文は、あとから加えました。\n"
    path.write_text("".join(lines), "utf-8")
    return path.stem


def _edit_experiment(copy: Copy) -> tuple[str, set[str]]:
    """Change the experiment that the fewest chapters import; its name and those chapters.

    Who imports it is read from the chapters' cells: what the build recorded is what is put to the test here.
    """
    importers: dict[str, set[str]] = {}
    for chapter in chapters(copy.book)[0]:
        for name in _experiments("\n".join(cell.source for cell in chapter.cells)):
            importers.setdefault(name, set()).add(chapter.name)
    for path in (copy.folder / "attnbook" / "experiments").glob("*.py"):
        for name in _experiments(path.read_text("utf-8")):
            importers.pop(name, None)  # a chapter may import it by way of this one, which its cells don't say
    if not importers:
        raise DoesNotBuild("no chapter imports an experiment")
    name = min(importers, key=lambda name: (len(importers[name]), name))
    module = f"attnbook/experiments/{name}.py"
    with (copy.folder / module).open("a", encoding="utf-8") as file:
        file.write("\n_edited = True\n")
    return module, importers[name]


def _experiments(code: str) -> set[str]:
    """The modules of `attnbook.experiments` that code imports, as all our code does it, in lines of their own."""
    listed = re.findall(r"^from attnbook\.experiments import (.+)$", code, flags=re.MULTILINE)
    names = {name.split()[0] for row in listed for name in row.partition("#")[0].split(",") if name.strip()}
    return names | set(re.findall(r"^(?:from|import) attnbook\.experiments\.(\w+)", code, flags=re.MULTILINE))


def report(found: Findings) -> tuple[list[str], bool]:
    """The lines to print, and whether all that is asked was met."""
    stock, cold, execution, unchanged, prose, experiment = (
        statistics.median(times)
        for times in (found.stock, found.cold, found.execution, found.unchanged, found.prose, found.experiment)
    )  # fmt: skip
    checks = [
        (f"cold: stock {stock:.1f} s, ours {cold:.1f} s, {stock / cold:.2f} times as fast",
         f"at least {COLD_RATIO}", stock / cold >= COLD_RATIO),
        (f"chapters together execute in {execution:.1f} s",
         f"under {EXECUTION_SECONDS:g} s", execution < EXECUTION_SECONDS),
        (f"nothing changed: {unchanged:.2f} s", f"under {UNCHANGED_SECONDS:g} s", unchanged < UNCHANGED_SECONDS),
        (f"prose of one chapter edited: {prose:.2f} s", f"under {PROSE_SECONDS:g} s", prose < PROSE_SECONDS),
        (f"one experiment edited: {experiment:.2f} s", "only chapters that import it executed", not found.wrong),
    ]  # fmt: skip
    lines = [f"{'ok    ' if met else 'MISSED'}  {text} (asked: {asked})" for text, asked, met in checks]
    return [*lines, *found.wrong], all(met for _, _, met in checks)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return its exit status."""
    progress.never_refuse()
    parser = argparse.ArgumentParser(prog="python -m attnbook.bookkit.bench_build", description=__doc__)
    parser.add_argument("book", type=Path)
    parser.add_argument("--repeats", type=int, default=3, help="medians are of so many (%(default)s)")
    parser.add_argument("--red", action="store_true", help="time it though claims fail")
    options = parser.parse_args(arguments)
    try:
        lines, met = report(measure(options.book, options.repeats, lambda text: print(text, flush=True), options.red))
    except DoesNotBuild as error:
        print(error, file=sys.stderr)
        return 2
    print(f"medians of {options.repeats}", *lines, sep="\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
