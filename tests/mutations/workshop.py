"""A throw-away copy of the project in which things are broken: the real tree is only read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from attnbook.claims.entries import Ledger, LedgerEntry
from attnbook.claims.judge import judge
from attnbook.measure import Measurement
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 300  # seconds; a mutant that never ends is a crash, not a kill


class Crash(Exception):
    """The mutant died before any claim could be judged."""


class Workshop:
    """A copy of the package and the book, with the executed results, in a temporary folder."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="attnbook-mutate-"))
        unwanted = shutil.ignore_patterns("__pycache__", "html", "doctrees", "jupyter_execute", "*.lock")
        for name in ("attnbook", "book"):
            shutil.copytree(ROOT / name, self.root / name, ignore=unwanted)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def build(self) -> Ledger:
        """Read the pages that changed and judge every claim, writing no HTML. Raises Crash without a ledger."""
        path = self.root / "ledger.json"
        path.unlink(missing_ok=True)
        done = self._run(
            "-m", "sphinx", "-q", "-b", "dummy", "-D", f"claims_ledger_json={path}",
            "-d", str(self.root / "doctrees"), "book", str(self.root / "out"),
        )  # fmt: skip
        if not path.is_file():
            raise Crash(f"Sphinx wrote no ledger (exit status {done.returncode}):\n{done.stderr[-2000:]}")
        ledger = Ledger.from_json(json.loads(path.read_text(encoding="utf-8")))
        if bool(ledger.failures) != bool(done.returncode):
            raise Crash(f"{len(ledger.failures)} failures but exit status {done.returncode}:\n{done.stderr[-2000:]}")
        return ledger

    def remeasure(self, entry: LedgerEntry) -> dict[str, Measurement]:
        """Run the experiment behind a claim again, with the settings it had. Raises Crash where it raises."""
        name = entry.experiment.removeprefix("attnbook.experiments.")
        if not entry.experiment or name == entry.experiment:
            raise Crash(f"{entry.id} was not measured by an experiment of attnbook.experiments")
        settings = [part for key, value in entry.settings.items() for part in ("--set", f"{key}={value}")]
        done = self._run("-m", "attnbook", "experiment", name, "--json", *settings)
        if done.returncode:
            raise Crash(f"experiment {name} failed:\n{done.stderr[-2000:]}")
        return {m.id: m for m in map(Measurement.from_json, json.loads(done.stdout))}

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "MPLBACKEND": "agg", "PYTHONHASHSEED": "0",
        }  # fmt: skip
        try:
            return subprocess.run(
                [sys.executable, *arguments], cwd=self.root, env=environment, text=True, encoding="utf-8",
                capture_output=True, timeout=TIME_LIMIT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise Crash(f"not done after {TIME_LIMIT} s") from error

    def attempt(self, mutation: Mutation, claims: Mapping[str, Sequence[LedgerEntry]]) -> str:
        """Break one thing, judge, mend it. Returns "" where the named claim killed it, otherwise what happened."""
        before = mutation.apply(self.root)
        try:
            return self._package(mutation, claims) if mutation.in_package else self._text(mutation)
        finally:
            (self.root / mutation.path).write_text(before, encoding="utf-8")

    def _text(self, mutation: Mutation) -> str:
        failures = self.build().failures
        named = re.compile(rf"(?<![\w.]){re.escape(mutation.killer)}(?!\w|\.\w)")  # a.b is not a.bc, nor a.b.c
        if any(failure.status in mutation.by and named.search(failure.message) for failure in failures):
            return ""
        return "survived" if not failures else "killed by another:\n" + "\n".join(map(str, failures))

    def _package(self, mutation: Mutation, claims: Mapping[str, Sequence[LedgerEntry]]) -> str:
        entries = claims.get(mutation.killer)
        if not entries:
            return f"names the claim {mutation.killer}, which no page makes"
        measured = self.remeasure(entries[0]).get(mutation.killer)
        if measured is None:
            return f"{entries[0].experiment} no longer measures {mutation.killer}"
        verdicts = [judge(entry.text, measured, entry.role, entry.language).status for entry in entries]
        if any(verdict in mutation.by for verdict in verdicts):
            return ""
        return f"survived: the text says {entries[0].text}, measured {measured.value}: {', '.join(verdicts)}"
