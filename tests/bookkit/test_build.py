"""The command: statuses, interruption, two at once, output that can't be written; and pages that show the results."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import attnbook
from tests.bookkit.small_book import CONF, PAGES, chapter, command, run, wait_for, write

PACKAGE = Path(attnbook.__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A book that was built once, beside a package of its own; every test takes a copy."""
    tree = tmp_path_factory.mktemp("built")
    write(tree / "book", PAGES)
    shutil.copytree(PACKAGE, tree / "attnbook", ignore=shutil.ignore_patterns("__pycache__"))
    status, out, err = run("build", "book", tree=tree)
    assert (status, err) == (0, "")
    assert "2 chapters executed" in out
    return tree


@pytest.fixture
def tree(built, tmp_path):
    """A copy: the results hold there too, or the tests would take long."""
    return Path(shutil.copytree(built, tmp_path / "tree"))


def page(tree, name):
    return (tree / "book/_build/html/ja" / f"{name}.html").read_text()


def sphinx(tree, *options):
    """Plain sphinx-build: status, and what it said."""
    book = tree / "book"
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-d", book / "_build/doctrees/ja", book, book / "_build/html/ja"],
        env=os.environ | {"PYTHONPATH": str(tree)}, cwd=tree, text=True, capture_output=True, check=False,
    )  # fmt: skip
    return made.returncode, made.stdout + made.stderr


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_pages_show_the_results_and_plain_pages_stay_plain(built):
    """Outputs stand on their pages; a code cell that is only shown is not run."""
    assert "first says seven" in page(built, "01-first")
    assert "second says attnbook.errors" in page(built, "02-second")
    assert "{code-cell}" in page(built, "plain")
    assert not list((built / "book/_build").rglob("plain.ipynb"))


def test_the_output_folder_holds_what_a_host_is_given_and_nothing_else(built):
    """The book, and a page at the root that leads to it. What MyST-NB keeps for itself does not lie among the pages."""
    assert sorted(path.name for path in (built / "book/_build/html").iterdir()) == ["index.html", "ja"]
    assert "url=ja/index.html" in (built / "book/_build/html/index.html").read_text()
    assert not list((built / "book/_build/html").rglob("*.ipynb"))


def test_nothing_changed_executes_and_reads_nothing(built):
    """Though pages were read side by side, and what each showed came from another process."""
    status, out, _ = run("build", "book", "--verbose", "--language", "en", "--builder", "dummy", tree=built)
    assert (status, "2 chapters unchanged" in out, "9 added" in out) == (0, True, True)
    status, out, _ = run("build", "book", "--verbose", "--language", "en", "--builder", "dummy", tree=built)
    assert (status, "0 added, 0 changed, 0 removed" in out) == (0, True)


def test_a_changed_module_executes_only_the_chapters_that_import_it_and_undoing_none(tree):
    """Nothing else was touched, and the page shows the new result; then the old one, found again."""
    edit(tree / "attnbook/errors.py", "class", "__name__ = 'changed'\n\n\nclass")
    status, out, _ = run("build", "book", tree=tree)
    assert (status, "1 chapter unchanged" in out, "1 chapter executed" in out) == (0, True, True)
    assert "second says changed" in page(tree, "02-second")
    shutil.copy(PACKAGE / "errors.py", tree / "attnbook/errors.py")
    status, out, _ = run("build", "book", tree=tree)
    assert (status, "2 chapters unchanged" in out) == (0, True)
    assert "second says attnbook.errors" in page(tree, "02-second")


def test_changed_prose_executes_nothing(tree):
    """And is shown."""
    edit(tree / "book/01-first.md", "Prose.", "Better prose.")
    status, out, _ = run("build", "book", tree=tree)
    assert (status, "2 chapters unchanged" in out, "executed" in out) == (0, True, False)
    assert "Better prose." in page(tree, "01-first")


def test_plain_sphinx_refuses_chapters_without_a_result_on_every_run(tree):
    """Naming each and the command to run: a changed data file, a changed cell."""
    (tree / "book/data.txt").write_text("eight")
    edit(tree / "book/02-second.md", "1 + 1", "1 + 2")
    for _ in range(2):
        status, said = sphinx(tree)
        assert status != 0
        assert "book/01-first.md:1: not executed since" in said
        assert "book/02-second.md:1: not executed since" in said
        assert "python -m attnbook.bookkit execute book" in said
    assert "seven" in page(tree, "01-first")
    assert run("execute", "book", tree=tree)[0] == 0
    assert sphinx(tree)[0] == 0
    assert "eight" in page(tree, "01-first")


def test_a_code_cell_inside_another_block_fails_with_its_line(tmp_path):
    """It would never run; a page that shows one as text is no matter."""
    conf = CONF.replace('["myst_nb"]', '["attnbook.claims", "attnbook.bookkit"]').split("def setup")[0]
    cell = "```{code-cell} ipython3\n1 / 0\n```\n"
    book = write(tmp_path / "book", {"conf.py": conf, "index.md": f"{chapter()}\n:::{{note}}\n\n{cell}:::\n"})
    for _ in range(2):
        status, _, err = run("build", book)
        assert status == 1
        assert "book/index.md:14: a code cell inside another block never runs" in err


def test_another_language_shows_the_same_results_without_running_anything(tree):
    """Each has its own doctrees."""
    status, out, _ = run("build", "book", "--language", "ja", "--language", "ko", tree=tree)
    assert (status, "2 chapters unchanged" in out) == (0, True)
    assert "first says seven" in (tree / "book/_build/html/ko/01-first.html").read_text()


def test_a_failing_chapter_is_1_on_every_run_and_stops_before_sphinx(tree):
    """The other one is kept, an older ledger is not, but those of other languages are; mended, all is built."""
    edit(tree / "book/01-first.md", "from pathlib", "1 / 0\nfrom pathlib")
    source, korean, english = (tree / "book/_build" / f"ledger{name}.json" for name in ("", ".ko", ".en"))
    for languages, gone in (([], source), (["--language", "ko"], korean)):
        for ledger in (source, korean, english):
            ledger.write_text("{}")
        status, out, err = run("build", "book", *languages, tree=tree)
        assert [ledger for ledger in (source, korean, english) if not ledger.exists()] == [gone]
        assert (status, "1 chapter unchanged" in out) == (1, True)
        assert "book/01-first.md:12: cell 1 failed: ZeroDivisionError: division by zero" in err
        assert "Sphinx was not started" in err
    edit(tree / "book/01-first.md", "1 / 0\n", "")
    assert run("build", "book", tree=tree)[0] == 0


def test_a_build_of_pages_that_was_stopped_is_not_taken_for_finished(tree):
    """The next one reads and writes all of them anew; a finished one lifts the mark.

    The notebook that is kept for download holds the outputs, and comes out the same.
    """
    marker = tree / "book/_build/doctrees/ja/unfinished-html"
    assert not marker.exists()
    marker.touch()
    (tree / "book/_build/html/ja/01-first.html").write_text("<html>half")
    notebook = tree / "book/_build/doctrees/ja/notebooks/01-first.ipynb"
    before = notebook.read_text()
    notebook.write_text("half")
    assert run("build", "book", tree=tree)[0] == 0
    assert "first says seven" in page(tree, "01-first")
    assert not marker.exists()
    assert "first says seven" in str(json.loads(before)["cells"])
    assert notebook.read_text() == before


def small_files():
    """Files may grow to 20 kB only from here on."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_pages_that_cannot_be_written_are_2_and_the_next_build_is_right(tree):
    """20 kB are less than Sphinx needs: as on a full disk."""
    shutil.rmtree(tree / "book/_build/html")

    status, _, err = run("build", "book", tree=tree, preexec_fn=small_files)
    assert status == 2
    assert "can't write below book/_build: [Errno 27] File too large" in err
    assert "Traceback" not in err
    assert run("build", "book", tree=tree)[0] == 0
    assert "first says seven" in page(tree, "01-first")


def test_a_result_that_cannot_be_written_is_2_in_one_line_while_other_chapters_run(tmp_path):
    """The chapter that still runs is ended, with nothing more said; the next build is right."""
    big = "import os, time\nwhile not os.path.exists('on'): time.sleep(0.05)\nprint('big says', 5_000 * 'words ')"
    slow = (
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'on')\n"
        "while not os.path.exists('go'): time.sleep(0.05)\nprint('slow says done')"
    )
    pages = {"conf.py": CONF, "index.md": PAGES["index.md"], "big.md": chapter(big), "slow.md": chapter(slow)}
    book = write(tmp_path / "book", pages)
    status, _, err = run("build", book, "--jobs", "2", preexec_fn=small_files)
    assert (status, err) == (2, f"can't write below {book / '_build'}: [Errno 27] File too large\n")
    pid = int((book / "on").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z (zombie)" in Path(f"/proc/{pid}/status").read_text())
    (book / "go").touch()
    status, out, err = run("build", book)
    assert (status, "2 chapters executed" in out, err) == (0, True, "")
    assert "big says words" in page(tmp_path, "big")
    assert "slow says done" in page(tmp_path, "slow")


def test_an_output_folder_that_cannot_be_made_is_2_before_anything_runs(tmp_path):
    """A file stands in its place, or there is no book at all."""
    write(tmp_path / "book", PAGES | {"_build": "a file"})
    status, out, err = run("build", tmp_path / "book")
    assert (status, out) == (2, "")
    assert err.startswith(f"can't write below {tmp_path / 'book' / '_build'}: ")
    assert run("build", tmp_path / "nowhere")[0] == 2
    assert "no conf.py" in run("build", tmp_path)[2]


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_execution_keeps_what_was_done_and_leaves_no_kernel(tmp_path, how, status):
    """The quick chapter has finished, the slow one has not; the next run executes only that one."""
    slow = chapter(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nwhile not os.path.exists('go'): time.sleep(0.05)"
    )
    book = write(tmp_path / "book", {"conf.py": "", "quick.md": chapter("1"), "slow.md": slow})
    with command("execute", book, "--jobs", "2") as process:
        for line in process.stdout:
            if line.startswith("quick  done"):
                break
        pid = wait_for(lambda: int((book / "pid").read_text() or 0))
        process.send_signal(how)
        process.communicate(timeout=20)
    assert process.returncode == status
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z (zombie)" in Path(f"/proc/{pid}/status").read_text())
    (book / "go").touch()
    status, out, err = run("execute", book)
    assert (status, err) == (0, "")
    assert "1 chapter unchanged" in out
    assert "1 chapter executed" in out


def test_two_builds_at_once_wait_for_one_another(tmp_path):
    """The second says so, and finds the results of the first."""
    slow = chapter("import os, time\nopen('on', 'w')\nwhile not os.path.exists('go'): time.sleep(0.05)")
    book = write(tmp_path / "book", {"slow.md": slow})
    with command("execute", book) as first:
        wait_for((book / "on").exists)
        with command("execute", book) as second:
            line = second.stdout.readline()
            assert "another build is at work" in line
            (book / "go").touch()
            assert "1 chapter executed" in first.communicate(timeout=60)[0]
            out, _ = second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert "1 chapter unchanged" in out


def test_a_missing_package_of_the_builder_is_2_with_its_name(tree):
    """As in an environment where only the package itself was installed."""
    write(tree, {"sitecustomize.py": "import sys\nsys.modules['nbclient'] = None\n"})
    edit(tree / "book/01-first.md", "first says", "First says")
    status, _, err = run("build", "book", tree=tree)
    assert status == 2
    assert "the package nbclient is not installed here" in err
