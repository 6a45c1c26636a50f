"""The lab's command as a reader types it."""

import pytest

from attnbook.cli import main


@pytest.fixture
def lab(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder, in English; its status, and what it printed on both streams."""
    monkeypatch.chdir(tmp_path)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        status = main(["lab", *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run
