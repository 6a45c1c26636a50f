"""The author's loop: a change is executed, built and served; a failure is said, and the old pages stay."""

import signal
import socket
import time
import urllib.request

from tests.bookkit.small_book import PAGES, command, wait_for, write


def until(process, end):
    """The lines the server prints, to the one that ends so."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if lines[-1].endswith(end):
            return lines
    raise AssertionError(f"the server ended: {lines} {process.stderr.read()}")


def test_a_change_is_executed_and_served_and_a_failure_said(tmp_path):
    """The page reloads itself: it holds sphinx-autobuild's script."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def page():
        with urllib.request.urlopen(f"{address}/01-first.html", timeout=20) as answer:
            return answer.read().decode()

    book = write(tmp_path / "book", PAGES)
    with command("serve", book, "--port", port) as process:
        try:
            assert "2 chapters executed" in " ".join(until(process, f"serving {address}"))
            until(process, "Waiting to detect changes...\x1b[0m")
            assert "first says seven" in wait_for(page)
            assert "websocket-reload" in page()
            time.sleep(1)  # nothing says when the watching begins
            (book / "data.txt").write_text("eight")
            lines = until(process, f"serving {address}")
            assert f"changed: {book / 'data.txt'}" in lines
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
