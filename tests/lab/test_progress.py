"""The progress file of a reader's folder: kept whole, and never written over when it is not understood."""

import json
import threading

import pytest

from attnbook.lab import progress
from attnbook.lab.progress import Checked, FolderError, Progress, changing, is_lab, load


def test_what_was_kept_is_read_again(tmp_path):
    """All of it, digest, result, mistakes, day and hints."""
    with changing(tmp_path) as held:
        held.begun["a.py"] = "1"
        held.checked["a.py"] = Checked("2", False, ("wrong_axis", "no_scale"), "2026-01-31")
        held.hints["1"] = 2
    assert load(tmp_path) == Progress({"a.py": "1"}, {"a.py": held.checked["a.py"]}, {"1": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]
    assert is_lab(tmp_path)


def test_a_folder_without_one(tmp_path):
    """Nothing is known of it, and it is no folder of the lab."""
    assert load(tmp_path) == Progress()
    assert not is_lab(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "progress.json is damaged: Expecting"),
        ("[1]", "is not this lab's: expected format 'attnbook-lab 1', got no format"),
        ('{"project": "mine"}', "got no format. It is left as it is; use another folder"),
        ('{"format": "attnbook-lab 2"}', "got 'attnbook-lab 2'"),
        ('{"format": "attnbook-lab 1"}', "is damaged: KeyError 'begun'"),
        ('{"format": "attnbook-lab 1", "begun": {"a": 3}, "checked": {}, "hints": {}}', "expected str, got 3"),
        ('{"format": "attnbook-lab 1", "begun": [], "checked": {}, "hints": {}}', "expected dict, got"),
        ('{"format": "attnbook-lab 1", "begun": {}, "checked": {"a": {"mistakes": [1]}}, "hints": {}}', "got 1"),
        ('{"format": "attnbook-lab 1", "begun": {}, "checked": {"a": []}, "hints": {}}', "expected dict, got"),
        ('{"format": "attnbook-lab 1", "begun": {}, "checked": {}, "hints": {"1": "2"}}', "expected int, got '2'"),
    ],
)
def test_a_damaged_or_foreign_file_is_left_as_it_is(tmp_path, text, message):
    """Reading and changing are errors that name the file; not a byte of it changes."""
    path = tmp_path / "progress.json"
    path.write_text(text)
    with pytest.raises(FolderError, match=message):
        load(tmp_path)
    with pytest.raises(FolderError, match=message), changing(tmp_path) as held:
        held.hints["1"] = 1
    assert path.read_text() == text
    assert not is_lab(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path):
    """A folder in its place is an error that says so."""
    (tmp_path / "progress.json").mkdir()
    with pytest.raises(FolderError, match=r"progress.json can't be read: Is a directory"):
        load(tmp_path)


def test_a_full_disk_leaves_the_old_one(tmp_path, monkeypatch):
    """It is written beside the old one first: what fails there loses nothing, and leaves nothing behind."""
    with changing(tmp_path) as held:
        held.hints["1"] = 1
    before = (tmp_path / "progress.json").read_text()

    def full(self, *arguments, **options):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(progress.Path, "write_text", full)
    with pytest.raises(OSError, match="No space"), changing(tmp_path) as held:
        held.hints["1"] = 2
    assert (tmp_path / "progress.json").read_text() == before
    assert json.loads(before)["hints"] == {"1": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_an_error_within_a_change_keeps_nothing(tmp_path):
    """What was changed before it is not written."""
    with pytest.raises(ZeroDivisionError), changing(tmp_path) as held:
        held.hints["1"] = 1 // 0
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_lose_nothing(tmp_path):
    """Who changes it while another does waits; both changes are kept."""
    reached, go_on = threading.Event(), threading.Event()

    def first():
        with changing(tmp_path) as held:
            held.hints["1"] = 1
            reached.set()
            go_on.wait(5)

    def second():
        with changing(tmp_path) as held:
            held.hints["2"] = 2

    threads = [threading.Thread(target=target) for target in (first, second)]
    threads[0].start()
    assert reached.wait(5)
    threads[1].start()
    threads[1].join(0.2)  # without a lock it is through by now
    go_on.set()
    for thread in threads:
        thread.join(5)
    assert load(tmp_path).hints == {"1": 1, "2": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]
