"""Hints in stages, remembered in the reader's folder or in the session."""

import pytest

from attnbook.lab import hint, hints
from attnbook.lab.folder import start
from attnbook.lab.hints import hint_in
from attnbook.lab.progress import FolderError, load
from attnbook.lab.texts import texts

COUNT = len(texts(1).hints("en"))


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """No hint was shown yet, and the current folder is an empty one."""
    monkeypatch.setattr(hints, "_shown", {})
    monkeypatch.chdir(tmp_path)


def test_one_more_each_time():
    """The last comes again after the last; each step counts for itself; a stage asked for by number counts, too."""
    assert [hint(1, lang="en").stage for _ in range(COUNT + 1)] == [*range(1, COUNT + 1), COUNT]
    assert hint("2", 2, lang="en").stage == 2
    assert hint(2, lang="en").stage == 3
    assert hint(2, 1, lang="en").stage == 1
    assert hint(2, lang="en").stage == min(4, len(texts(2).hints("en")))


def test_what_it_says():
    """Which of how many, and the text, in the language asked for; as Markdown for a notebook."""
    shown = hint(1, lang="ja")
    assert str(shown) == f"ヒント 1/{COUNT}\n{texts(1).hints('ja')[0]}"
    assert shown._repr_markdown_() == f"**ヒント 1/{COUNT}**\n\n{texts(1).hints('ja')[0]}"
    assert str(hint(1, lang="en")).startswith(f"Hint 2 of {COUNT}\n")


def test_the_folder_remembers(tmp_path):
    """In a folder of the lab, the notebook and the command line go on where the other was."""
    start(tmp_path, "en", ["1"])
    assert hint(1, lang="en").stage == 1
    assert hint_in(tmp_path, "1", lang="en").stage == 2
    assert load(tmp_path).hints == {"1": 2}
    assert hint_in(tmp_path, "1", 1, lang="en").stage == 1
    assert load(tmp_path).hints == {"1": 2}


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """The hint is shown all the same, and the session remembers."""
    start(tmp_path, "en", ["1"])

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("attnbook.lab.progress._replace", refuse)
    assert [hint(1, lang="en").stage for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("stage", [0, COUNT + 1, -1])
def test_a_stage_that_there_is_not(stage):
    """The error says which there are."""
    with pytest.raises(ValueError, match=f"step 1 has hints 1 to {COUNT}, got {stage}"):
        hint(1, stage)


def test_no_such_step_or_folder(tmp_path):
    """Both errors say what there is, or how to get it."""
    with pytest.raises(KeyError, match="no step 99"):
        hint(99)
    with pytest.raises(FolderError, match="attnbook lab start"):
        hint_in(tmp_path / "none", "1")
