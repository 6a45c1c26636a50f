"""Chapters are executed side by side; one that fails says where, and keeps nothing of the others from being kept."""

import shutil
import tempfile
from pathlib import Path

import pytest

from attnbook.bookkit import execute as execute_
from attnbook.bookkit.chapter import read
from attnbook.bookkit.execute import execute
from attnbook.bookkit.store import Store
from attnbook.bookkit.trace import Files
from tests.bookkit.small_book import chapter, run, write

GOOD = chapter(
    "from attnbook.measure import experiment, measure\n@experiment\ndef run(n=3):\n    measure('a.b', n * 1.5)",
    "import os, sys, warnings\nrun()\nwarnings.warn('careful')\nprint(os.environ['OMP_NUM_THREADS'], hash('a'))",
)
ENDLESS = chapter("1", "import time\nfor _ in range(9999):\n    time.sleep(0.01)")
SETTLES = chapter(
    "import os\nprint(open('touched.txt').read())\nif not os.path.exists('twice'):\n"
    "    open('twice', 'w').close()\n    open('touched.txt', 'w').write('after')"
)
FAILING = {
    "raises.md": chapter("def f(x):\n    return 1 / x", "f(1)", "y = 2\nf(\n    0)\n"),
    "syntax.md": chapter("x = 1\nx ="),
    "inside.md": chapter("from attnbook.measure import measure\nmeasure('not an id', 1)"),
    "endless.md": ENDLESS,
    "deaf.md": chapter("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"),
    "dies.md": chapter("1", "import os\nos._exit(3)"),
    "library.md": chapter("import helper"),
    "helper.py": "import json\njson.loads('{')\n",
    "missing.md": chapter("import nowhere_to_be_found.at_all"),
    "typo.md": chapter("from attnbook import nowhere_to_be_found"),
    "writes.md": chapter("from pathlib import Path\nown = Path('own.txt')\nown.write_text(own.read_text() + ' more')"),
    "own.txt": "some",
    "unreadable.md": "---\n{\n---\n",
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """One run of chapters that fail in every way, and a good one: the outcome, the book, and what was printed."""
    book = write(
        tmp_path_factory.mktemp("failing") / "book",
        FAILING | {"good.md": GOOD, "settles.md": SETTLES, "touched.txt": "before"},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnbook.bookkit.session.GRACE", 0.5)
        patch.setattr(execute_, "ATTEMPTS", 2)
        outcome = execute(book, jobs=4, timeout=3)
    return outcome, book


def error(executed, name):
    """The one error of a chapter."""
    (text,) = [text for text in executed[0].errors if text.startswith(f"book/{name}.md:")]
    return text


def line(executed, name, text):
    """The line of a chapter that holds a text."""
    lines = (executed[1] / f"{name}.md").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_the_good_chapter_is_kept_and_the_failing_ones_are_not(executed):
    """So the next build runs only those that failed, and fails again."""
    outcome, book = executed
    assert sorted(outcome.executed) == ["good", "settles"]
    assert len(outcome.errors) == sum(name.endswith(".md") for name in FAILING)
    kept = [c.name for c in execute_.chapters(book)[0] if Store(book).find(c, Files(book))]
    assert kept == ["good", "settles"]


def test_a_missing_package_makes_it_2_the_faults_of_chapters_1(executed):
    """The worst counts; a missing module of our own is a chapter's fault."""
    assert executed[0].status == 2
    assert "the package nowhere_to_be_found is not installed" in error(executed, "missing")
    assert "not installed" not in error(executed, "typo")


def test_an_exception_is_said_with_the_cell_its_line_and_the_way_there(executed):
    """Through a function of an earlier cell, whose lines are named too."""
    cell = line(executed, "raises", "    0)") - 1
    function = line(executed, "raises", "return 1 / x")
    first, *way = error(executed, "raises").splitlines()
    assert first == f"book/raises.md:{cell}: cell 3 failed: ZeroDivisionError: division by zero"
    assert way == [f"    book/raises.md:{cell}  f(", f"    book/raises.md:{function} in f  return 1 / x"]


def test_a_syntax_error_is_said_with_its_line(executed):
    """Nothing of the cell has run."""
    assert error(executed, "syntax").startswith(
        f"book/syntax.md:{line(executed, 'syntax', 'x =') + 1}: cell 1 failed: Sy"
    )


def test_an_exception_in_the_package_names_its_file_from_the_project_on(executed):
    """And never where the checkout lies."""
    assert "\n    attnbook/measure.py:" in error(executed, "inside")
    assert "(attnbook/__init__.py)" in error(executed, "typo")
    assert " /" not in error(executed, "inside") + error(executed, "typo").replace("(", " ")


def test_of_a_library_only_the_last_step_is_said(executed):
    """And nothing of Python's import, nor of what traces it."""
    _, *way = error(executed, "library").splitlines()
    assert len(way) == 3
    for step, file in zip(way, ("book/library.md", "book/helper.py", "json/decoder.py"), strict=True):
        assert f"{file}:" in step


def test_a_cell_that_takes_too_long_is_stopped_where_it_is(executed):
    """Cell 2, in the loop; one that does not listen is ended all the same."""
    text = error(executed, "endless")
    assert "cell 2 stopped: it ran longer than 3 s" in text
    assert text.startswith(f"book/endless.md:{line(executed, 'endless', 'sleep')}:") or "in range" in text
    assert "cell 1 stopped: it ran longer than 3 s" in error(executed, "deaf")


def test_a_kernel_that_dies_is_said_with_the_cell_it_died_in(executed):
    """There is no traceback: the cell's first line stands for it."""
    where = line(executed, "dies", "import os")
    assert error(executed, "dies") == f"book/dies.md:{where}: cell 2 failed: the kernel died while it ran"


def test_a_chapter_that_changes_what_it_reads_is_not_kept(executed):
    """No state of that file would give its result again."""
    assert "book:own.txt changed each time the chapter ran" in error(executed, "writes")


def test_a_chapter_whose_files_changed_while_it_ran_is_run_once_more(executed):
    """As when an author saves in the middle of a build: what is kept belongs to the file as it is now."""
    book = executed[1]
    assert "after" in str(Store(book).find(read(book / "settles.md", book), Files(book)).cells)


def test_experiments_are_timed_but_times_are_not_kept_in_outputs(executed):
    """Outputs of two executions are equal, and nothing in them says where the book lies."""
    book = executed[1]
    result = Store(book).find(read(book / "good.md", book), Files(book))
    assert [name for name, _ in result.experiments] == ["__main__"]
    assert "experiment+json" not in str(result.cells)
    assert "measurement+json" in str(result.cells)
    assert "cell:3: UserWarning: careful" in str(result.cells)
    assert str(book.parent) not in str(result.cells)


def test_results_do_not_hang_on_cores_or_hash_seeds(executed, tmp_path):
    """A second execution elsewhere gives the same digest."""
    book = write(tmp_path / "book", {"good.md": GOOD})
    assert execute(book).executed == ["good"]
    chapter_ = read(book / "good.md", book)
    ours = Store(book).find(chapter_, Files(book))
    assert ours.digest == Store(executed[1]).find(chapter_, Files(executed[1])).digest
    assert "'text': '1 " in str(ours.cells)


@pytest.mark.parametrize(("length", "transport"), [(0, "ipc"), (60, "ipc"), (120, "tcp")])
def test_a_long_path_of_temporary_files_is_no_matter(tmp_path, length, transport):
    """A socket's path may have some hundred bytes, not characters; where ours is longer, kernels listen on a port."""
    code = "import json, sys\nprint(json.load(open(sys.argv[sys.argv.index('-f') + 1]))['transport'])"
    book = write(tmp_path / "book", {"one.md": chapter(code)})
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        long = Path(folder, "名" * ((length - len(folder)) // 3))
        long.mkdir(exist_ok=True)
        patch.setattr(tempfile, "tempdir", str(long))
        outcome = execute(book)
    assert (outcome.executed, outcome.errors) == (["one"], [])
    result = Store(book).find(read(book / "one.md", book), Files(book))
    assert str(result.cells).count(f"'text': '{transport}\\n'") == 1


def test_a_terminal_that_lacks_japanese_stops_nothing(tmp_path, monkeypatch):
    """What it can't print is printed as an escape."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    status, out, err = run("execute", write(tmp_path / "book", {"名.md": chapter("1")}))
    assert (status, err) == (0, "")
    assert "\\u540d  done" in out


def test_what_has_a_result_is_not_run_again(executed, tmp_path, capsys):
    """Nor after the book moved, nor after its prose changed."""
    book = tmp_path / "book"
    shutil.copytree(executed[1] / "_build", book / "_build")
    write(book, {"good.md": GOOD.replace("Prose.", "Other prose.")})
    outcome = execute(book)
    assert (outcome.unchanged, outcome.executed, outcome.status) == (["good"], [], 0)
    assert capsys.readouterr().out == "1 chapter unchanged\n"


def test_plain_lines_tell_every_cell_and_the_times(tmp_path, capsys):
    """Where there is no terminal to draw on."""
    execute(write(tmp_path / "book", {"good.md": GOOD}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["good  cell 1/2", "good  cell 2/2"]
    assert lines[2].startswith("good  done ")
    assert lines[3].split()[0] == "__main__"
