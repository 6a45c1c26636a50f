"""The author's loop: a change is executed, built and served; a failure is said, and the old pages stay."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from attnbook.bookkit.serve import Rebuild
from tests.bookkit.small_book import PAGES, command, wait_for, write


def until(process, end):
    """The lines the server prints, without their colours, to the one that ends so."""
    lines = []
    for line in process.stdout:
        lines.append(re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip())
        if lines[-1].endswith(end):
            return lines
    raise AssertionError(f"the server ended: {lines} {process.stderr.read()}")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_change_is_executed_and_served_and_a_failure_said(tmp_path):
    """The page reloads itself: it holds sphinx-autobuild's script."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"

    def page():
        with urllib.request.urlopen(f"{address}/01-first.html", timeout=20) as answer:
            return answer.read().decode()

    book = write(tmp_path / "book", PAGES)
    with command("serve", book, "--port", port) as process:
        try:
            assert "2 chapters executed" in " ".join(until(process, f"serving {address}"))
            until(process, "Waiting to detect changes...")
            assert "first says seven" in wait_for(page)
            assert "websocket-reload" in page()
            time.sleep(1)  # nothing says when the watching begins
            (book / "data.txt").write_text("eight")
            lines = until(process, f"serving {address}")
            assert lines.count("changed: book/data.txt") == 1
            assert "1 chapter unchanged" in lines
            assert "first says eight" in page()
            (book / "data.txt").unlink()
            assert until(process, f"serving {address}")[-1].startswith("the pages are older than their sources")
            assert "first says eight" in page()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
    assert "book/01-first.md:13: cell 1 failed: FileNotFoundError" in errors
    assert "Traceback" not in errors


def test_changes_are_named_once_from_the_project_on_if_the_file_is_still_there(tmp_path, monkeypatch, capsys):
    """Editors write to other names first, and one save comes as several changes. What lies outside keeps its path."""
    book = write(tmp_path / "mine/book", {"a.md": "", "b.md": ""})
    write(tmp_path, {"other.py": ""})
    monkeypatch.setattr(Rebuild, "book", book)
    monkeypatch.setattr(Rebuild, "language", "ja")
    rebuild = Rebuild(url_host="localhost:1")
    rebuild.command = [sys.executable, "-c", ""]
    rebuild(changed_paths=[book / "a.md", book / ".a.md.swx", book / "a.md", book / "b.md", tmp_path / "other.py"])
    said = capsys.readouterr().out.splitlines()
    assert said[:-1] == ["changed: book/a.md", "changed: book/b.md", f"changed: {tmp_path}/other.py"]
    rebuild(changed_paths=[book / "gone.md", book / "gone too.md"])
    assert capsys.readouterr().out.splitlines()[0] == "changed: files are gone"
    rebuild(changed_paths=[])
    assert capsys.readouterr().out.splitlines() == ["serving http://localhost:1"]


def test_the_server_ends_with_its_parent_when_it_is_asked_to(tmp_path):
    """A task runner that was killed leaves none that holds the port."""
    book = write(tmp_path / "book", {name: text for name, text in PAGES.items() if not name.startswith("0")})
    arguments = ["-m", "attnbook.bookkit", "serve", str(book), "--with-parent", "--port", str(free_port())]
    start = f"import subprocess, sys\np = subprocess.Popen([sys.executable, *{arguments!r}])\n"
    script = start + "print(p.pid, flush=True)\np.wait()"
    with subprocess.Popen([sys.executable, "-c", script], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as parent:  # fmt: skip
        pid = int(parent.stdout.readline())
        try:
            until(parent, "Waiting to detect changes...")
            parent.kill()
            parent.wait()
            wait_for(
                lambda: not Path(f"/proc/{pid}").exists() or "Z (zombie)" in Path(f"/proc/{pid}/status").read_text()
            )
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
