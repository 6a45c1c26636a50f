"""The files of tests/kernels run in processes of their own, where Triton's interpreter was asked for.

A kernel is for the interpreter or for the compiler from the moment its module is imported, so one process cannot have
both. On a machine with a GPU pytest collects tests/kernels itself, and the kernels run compiled. A process has several
files, for importing torch and Triton takes seconds.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(f"tests/kernels/{path.name}" for path in (ROOT / "tests" / "kernels").glob("test_*.py"))
SHARES = 4
"""Processes, which tests that run side by side share among them."""


def interpreted(*arguments):
    """Run pytest with the interpreter switched on; its exit status and what it printed."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def refused(status, printed):
    """What is wrong with a run: it failed, nothing passed, or something was skipped or expected to fail; else None."""
    if status != 0:
        return f"exit status {status}"
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped|xfailed|xpassed)", printed)}
    if not counts.get("passed"):
        return "no test passed"
    left = {word: n for word, n in counts.items() if word != "passed"}
    return f"not all passed: {left}" if left else None


@pytest.mark.parametrize("share", range(SHARES))
def test_in_the_interpreter(share):
    """Every test of every file passes; none is skipped, and each file has some that ran."""
    files = FILES[share::SHARES]
    status, printed = interpreted("-rp", *files)
    wrong = refused(status, printed)
    assert wrong is None, f"{wrong}\n{printed}"
    assert set(re.findall(r"^PASSED (tests/kernels/test_\w+\.py)::", printed, re.MULTILINE)) == set(files)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("def test_it(): assert False", "exit status 1"),
        ("import pytest\ndef test_it(): pytest.skip()", "no test passed"),
        ("import pytest\ndef test_it(): pytest.skip()\ndef test_more(): pass", "not all passed: {'skipped': 1}"),
        ("", "exit status 5"),
        ("def test_it(): pass", None),
    ],
)
def test_what_is_no_pass_is_found(tmp_path, body, wrong):
    """The check can fail: a failure, a skip and an empty file are refused."""
    file = tmp_path / "test_sample.py"
    file.write_text(body + "\n")
    assert refused(*interpreted(str(file), f"--rootdir={tmp_path}", "-c", os.devnull)) == wrong


def test_the_process_interprets(tmp_path):
    """The variable arrives, and the kernels' own question about it is answered with yes."""
    file = tmp_path / "test_sample.py"
    file.write_text("from attnbook.kernels.available import interpreting\ndef test_it(): assert interpreting()\n")
    assert refused(*interpreted(str(file), f"--rootdir={tmp_path}", "-c", os.devnull)) is None
