"""`attnbook lab` from start to a passed check."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import attnbook
from attnbook.lab.exercise import solution_source
from attnbook.lab.folder import names
from attnbook.lab.steps import FILES

PYTHON, NOTEBOOK = names("1")
SIDEWAYS = """import numpy as np


def attention(q, k, v):
    e = np.exp(q @ k.T / q.shape[-1] ** 0.5)
    return e / e.sum(0) @ v
"""


def write(name, text, folder="attnbook-lab"):
    Path(folder, name).write_text(text, encoding="utf-8")


def in_notebook(path, source):
    """Put the code into the notebook's cell of the function."""
    notebook = json.loads(Path(path).read_text(encoding="utf-8"))
    notebook["cells"][2]["source"] = source
    Path(path).write_text(json.dumps(notebook), encoding="utf-8")


def test_from_start_to_passed(lab):
    """Start, a mistake that is named, the same mended, and what status says of it; the reader's file is only read."""
    status, out, err = lab("start")
    assert (status, err) == (0, "")
    assert f"Written into attnbook-lab:\n  {PYTHON}\n  {NOTEBOOK}\n" in out
    assert "attnbook lab check" in out
    write(PYTHON, SIDEWAYS)
    status, out, err = lab("check")
    assert (status, err) == (1, "")
    assert out.startswith(f"{PYTHON}\nStep 1: Write the three lines\n✗ attention\n")
    assert "along the wrong axis" in out
    assert Path("attnbook-lab", PYTHON).read_text() == SIDEWAYS
    assert "✗ Step 1: Write the three lines: wrong (" in lab("status")[1]
    assert "    Your weights sum to 1 along the wrong axis" in lab("status")[1]
    write(PYTHON, solution_source("1"))
    status, out, _ = lab("check", "--step", "1")
    assert (status, out) == (0, f"{PYTHON}\nStep 1: Write the three lines\n✓ attention: Right.\n")
    assert "✓ Step 1: Write the three lines: passed (" in lab("status")[1]
    write(PYTHON, SIDEWAYS)
    assert "changed since it passed" in lab("status")[1]


def test_start_again_leaves_work_alone(lab):
    """It says which files it left, in the language asked for."""
    lab("start")
    write(PYTHON, SIDEWAYS)
    status, out, _ = lab("start", "--lang", "ja")
    assert status == 0
    assert out.startswith(f"すでにあるので、触れなかったファイル：\n  {PYTHON}\n")
    assert Path("attnbook-lab", PYTHON).read_text() == SIDEWAYS


def test_both_files_of_a_step_are_checked_when_both_were_edited(lab):
    """And a mistake in a notebook is placed by cell and line."""
    lab("start")
    write(PYTHON, solution_source("1"))
    in_notebook(Path("attnbook-lab", NOTEBOOK), "%time 1\ndef attention(q, k, v):\n    return q / 0 @ missing")
    status, out, _ = lab("check")
    assert status == 1
    first, _, second = out.partition(f"\n\n{NOTEBOOK}\n")
    assert first.startswith(PYTHON)
    assert "✓ attention" in first
    assert "(line 3 of code cell 2)" in second


def test_a_notebook_alone(lab):
    """It may be the only file, and is right when its cells are."""
    lab("start")
    Path("attnbook-lab", PYTHON).unlink()
    in_notebook(Path("attnbook-lab", NOTEBOOK), solution_source("1").partition('"""\n\n')[2])
    assert lab("check", "--step", "1")[:2] == (0, f"{NOTEBOOK}\nStep 1: Write the three lines\n✓ attention: Right.\n")


def test_the_empty_exercise_is_unwritten(lab):
    """Asked for by its step it is checked, and fails; of itself the check has nothing to do, and says so."""
    lab("start")
    status, out, _ = lab("check", "--step", "1")
    assert status == 1
    assert "It is not written yet." in out
    Path("attnbook-lab/progress.json").unlink()
    status, out, err = lab("check")
    assert (status, out) == (2, "")
    assert "Nothing in attnbook-lab has been edited yet" in err


def test_json(lab):
    """Check and status print JSON alone, whatever the reader's function prints."""
    lab("start", "other")
    write(PYTHON, SIDEWAYS.replace("    e =", "    print('noise')\n    e ="), "other")
    status, out, _ = lab("check", "other", "--json")
    (report,) = json.loads(out)
    assert status == 1
    assert (report["file"], report["step"], report["ok"]) == (PYTHON, "1", False)
    assert report["functions"][0]["mistakes"] == ["wrong_axis"]
    held = json.loads(lab("status", "other", "--json")[1])
    assert [step["step"] for step in held] == list(FILES)
    assert held[0]["state"] == "failed"
    assert held[0]["files"][0] | {"date": ""} == {
        "name": PYTHON, "state": "failed", "mistakes": ["wrong_axis"], "date": "",
    }  # fmt: skip


@pytest.mark.parametrize(("lang", "says"), [("ja_JP.UTF-8", "正しく動きます"), ("ko_KR", "올바르게"), ("C", "Right")])
def test_the_locale_decides_the_language(lab, monkeypatch, lang, says):
    """Where --lang does not say another; the folder's own language does not matter."""
    lab("start", "--lang", "en")
    write(PYTHON, solution_source("1"))
    monkeypatch.setenv("LANG", lang)
    assert says in lab("check")[1]
    assert "正しく動きます" in lab("check", "--lang", "ja")[1]


def test_hints_come_in_stages(lab):
    """One more each time; a stage may be asked for; status counts them."""
    lab("start")
    assert lab("hint", "--step", "1")[1].startswith("Hint 1 of ")
    assert lab("hint", "--step", "1")[1].startswith("Hint 2 of ")
    assert lab("hint", "--step", "1", "--stage", "1")[1].startswith("Hint 1 of ")
    assert "hints shown: 2" in lab("status")[1]
    assert lab("hint", "--step", "1", "--stage", "9")[0] == 2


def test_inside_the_folder(lab, monkeypatch):
    """There it is the folder, so that no second one is begun within it."""
    lab("start")
    monkeypatch.chdir("attnbook-lab")
    write(PYTHON, solution_source("1"), ".")
    assert lab("check")[0] == 0
    lab("start")
    assert not Path("attnbook-lab").exists()


def test_a_downloaded_file_is_checked_where_it_is(lab):
    """A chapter's exercise, too, which start would put into a folder of its own; once checked, the lab is there."""
    below = names("chapter-9d")[0]
    assert "/" in below
    write(Path(below).name, solution_source("chapter-9d"), ".")
    write(PYTHON, SIDEWAYS, ".")
    status, out, _ = lab("check")
    assert status == 1
    assert [line for line in out.splitlines() if line.endswith(".py")] == [PYTHON, Path(below).name]
    assert lab("check", "--step", "chapter-9d")[0] == 0
    lab("start")
    assert Path(PYTHON).read_text() == SIDEWAYS
    assert Path(NOTEBOOK).exists()
    assert lab("check", "--step", "chapter-9d")[0] == 0


def test_a_slow_function_may_be_given_less_time(lab):
    """--seconds is the limit of one call."""
    lab("start")
    write(PYTHON, "def attention(q, k, v):\n    while True:\n        pass\n")
    status, out, _ = lab("check", "--seconds", "0.2")
    assert status == 1
    assert "0.2 seconds" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "none"), "there is no folder none: attnbook lab start none makes it"),
        (("status",), "there is no folder attnbook-lab"),
        (("check", "here", "--step", "99"), "there is no step 99 in the lab: it has 1, "),
        (
            ("check", "here", "--step", "1"),
            f"here has none of {PYTHON}, {NOTEBOOK}: attnbook lab start here writes them",
        ),
        (("hint", "none", "--step", "1"), "there is no folder none"),
        (("start", "file"), "file is a file: expected a folder"),
        (("status", "foreign"), "progress.json is not this lab's"),
        (("status", "none", "--lang", "ja"), "フォルダー none がありません"),
        (("hint", "here", "--step", "99", "--lang", "ko"), "99단계는 없습니다"),
        (("start", "file/below"), "Not a directory"),
    ],
)
def test_what_cannot_run(lab, arguments, message):
    """Status 2, and one line on standard error that says why and what would help."""
    Path("here").mkdir()
    Path("file").write_text("")
    Path("foreign").mkdir()
    Path("foreign/progress.json").write_text("{}")
    status, out, err = lab(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("attnbook lab: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_none(lab, seconds):
    """It is refused before anything runs."""
    with pytest.raises(SystemExit) as stopped:
        lab("check", "--seconds", seconds)
    assert stopped.value.code == 2


def test_files_that_are_no_code(lab):
    """A damaged notebook and a Python file in no encoding are named; the others are checked all the same."""
    lab("start")
    write(PYTHON, solution_source("1"))
    write(NOTEBOOK, "{")
    second, _ = names("2")
    Path("attnbook-lab", second).write_bytes(b"# \xff\n")
    status, out, err = lab("check")
    assert status == 2
    assert out == f"{PYTHON}\nStep 1: Write the three lines\n✓ attention: Right.\n"
    assert f"{NOTEBOOK} can't be read: " in err
    assert f"{second} can't be read as text (" in err
    assert "Save it as UTF-8." in err


def test_a_result_that_cannot_be_kept_is_still_shown(lab, monkeypatch):
    """The reader sees the report, and on standard error that it was not kept."""
    lab("start")
    write(PYTHON, solution_source("1"))

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("attnbook.lab.progress._replace", refuse)
    status, out, err = lab("check")
    assert status == 0
    assert "✓ attention: Right." in out
    assert "could not be kept" in err


def test_a_hint_that_cannot_be_remembered_is_still_shown(lab, monkeypatch):
    """In a folder that may only be read the next hint is the same one, and --stage has the others."""
    lab("start")

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("attnbook.lab.progress._replace", refuse)
    status, first, err = lab("hint", "--step", "1")
    assert (status, first.splitlines()[0]) == (0, "Hint 1 of 3")
    assert "could not be kept" in err
    assert lab("hint", "--step", "1", "--stage", "2")[1].startswith("Hint 2 of 3")


def test_without_torch(tmp_path):
    """The whole way needs NumPy alone: torch, transformers and Sphinx may be missing."""
    blocked = tmp_path / "blocked"
    for name in ("torch", "transformers", "sphinx", "IPython", "matplotlib", "triton"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text(f"raise ModuleNotFoundError('no {name} here', name='{name}')\n")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / PYTHON).write_text(solution_source("1"))
    search = os.pathsep.join([str(blocked), str(Path(attnbook.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": search, "LANG": "C"}
    for arguments, says in (
        (("start", "lab"), "left alone"), (("check", "lab"), "✓ attention: Right."), (("status", "lab"), "passed"),
        (("hint", "lab", "--step", "1"), "Hint 1"),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "attnbook", "lab", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8", check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert says in done.stdout


@pytest.mark.parametrize("name", ["numpy", "cloudpickle"])
def test_without_numpy(lab, monkeypatch, name):
    """What is missing is named, and how it gets there."""

    def missing(*arguments):
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("attnbook.lab.texts.language", missing)
    status, _, err = lab("status")
    assert (status, err) == (
        2,
        f"attnbook lab: this needs {name}, which is not installed: pip install 'attnbook[lab]'\n",
    )
