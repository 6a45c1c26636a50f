"""`check` as it is called: from a notebook with functions, or with a file; bad calls say what was expected."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from attnbook.lab import check
from attnbook.lab.checking import check_file

RIGHT = """
import numpy as np
def attention(q, k, v):
    w = np.exp(q @ k.T / np.sqrt(q.shape[1]))
    return w @ v / w.sum(1)[:, None]
"""


def right(q, k, v):
    import numpy as np

    w = np.exp(_scores(q, k))
    return w @ v / w.sum(1)[:, None]


def _scores(q, k):
    return q @ k.T / q.shape[1] ** 0.5


def test_functions_are_taken_along_with_what_they_use():
    """As in a notebook, whose cells are no module that another process could import."""
    space: dict[str, object] = {"__name__": "__main__"}
    exec(
        "import numpy as np\nROOT = 0.5\ndef scores(q, k): return q @ k.T / q.shape[1] ** ROOT\n"
        "def mine(q, k, v):\n    w = np.exp(scores(q, k))\n    return w @ v / w.sum(1)[:, None]\n",
        space,
    )
    assert check(1, space["mine"], lang="en").ok  # type: ignore[arg-type]
    assert check(1, lambda q, k, v: None, lang="en").mistakes == ("none",)


def test_a_function_that_uses_torch_gets_tensors():
    source = "import torch\ndef f(q, k, v):\n    return torch.softmax(q @ k.T / q.shape[1] ** 0.5, -1) @ v\n"
    space: dict[str, object] = {"__name__": "__main__"}
    exec(source, space)
    assert check(1, space["f"], lang="en").ok  # type: ignore[arg-type]


def test_a_function_that_ends_its_process_ends_nothing_here():
    space: dict[str, object] = {"__name__": "__main__"}
    exec("import os\ndef f(q, k, v):\n    os._exit(0)\n", space)
    assert check(1, space["f"], lang="en").mistakes == ("died",)  # type: ignore[arg-type]


def test_a_file_is_checked_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "step1_three_lines.py"
    path.write_text(RIGHT, encoding="utf-8")
    before = path.stat()
    assert check_file(1, path, lang="en").ok
    after = path.stat()
    assert (after.st_mtime_ns, after.st_ino, path.read_text(encoding="utf-8")) == (
        before.st_mtime_ns,
        before.st_ino,
        RIGHT,
    )
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_in_another_encoding_is_read_as_python_reads_it(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_bytes(("# -*- coding: euc-jp -*-\n# 三行\n" + RIGHT).encode("euc-jp"))
    assert check_file(1, path, lang="en").ok


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((99, right), KeyError, "there is no step 99 in the lab"),
        ((1,), TypeError, "step 1 has 1 functions (attention), got 0"),
        ((1, right, right), TypeError, "got 2"),
        ((1, 3.0), TypeError, "takes functions, got float"),
    ],
)
def test_a_bad_call_says_what_was_expected(arguments, error, text):
    with pytest.raises(error) as raised:
        check(*arguments, lang="en")
    assert text in str(raised.value)


def test_an_unknown_language_is_named():
    with pytest.raises(ValueError, match="ja, ko, en"):
        check(1, right, lang="fr")


def test_the_lab_is_light_and_its_names_stay_functions():
    """Also after the module that has the function was loaded, which must not take the function's name."""
    code = (
        "import sys\nsys.modules['torch'] = None\nimport attnbook.lab\nassert 'numpy' not in sys.modules\n"
        "from attnbook.lab import check\nfrom attnbook.lab import check as again\n"
        "assert callable(check) and check is again\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_cloudpickle_it_says_how_to_get_it(monkeypatch):
    """Functions of a notebook can't be taken along without it."""
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs cloudpickle, .*: pip install 'attnbook\[lab\]'"):
        check(1, right)


class Held:
    """A function that is found in an object."""

    def __init__(self, function):
        self.function = function

    def __call__(self, q, k, v):
        return self.function(q, k, v)


def _of_tensors(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def _imports_within(q, k, v):
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q[None], k[None], v[None])[0]


@pytest.mark.parametrize("function", [_imports_within, Held(_of_tensors)])
def test_a_function_whose_torch_is_hidden_gets_tensors(function):
    """Within the function, or in an object and in a method of tensors."""
    assert check(1, function, lang="en").ok


def test_what_is_wrong_with_tensors_is_named_as_with_arrays():
    assert check(1, lambda q, k, v: (q @ k.mT).softmax(-1) @ v, lang="en").mistakes == ("no_scale",)


def test_what_neither_can_do_is_told_of_arrays():
    """Who has no torch in mind reads no word of it."""
    report = check(1, lambda q, k, v: q.attend(k, v), lang="en")
    assert report.mistakes == ("raised",)
    assert "'numpy.ndarray' object has no attribute 'attend'" in " ".join(str(report).split())


def test_what_cannot_be_taken_along_is_said():
    held = threading.Lock()
    with pytest.raises(TypeError, match=r"can't be taken to the process .* cannot pickle '_thread.lock'"):
        check(1, lambda q, k, v: held)
