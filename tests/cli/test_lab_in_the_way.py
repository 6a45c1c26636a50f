"""`attnbook lab` where something is in its way: a damaged or an unreadable file, a closed pipe."""

import os
import subprocess
import sys
from pathlib import Path

import attnbook
from attnbook.lab.exercise import solution_source
from attnbook.lab.folder import names

PYTHON, _ = names("1")


def write(name, text, folder="attnbook-lab"):
    Path(folder, name).write_text(text, encoding="utf-8")


def test_beside_a_damaged_progress_file_no_second_folder_is_made(lab, tmp_path, monkeypatch):
    """Within the folder, `start` says that the file is damaged; the exercises lie there once."""
    lab("start")
    monkeypatch.chdir(tmp_path / "attnbook-lab")
    Path("progress.json").write_text("{")
    for command in (("start",), ("check",), ("status",), ("hint", "--step", "1")):
        status, out, err = lab(*command)
        assert (status, out) == (2, "")
        assert "progress.json is damaged" in err
    assert Path("progress.json").read_text() == "{"
    assert not Path("attnbook-lab").exists()


def test_a_file_in_place_of_the_folder(lab):
    """Nobody is sent to `start`, which could not make it either."""
    Path("lab").write_text("mine")
    for command in ("start", "check", "status"):
        status, _, err = lab(command, "lab")
        assert (status, err) == (2, "attnbook lab: lab is a file: expected a folder, or a new name\n")


def test_whoever_reads_only_the_beginning(tmp_path):
    """A closed pipe is no error to tell of."""
    environment = {**os.environ, "PYTHONPATH": str(Path(attnbook.__file__).parents[1])}
    subprocess.run([sys.executable, "-m", "attnbook", "lab", "start"], cwd=tmp_path, env=environment, check=True)
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "attnbook", "lab", "status"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_file_that_may_not_be_read_stops_nothing_else(lab, monkeypatch):
    """Its neighbours are checked, and how far they are is said; the file itself is named."""
    lab("start")
    write(PYTHON, solution_source("1"))
    second, _ = names("2")
    read = Path.read_bytes

    def refuse(self):
        if self.name == second:
            raise PermissionError(13, "Permission denied", str(self))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    status, out, err = lab("check")
    assert (status, out) == (2, f"{PYTHON}\nStep 1: Write the three lines\n✓ attention: Right.\n")
    assert f"{second} can't be read: [Errno 13] Permission denied" in err
    status, out, _ = lab("status")
    assert status == 0
    assert "✓ Step 1" in out
