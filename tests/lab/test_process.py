"""The reader's process: whatever their code does there, the check goes on, says what happened, and leaves no trace."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attnbook.lab.process import Process
from attnbook.lab.step import Outcome

ONE = np.ones((1, 1), np.float32)


def ran(
    body: str, *arguments: object, seconds: float = 3.0, megabytes: int = 512, folder: Path | None = None
) -> Outcome:
    """What a function of that body does with the arguments (default: one array)."""
    source = "import numpy as np\ndef f(*args):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    with Process(megabytes=megabytes, folder=folder) as process:
        found, failure = process.load({"source": source, "file": "reader.py"}, ("f",))
        assert failure is None
        assert found == ("f",)
        return process.call("f", tuple(arguments) or (ONE,), seconds=seconds, driver=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise NotImplementedError", "unwritten"),
        ("import sys; sys.exit(3)", "exited"),
        ("quit()", "exited"),
        ("raise KeyboardInterrupt", "raised"),
        ("return args[0] / 0 if False else 1 / 0", "raised"),
        ("return f()\n" * 1, "raised"),  # endless recursion
        ("input()", "raised"),  # nobody is there to answer
        ("import os; os._exit(0)", "died"),
        ("import ctypes; ctypes.string_at(0)", "died"),
        ("pass", "none"),
        ("return 'a'", "not_numbers"),
        ("return [[1.0], [2.0, 3.0]]", "not_numbers"),
        ("return (x for x in args)", "not_numbers"),
        ("return 10**400", "not_numbers"),
        ("x = []\nx.append(x)\nreturn x", "not_numbers"),
        ("class A:\n    def __array__(self, *_, **__): raise NotImplementedError\nreturn A()", "not_numbers"),
        ("return np.ones(10**12)", "memory"),
        ("x = [1]\nwhile True: x = x + x", "memory"),
    ],
)
def test_what_a_call_did_instead_of_returning_numbers_has_a_name(body: str, kind: str):
    failure = ran(body).failure
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize("body", ["while True: pass", "import time\ntime.sleep(1000)", "while True: print('x' * 1000)"])
def test_a_call_that_does_not_end_is_ended(body: str):
    start = time.monotonic()
    outcome = ran(body, seconds=0.2)
    assert outcome.failure is not None
    assert outcome.failure.kind == "endless"
    assert time.monotonic() - start < 10


def test_a_slow_machine_is_no_endless_loop():
    """Waiting is allowed for longer than computing: it is processor time that is limited."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells the processor time of another process here")
    assert ran("import time\ntime.sleep(0.4)\nreturn 1.0", seconds=0.2).failure is None


def test_a_fork_of_the_process_gives_no_second_answer():
    if not hasattr(os, "fork"):
        pytest.skip("only POSIX forks")
    with Process() as process:
        process.load({"source": "import os\ndef f(x):\n    os.fork()\n    return x", "file": "reader.py"}, ("f",))
        values = [process.call("f", (i,), seconds=3, driver=None).value for i in range(5)]
    assert values == [0, 1, 2, 3, 4]


def test_a_long_message_is_cut():
    failure = ran("raise ValueError('x' * 10**6)").failure
    assert failure is not None
    assert 100 < len(failure.text) < 1000


def test_a_line_of_the_reader_s_file_is_named():
    failure = ran("x = 1\nreturn x + None").failure
    assert failure is not None
    assert (failure.line, failure.text.partition(":")[0]) == (4, "TypeError")


def test_after_the_process_has_ended_every_call_says_why():
    with Process() as process:
        process.load({"source": "import os\ndef f():\n    os._exit(7)", "file": "reader.py"}, ("f",))
        first = process.call("f", (), seconds=3, driver=None)
        again = process.call("f", (), seconds=3, driver=None)
    assert first.failure is not None
    assert first.failure.text == "exit status 7"
    assert again.failure == first.failure


@pytest.mark.parametrize(
    ("source", "kind", "line"),
    [
        ("x = 1\ndef f(:\n", "unloadable", 2),
        ("x = 1\n\nundefined\n", "unloadable", 3),
        ("import sys\nsys.exit()\n", "exited", 2),
        ("from nowhere_at_all import f\n", "unloadable", 1),
    ],
)
def test_a_file_that_cannot_run_is_named_with_its_line(source: str, kind: str, line: int):
    with Process() as process:
        found, failure = process.load({"source": source, "file": "reader.py"}, ("f",))
    assert found == ()
    assert failure is not None
    assert (failure.kind, failure.line) == (kind, line)


def test_what_is_printed_is_kept_and_does_not_mix_with_answers():
    """Also below Python, to the descriptors themselves, which is how C code prints."""
    source = (
        "import os, sys\ndef f(x):\n    print('{\"value\": 1}')\n    os.write(1, b'to one\\n')\n"
        "    print('to two', file=sys.stderr)\n    return x\n"
    )
    with Process() as process:
        process.load({"source": source, "file": "reader.py"}, ("f",))
        outcome = process.call("f", (ONE,), seconds=3, driver=None)
    printed = process.printed()
    assert outcome.value is not None
    assert outcome.value.tolist() == [[1.0]]
    for part in ('{"value": 1}', "to one", "to two"):
        assert part in printed


def test_much_that_is_printed_takes_no_memory():
    outcome = ran("for _ in range(3000): print('x' * 1000)\nreturn 1.0")
    assert outcome.failure is None


def test_the_arguments_here_stay_as_they_are_and_a_change_there_is_noticed():
    mine = np.arange(6, dtype=np.float32).reshape(2, 3)
    outcome = ran("args[1][0, 0] = 9\nreturn args[0]", mine, mine)
    assert outcome.changed == (1,)
    assert mine[0, 0] == 0
    assert ran("x = args[0] + 1\nreturn x", mine).changed == ()


def test_code_that_imports_torch_gets_tensors():
    source = (
        "def f(x):\n    import torch\n    return isinstance(x, torch.Tensor)\ndef g(x):\n    return hasattr(x, 'numpy')"
    )
    with Process() as process:
        process.load({"source": source, "file": "reader.py"}, ("f", "g"))
        tensor = process.call("f", (ONE,), seconds=3, driver=None)
        process.load({"source": "def g(x):\n    return hasattr(x, 'numpy')", "file": "reader.py"}, ("g",))
        array = process.call("g", (ONE,), seconds=3, driver=None)
    assert tensor.value is not None
    assert array.value is not None
    assert (bool(tensor.value), bool(array.value)) == (True, False)


def test_files_beside_the_reader_s_can_be_imported_and_hide_nothing(tmp_path: Path):
    """A file called numpy.py in the reader's folder must not break the check itself; theirs may import it."""
    (tmp_path / "numpy.py").write_text("raise ImportError('this is not NumPy')\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text("two = 2.0\n", encoding="utf-8")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert ran("from mine import two\nreturn two", folder=tmp_path).value == 2.0
    assert sorted(path.name for path in tmp_path.rglob("*")) == before  # no __pycache__ either


def test_processes_that_the_reader_s_code_started_end_with_it(tmp_path: Path):
    if os.name != "posix":
        pytest.skip("process groups are POSIX's")
    body = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "return float(child.pid)"
    )
    value = ran(body, folder=tmp_path).value
    assert value is not None
    deadline = time.monotonic() + 5
    while _alive(int(value)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(int(value))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.is_file() or stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
