"""Files of the reader's that import one another: what a step of theirs lacks is not said of the one that uses it."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnbook.lab.checking import check_code, check_file
from attnbook.lab.exercise import exercise_source, solution_source
from attnbook.lab.steps import step
from attnbook.lab.texts import LANGUAGES

STEP = step("capstone")
ALONE = replace(STEP, parts=STEP.parts[:1])
TORCH = """\
import torch

def causal_attention(q, k, v):
    keep = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    return (q @ k.T / q.shape[1] ** 0.5).masked_fill(~keep, -torch.inf).softmax(-1) @ v
"""


def alone(folder: Path, text: str):
    """A check of the capstone's file, without the model."""
    return check_code(ALONE, {"source": text, "file": "capstone.py"}, folder=folder, lang="en")


def test_the_capstone_uses_the_step_beside_it(tmp_path):
    """Right with a right one; with a wrong one the mistake that was made there is named."""
    (tmp_path / "step4_causal_mask.py").write_text(solution_source("4"), encoding="utf-8")
    assert alone(tmp_path, solution_source("capstone")).ok
    (tmp_path / "step4_causal_mask.py").write_text(
        solution_source("4").replace("np.where(seen, scores, -np.inf)", "scores"), encoding="utf-8"
    )
    assert alone(tmp_path, solution_source("capstone")).mistakes == ("no_mask",)


def test_a_step_in_torch_gets_tensors_through_the_capstone(tmp_path):
    """Though the capstone's own file does not import torch."""
    (tmp_path / "step4_causal_mask.py").write_text(TORCH, encoding="utf-8")
    source = solution_source("capstone").replace("import numpy as np", "").replace("np.stack(", "(")
    assert alone(tmp_path, source).ok


def test_torch_in_a_library_is_not_the_readers(tmp_path):
    """Who writes NumPy gets arrays, though a package that they import loads torch."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "__init__.py").write_text("import torch\n")
    (tmp_path / "step4_causal_mask.py").write_text(solution_source("4"), encoding="utf-8")
    numpy_only = "assert isinstance(q, np.ndarray)\n    shared = "
    source = "import library\n" + solution_source("capstone").replace("shared = ", numpy_only, 1)
    assert numpy_only in source
    assert alone(tmp_path, source).ok


def test_a_step_that_is_not_written_yet_is_named(tmp_path):
    """It is the other file's hole, and the model is not opened for it; the capstone's own is said as always."""
    (tmp_path / "step4_causal_mask.py").write_text(exercise_source("4", "en"), encoding="utf-8")
    (tmp_path / "capstone.py").write_text(solution_source("capstone"), encoding="utf-8")
    for lang in LANGUAGES:
        report = check_file("capstone", tmp_path / "capstone.py", lang=lang)
        assert report.mistakes == ("unwritten_import",)
        assert "step4_causal_mask.py" in str(report)
    (tmp_path / "capstone.py").write_text(exercise_source("capstone", "en"), encoding="utf-8")
    assert check_file("capstone", tmp_path / "capstone.py").mistakes == ("unwritten",)


def test_without_the_step_its_name_is_in_the_message(tmp_path):
    """The file cannot be loaded, and it says what is not there."""
    report = alone(tmp_path, solution_source("capstone"))
    assert report.mistakes == ("unloadable",)
    assert "No module named 'step4_causal_mask'" in " ".join(str(report).split())


@pytest.mark.parametrize("body", ["raise ValueError('no')", "pass", "return q[0]"])
def test_what_returns_nothing_usable_is_not_put_into_the_model(tmp_path, body):
    """The first part's finding is the only one."""
    source = f"def attention(q, k, v):\n    {body}\n"
    report = check_code(STEP, {"source": source, "file": "capstone.py"}, folder=tmp_path)
    assert [result.part for result in report.results] == [""]
    assert not report.ok
