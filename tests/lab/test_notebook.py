"""A reader's notebook, read back as Python."""

import json

import nbformat
import pytest

from attnbook.lab.exercise import CHECK_TAG, exercise_notebook, exercise_source
from attnbook.lab.notebook import NotebookError, cell_and_line, code_cells, notebook_source


@pytest.fixture
def written(tmp_path):
    """Writes a notebook of these code cells; one that is a tuple has a tag."""

    def write(*cells):
        notebook = nbformat.v4.new_notebook()
        for cell in cells:
            source, tags = cell if isinstance(cell, tuple) else (cell, [])
            notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags} if tags else {}))
            notebook.cells.append(nbformat.v4.new_markdown_cell("prose ="))
        path = tmp_path / "n.ipynb"
        path.write_text(nbformat.writes(notebook), encoding="utf-8")
        return path

    return write


def read(path):
    space = {}
    exec(notebook_source(path), space)
    return space


def test_cells_are_joined_in_order_without_the_check(written):
    """Code cells alone; a cell with the tag is the lab's."""
    path = written("a = 1\n", "b = a + 1", ("raise ZeroDivisionError", [CHECK_TAG]), "c = b + 1")
    assert notebook_source(path) == "a = 1\n\nb = a + 1\n\nc = b + 1\n"


def test_a_new_exercise_holds_what_its_python_file_holds(tmp_path):
    """The same code but for the opening, though a cell and not a docstring tells the goal there."""
    path = tmp_path / "n.ipynb"
    path.write_text(exercise_notebook("1", "ja"), encoding="utf-8")
    ours = exercise_source("1", "ja").partition('"""\n\n')[2]
    assert notebook_source(path).split() == ours.split()


@pytest.mark.parametrize(
    "magic",
    ["%matplotlib inline", "!pip list", "np.exp?", "?print", "files = !ls", "%%time\nnp = None", "  %time x = 2"],
)
def test_magics_are_left_out(written, magic):
    """Whatever only IPython understands neither stops the reading nor moves a line."""
    path = written(f"if True:\n  x = 1\n{magic}\ny = 3", "z = 4")
    assert {"x": 1, "y": 3, "z": 4}.items() <= read(path).items()
    assert cell_and_line(path, 3 + magic.count("\n") + 1)[1] == 3 + magic.count("\n") + 1


def test_a_cell_of_another_language_is_left_out(written):
    """`%%bash` takes its cell along."""
    assert notebook_source(written("%%bash\nfor f in *; do", "a = 1")).split() == ["a", "=", "1"]


def test_a_line_may_begin_with_percent(written):
    """In an expression over several lines it is the remainder, and stays."""
    assert read(written("x = (17\n  % 5)"))["x"] == 2


def test_calls_of_the_lab_are_left_out_wherever_they_are(written):
    """A check that runs what it checks would check again, and so on; other functions' calls stay."""
    path = written(
        "from attnbook.lab import check\nx = [1]", "print(check(1,\n  x))\nreport = check(1, x)\nx.append(2)"
    )
    assert read(path)["x"] == [1, 2]
    assert "check" not in notebook_source(path)
    assert cell_and_line(path, 7) == (2, 4)


def test_what_is_no_python_stays_as_it_was(written):
    """The check says where; it is the reader's mistake, not ours to hide."""
    assert notebook_source(written("def f(:\n  pass")) == "def f(:\n  pass\n"


def test_lines_lead_back_to_cells(written):
    """Cells are counted as the reader counts code cells, checks included; a line between two belongs to none."""
    path = written("a = 1\nb = 2", ("check()", [CHECK_TAG]), "", "c = 3")
    lines = notebook_source(path).splitlines()
    assert [cell_and_line(path, number) for number in range(1, len(lines) + 2)] == [
        (1, 1), (1, 2), None, (3, 1), None, (4, 1), None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "n.ipynb: not a notebook: Expecting"),
        ("[]", "n.ipynb: not a notebook of format 4"),
        ('{"worksheets": []}', "n.ipynb: not a notebook of format 4: expected a list of cells"),
        (json.dumps({"cells": [{"cell_type": "code", "source": 3}]}), "n.ipynb: code cell 1: expected a text"),
    ],
)
def test_a_file_that_is_no_notebook(tmp_path, text, message):
    """The error names it and says what was expected."""
    path = tmp_path / "n.ipynb"
    path.write_text(text)
    with pytest.raises(NotebookError, match=message):
        code_cells(path)
