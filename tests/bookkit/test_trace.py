"""Every process of a chapter tells which of our files it uses, whatever way it starts and ends."""

import hashlib
import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

import attnbook
from attnbook.bookkit.trace import ABSENT, Changed, Files
from tests.bookkit.small_book import write


def uses(book, code, *, package=None):
    """Run code in a traced Python and return what it told, by name."""
    files = Files(book)
    if package is not None:
        files.package = package
    trace = book.parent / "trace"
    trace.touch()
    environment = os.environ | files.environment(trace)
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=book, check=False, timeout=60)
    told = [json.loads(line) for line in trace.read_text().splitlines()]
    return {files.name(use["file"]): use["digest"] for use in told}


@pytest.fixture
def book(tmp_path):
    pages = {
        "data.txt": "seven",
        "helper.py": "x = 1\n",
        "_build/out.txt": "old",
        "script.py": "import attnbook.errors",
    }
    return write(tmp_path / "book", pages)


@pytest.mark.parametrize(
    "code",
    [
        "import attnbook.errors",
        "import attnbook.errors, os; os._exit(3)",
        "import os, signal, attnbook.errors; os.kill(os.getpid(), signal.SIGKILL)",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import attnbook.errors'])",
        "import subprocess, sys; subprocess.run([sys.executable, 'script.py'])",
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'attnbook.errors'])",
        "import os; pid = os.fork()\nif pid: os.wait()\nelse:\n import attnbook.errors; os._exit(0)",
        "import importlib as i, multiprocessing as m\n"
        "m.get_context('spawn').Pool(1).apply(i.import_module, ['attnbook.errors'])",
        "import threading as t, importlib as i\nx = t.Thread(target=i.import_module, args=['attnbook.errors'])\n"
        "x.start(); x.join()",
    ],
    ids=["plain", "_exit", "killed", "subprocess", "script", "-m", "fork", "spawn", "thread"],
)
def test_modules_of_the_package_are_told(book, code):
    """In whatever process they are imported, however it ends."""
    told = uses(book, code)
    assert told["attnbook/errors.py"] == Files(book).digest("attnbook/errors.py")
    assert "attnbook/__init__.py" in told


def test_files_below_the_book_are_told_when_read(book):
    """Data and modules alike; also by another process, and a missing one as absent. Output and writing are no use."""
    told = uses(
        book,
        "import helper, os, subprocess, pathlib, numpy\n"
        "open('data.txt').close(); open('new.txt', 'w').close(); open('_build/out.txt').close(); os.listdir('.')\n"
        "try: open('nowhere.txt')\nexcept OSError: pass\n"
        "pathlib.Path('data.txt').stat(); print(pathlib.Path('script.py').read_bytes())",
    )
    names = {f"book:{name}" for name in ("data.txt", "helper.py", "nowhere.txt", "script.py")}
    assert set(told) == names
    assert told["book:nowhere.txt"] == ABSENT
    assert told["book:data.txt"] == Files(book).digest("book:data.txt")


def test_a_file_reached_by_a_link_is_told(book, tmp_path):
    """Its path then begins elsewhere."""
    (tmp_path / "link").symlink_to(book)
    assert "book:data.txt" in uses(book, f"open({str(tmp_path / 'link' / 'data.txt')!r})")


def test_declared_files_are_told_wherever_they_lie(book, tmp_path):
    """What a library opens past Python is declared."""
    (tmp_path / "model").write_bytes(b"weights")
    told = uses(book, f"from attnbook.records import depends_on; depends_on({str(tmp_path / 'model')!r})")
    assert told[(tmp_path / "model").as_posix()] == Files(book).digest(str(tmp_path / "model"))


def test_the_digest_is_of_the_source_that_ran_even_past_stale_bytecode(book, tmp_path):
    """Two files of one size saved within one second: Python's own cache takes the second for the first."""
    package = tmp_path / "tree" / "attnbook"
    write(package, {"__init__.py": "", "sign.py": "value = +1\n"})
    show = "import attnbook.sign as s, pathlib; pathlib.Path('../said').write_text(str(s.value))"
    os.utime(package / "sign.py", (1e9, 1e9))
    py_compile.compile(str(package / "sign.py"), doraise=True)
    write(package, {"sign.py": "value = -1\n"})
    os.utime(package / "sign.py", (1e9, 1e9))
    told = uses(book, show, package=package)
    assert (tmp_path / "said").read_text() == "-1"
    assert told["attnbook/sign.py"] == hashlib.sha256(b"value = -1\n").hexdigest()


def test_a_sitecustomize_of_the_user_still_runs(book, tmp_path, monkeypatch):
    """Ours stands before it on the path and hides it."""
    write(tmp_path / "site", {"sitecustomize.py": f"open({str(tmp_path / 'ran')!r}, 'w')"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    assert "attnbook/errors.py" in uses(book, "import attnbook.errors")
    assert (tmp_path / "ran").exists()


def test_names_do_not_say_where_the_checkout_lies(book):
    """So that results move with it; a file elsewhere is named by its path."""
    files = Files(book)
    package = Path(attnbook.__file__).parent
    assert files.name(str(package / "errors.py")) == "attnbook/errors.py"
    assert files.name(str(book / "records" / "a.json")) == "book:records/a.json"
    assert files.name("/elsewhere/b") == "/elsewhere/b"
    for name in ("attnbook/errors.py", "book:records/a.json", "/elsewhere/b"):
        assert files.name(str(files.path(name))) == name


def told(book, *digests):
    trace = book.parent / "trace"
    lines = [json.dumps({"file": str(book / "data.txt"), "digest": digest}) for digest in digests]
    trace.write_text("\n".join(lines) + "\n")
    return trace


def test_a_file_that_changed_while_the_chapter_ran_is_refused(book):
    """Two contents in one run, or another content at its end: no state of the file gave that result."""
    now = Files(book).digest("book:data.txt")
    assert Files(book).used(told(book, now, now)) == {"book:data.txt": now}
    for digests in ((now, "b"), ("b", now), ("b",), (ABSENT,)):
        with pytest.raises(Changed, match=r"book:data\.txt"):
            Files(book).used(told(book, *digests))
