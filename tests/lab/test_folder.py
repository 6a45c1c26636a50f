"""The reader's folder: what start writes and leaves alone, what counts as edited, how far each step is."""

import json
import os

import nbformat
import pytest

from attnbook.lab import folder as folders
from attnbook.lab.exercise import exercise_notebook, exercise_source, solution_source
from attnbook.lab.folder import State, digest_of, edited, keep, names, start, status
from attnbook.lab.progress import FolderError, load
from attnbook.lab.steps import FILES
from attnbook.lab.texts import LANGUAGES

PYTHON, NOTEBOOK = names("1")


def first(folder, lang="en"):
    """Start step 1 and return its two files."""
    start(folder, lang, ["1"])
    return folder / PYTHON, folder / NOTEBOOK


def of_step(folder, key="1"):
    return next(step for step in status(folder) if step.key == key)


def test_start_writes_all_exercises(tmp_path):
    """A Python file and a notebook a step, and the progress file; each whole, readable by all as new files are."""
    folder = tmp_path / "deep" / "lab"
    done = start(folder, "ko")
    assert [file.name for file in done] == [name for key in FILES for name in names(key)]
    assert all(file.written for file in done)
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == {"progress.json", *(file.name for file in done)}
    assert (folder / PYTHON).read_text("utf-8") == exercise_source("1", "ko")
    assert (folder / NOTEBOOK).read_text("utf-8") == exercise_notebook("1", "ko")
    mask = os.umask(0)
    os.umask(mask)
    assert (folder / PYTHON).stat().st_mode & 0o777 == 0o666 & ~mask


def test_start_leaves_existing_work_alone(tmp_path):
    """Also an empty file; it says which it left, and writes what is missing. A second time it writes nothing."""
    (tmp_path / PYTHON).write_text("")
    assert [(file.name, file.written) for file in start(tmp_path, "en", ["1"])] == [(PYTHON, False), (NOTEBOOK, True)]
    assert (tmp_path / PYTHON).read_text() == ""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert not any(file.written for file in start(tmp_path, "ja", ["1"]))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_start_writes_through_no_link(tmp_path):
    """A link is something that is there, wherever it leads, and a folder that is one is refused."""
    lab, other = tmp_path / "lab", tmp_path / "other"
    lab.mkdir()
    other.mkdir()
    (other / "kept.py").write_text("mine")
    (lab / PYTHON).symlink_to(other / "kept.py")
    (lab / NOTEBOOK).symlink_to(other / "nowhere.ipynb")
    assert not any(file.written for file in start(lab, "en", ["1"]))
    assert [path.name for path in other.iterdir()] == ["kept.py"]
    assert (other / "kept.py").read_text() == "mine"
    below = next(key for key in FILES if "/" in names(key)[0])
    (lab / names(below)[0]).parent.symlink_to(other, target_is_directory=True)
    with pytest.raises(FolderError, match="is a link: nothing is written through it"):
        start(lab, "en", [below])
    assert [path.name for path in other.iterdir()] == ["kept.py"]


def test_whoever_is_quicker_keeps_the_file(tmp_path, monkeypatch):
    """A file that appears between looking and writing is left alone, with hard links and without."""
    monkeypatch.setattr(folders.os.path, "lexists", lambda path: False)
    (tmp_path / PYTHON).write_text("mine")
    assert folders._create(tmp_path / PYTHON, "ours") is False

    def refused(source, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(folders.os, "link", refused)
    assert folders._create(tmp_path / "new.py", "ours") is True
    assert (tmp_path / "new.py").read_text() == "ours"
    with pytest.raises(FileExistsError):
        folders._create(tmp_path / PYTHON, "ours")
    assert (tmp_path / PYTHON).read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.py", PYTHON]


def test_start_in_a_place_that_is_no_folder(tmp_path):
    """A file of that name, an unknown step, and a progress file of somebody else's: nothing is written."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="file is a file: expected a folder"):
        start(tmp_path / "file", "en")
    with pytest.raises(KeyError, match="no step '99'"):
        start(tmp_path / "new", "en", ["99"])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/progress.json").write_text("{}")
    with pytest.raises(FolderError, match="is not this lab's"):
        start(tmp_path / "foreign", "en")
    assert not (tmp_path / "new").exists()
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["progress.json"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_new_file_is_not_edited(tmp_path, lang):
    """In whichever language, with other ends of lines, after Jupyter wrote it anew with outputs."""
    python, notebook = first(tmp_path, lang)
    assert not edited(python, "1")
    python.write_bytes(python.read_bytes().replace(b"\n", b" \r\n"))
    assert not edited(python, "1")
    read = nbformat.read(notebook, as_version=4)
    read.cells[1].outputs = [nbformat.v4.new_output("stream", text="noise")]
    read.cells[1].execution_count = 3
    read.cells.append(nbformat.v4.new_markdown_cell("notes"))
    nbformat.write(read, notebook)
    assert not edited(notebook, "1")


def test_a_change_of_code_is_an_edit(tmp_path):
    """A line in either file; a file that is broken, too."""
    python, notebook = first(tmp_path)
    python.write_text(python.read_text().replace("raise NotImplementedError", "return v"))
    text = notebook.read_text()
    notebook.write_text(text.replace("raise NotImplementedError", "return v"))
    assert edited(python, "1")
    assert edited(notebook, "1")
    notebook.write_text(text[:-9])
    python.write_bytes(b"\xff\xfe# coding: nonsense")
    assert edited(python, "1")
    assert edited(notebook, "1")


def test_an_exercise_of_an_older_version_is_not_edited(tmp_path, monkeypatch):
    """Its text has changed since: the folder remembers what was written into it."""
    monkeypatch.setattr(folders, "exercise_source", lambda key, lang: "older = 1\n")
    first(tmp_path)
    monkeypatch.undo()
    assert edited(tmp_path / PYTHON, "1")
    assert not edited(tmp_path / PYTHON, "1", load(tmp_path))
    assert of_step(tmp_path).state is State.UNTOUCHED


def test_status_follows_the_work(tmp_path):
    """Not begun, edited, failed with its mistakes, edited again, passed, changed since; a missing file is said."""
    python, notebook = first(tmp_path)
    wrong = python.read_text().replace("raise NotImplementedError", "return v")
    right = solution_source("1")

    def now(text=None, **result):
        if text is not None:
            python.write_text(text)
        if result:
            keep(tmp_path, PYTHON, digest_of(python), **result)
        return of_step(tmp_path).furthest

    assert now().state is State.UNTOUCHED
    assert now(wrong).state is State.EDITED
    failed = now(ok=False, mistakes=("wrong_axis",))
    assert (failed.state, failed.mistakes, len(failed.date)) == (State.FAILED, ("wrong_axis",), 10)
    assert now(right).state is State.EDITED
    assert now(ok=True, mistakes=()).state is State.PASSED
    changed = now(wrong)
    assert (changed.state, len(changed.date)) == (State.CHANGED, 10)
    assert now(right + "\n\n").state is State.PASSED
    python.unlink()
    notebook.unlink()
    assert of_step(tmp_path).state is State.MISSING


def test_a_step_is_as_far_as_its_furthest_file(tmp_path):
    """Whoever solved it in the notebook need not write the Python file; its own state is still told."""
    python, notebook = first(tmp_path)
    python.write_text("1 / 0\n")
    keep(tmp_path, PYTHON, digest_of(python), ok=False, mistakes=("unloadable",))
    keep(tmp_path, NOTEBOOK, digest_of(notebook), ok=True, mistakes=())
    step = of_step(tmp_path)
    assert step.state is State.PASSED
    assert [file.state for file in step.files] == [State.FAILED, State.PASSED]
    assert all(other.state is State.MISSING for other in status(tmp_path) if other.key != "1")


def test_status_without_a_folder(tmp_path):
    """It says how to make one."""
    with pytest.raises(FolderError, match=r"no folder .*none: attnbook lab start .*none makes it"):
        status(tmp_path / "none")


def test_the_digest_is_of_the_code(tmp_path):
    """Outputs and blanks do not count; an added line does."""
    notebook = json.loads(exercise_notebook("1", "en"))
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook))
    before = digest_of(path)
    notebook["cells"][2]["source"].append("\n\n  \n")
    path.write_text(json.dumps(notebook, indent=4))
    assert digest_of(path) == before
    notebook["cells"][2]["source"].append("\nx = 1")
    path.write_text(json.dumps(notebook))
    assert digest_of(path) != before
