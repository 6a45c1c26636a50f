"""The exercise as a notebook in a kernel: filled in, run, and checked by its last cell."""

import nbformat
from nbclient import NotebookClient

from attnbook.lab.exercise import exercise_notebook
from attnbook.lab.notebook import notebook_source

WRITTEN = """def attention(q, k, v):
    print("noise")
    return rows(q @ k.T * q.shape[-1] ** -0.5) @ v"""
HELPER = """def rows(scores):
    weights = np.exp(scores)
    return weights / weights.sum(axis=AXIS, keepdims=True)"""


def test_the_last_cell_shows_the_report(tmp_path):
    """A function that uses another cell's function and constant is wrong first, and right when the constant is mended.

    The report is shown by itself, as HTML; what the function prints is not mixed with it. Saved with its outputs, the
    notebook still reads as the same code.
    """
    notebook = nbformat.reads(exercise_notebook("1", "en"), as_version=4)
    imports, function, check = notebook.cells[1:]
    function.source = WRITTEN
    helper = nbformat.v4.new_code_cell(HELPER)
    axes = [nbformat.v4.new_code_cell(f"AXIS = {axis}") for axis in (0, -1)]
    again = nbformat.v4.new_code_cell("from attnbook.lab import hint\ncheck(1, attention, lang='ja')")
    asked = nbformat.v4.new_code_cell("hint(1, lang='en')")
    notebook.cells = [imports, axes[0], helper, function, check, axes[1], again, asked]
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", [])]
    assert len(shown) == 3
    assert "along the wrong axis" in shown[0]["text/html"]
    assert "正しく動きます" in shown[1]["text/html"]
    assert shown[2]["text/markdown"].startswith("**Hint 1 of")
    path = tmp_path / "saved.ipynb"
    nbformat.write(notebook, path)
    space = {}
    exec(notebook_source(path), space)
    assert space["AXIS"] == -1
    assert space["attention"](*(space["np"].eye(2) for _ in range(3))).shape == (2, 2)
