"""Exercises from solutions: the holes, the docstrings in three languages, the notebook, the functions themselves."""

import ast
import json

import nbformat
import pytest

from attnbook.lab import exercise, texts
from attnbook.lab.exercise import ExerciseError, exercise_notebook, exercise_source, solution, solution_source
from attnbook.lab.steps import FILES
from attnbook.lab.texts import LANGUAGES, Texts
from attnbook.lab.wrapping import WIDTH, columns

SOLUTION = '''"""The solution."""

import math

BASE = 2


def given(x):
    """A function that stays whole."""
    return math.sqrt(x)


def written(x):
    """The English docstring,

    on three lines.
    """
    if x > 0:
        # hole: root
        half = x / 2

        return given(half)
        # end
    # hole: rest
    return -x
    # end
'''
HELD = Texts(
    "x",
    {
        "functions": {
            "given": {"ja": "与えた関数。", "ko": "주어진 함수."},
            "written": {"ja": "一行目\\。\n\n三行目", "ko": "함수."},
        },
        "holes": {
            "root": {"ja": "半分の。\n平方根", "ko": "제곱근", "en": "the root"},
            "rest": {"ja": "残り", "ko": "나머지", "en": "the rest"},
        },
    },
)  # fmt: skip

DOCUMENTED = ast.Module | ast.FunctionDef | ast.ClassDef


@pytest.fixture(autouse=True)
def held(monkeypatch):
    """Step "x" has the texts above."""
    monkeypatch.setattr(exercise, "texts", lambda key: HELD if key == "x" else texts.texts(key))


def drawn(lang="en", text=SOLUTION, **options):
    return exercise.with_holes(text, "x", lang, "Opening.\n\nGoal.", name="solution.py", **options)


def test_an_exercise_is_the_solution_with_holes():
    """Comment and NotImplementedError stand in each hole at its depth; all else stays as it was."""
    assert (
        drawn()
        == '''"""Opening.

Goal.
"""

import math

BASE = 2


def given(x):
    """A function that stays whole."""
    return math.sqrt(x)


def written(x):
    """The English docstring,

    on three lines.
    """
    if x > 0:
        # the root
        raise NotImplementedError
    # the rest
    raise NotImplementedError
'''
    )


def test_docstrings_speak_the_language_of_the_exercise():
    """Those of Python's parser say exactly what the texts say, a backslash included."""
    tree = ast.parse(drawn("ja"))
    assert ast.get_docstring(tree) == "Opening.\n\nGoal."
    assert [ast.get_docstring(node) for node in tree.body[3:]] == ["与えた関数。", "一行目\\。\n\n三行目"]
    assert "        # 半分の。\n        # 平方根\n        raise NotImplementedError\n" in drawn("ja")


def test_a_solution_is_shown_without_its_marks():
    """Nothing of its code is changed by that."""
    shown = drawn(keep=True)
    assert "# hole" not in shown
    assert "# end" not in shown
    assert ast.dump(ast.parse(shown).body[-1]) == ast.dump(ast.parse(SOLUTION).body[-1])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        # end\n", "", "solution.py:23: hole rest begins within hole root"),
        ("    return -x\n    # end\n", "    return -x\n", "solution.py:24: hole rest has no end"),
        ("        # hole: root\n", "", "solution.py:22: # end without a hole"),
        ("# hole: root", "# hole:", "solution.py:19: a hole without a name: write # hole: NAME"),
        ("# hole: root", "# hole root", "solution.py:19: expected # hole: NAME, got '# hole root'"),
        ("# hole: rest", "# hole: root", "solution.py:24: a second hole root"),
        ("    return -x\n", "", "solution.py:24: hole rest has no lines"),
        ("# hole: rest", "# hole: other", "solution.py:24: step x has no text holes.other"),
        ("BASE = 2", "# hole: base\nBASE = 2\n# end", "solution.py:5: hole base is outside a function"),
        ('"""The solution."""\n', "", "solution.py:1: no docstring"),
    ],
)
def test_malformed_marks(old, new, message):
    """Each is an error that names file and line."""
    assert SOLUTION.count(old) == 1
    with pytest.raises(ExerciseError, match=message):
        drawn(text=SOLUTION.replace(old, new))


def test_a_function_without_a_text_is_named():
    """A solution with one more function, which is explained in English only, makes no Japanese exercise."""
    text = SOLUTION + '\n\ndef more():\n    """More."""\n    return 1\n'
    assert "More." in drawn(text=text)
    with pytest.raises(KeyError, match=r"step x has no text functions\.more"):
        drawn("ja", text)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_notebook_is_valid_and_the_same_each_time(lang):
    """Format 4.5, no outputs, ids that are names; the last cell checks, and is tagged so."""
    text = exercise_notebook("1", lang)
    exercise_notebook.cache_clear()
    assert exercise_notebook("1", lang) == text
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert [cell.id for cell in notebook.cells] == ["goal", "code-1", "attention", "check"]
    assert notebook.cells[0].source.startswith("# ")
    assert texts.texts(1).title(lang) in notebook.cells[0].source
    assert all(cell.outputs == [] and cell.execution_count is None for cell in notebook.cells[1:])
    assert notebook.cells[-1].metadata.tags == ["attnbook-check"]
    assert notebook.cells[-1].source == "from attnbook.lab import check\n\ncheck(1, attention)"


def test_pieces_of_a_file_become_cells():
    """Statements that belong together are one cell, each function is one with the comment above it."""
    source = '"""Opening."""\n\nimport math\nA = 1\n\n\n# why\n@print\ndef f():\n    pass\n\n\nB = 2\nC = 3\n'
    assert list(exercise._pieces(source)) == [
        ("code-1", "import math\nA = 1"), ("f", "# why\n@print\ndef f():\n    pass"), ("code-2", "B = 2\nC = 3"),
    ]  # fmt: skip


def test_a_japanese_paragraph_is_one_line_in_the_notebook():
    """A browser would draw the break as a space; list items and other paragraphs keep theirs."""
    assert exercise._joined("一。\n二。\n\n三：\n- 四", "ja") == "一。二。\n\n三：\n- 四"
    assert exercise._joined("one\ntwo", "en") == "one\ntwo"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("key", FILES)
def test_no_docstring_is_wider_than_the_page(key, lang):
    """As the book shows them; code may be."""
    for source in (exercise_source(key, lang), solution_source(key, lang)):
        tree = ast.parse(source)
        told = [ast.get_docstring(node, clean=False) for node in (tree, *tree.body) if isinstance(node, DOCUMENTED)]
        assert [line for text in told for line in (text or "").splitlines() if columns(line) > WIDTH] == []


@pytest.mark.parametrize("key", FILES)
def test_functions_of_the_solution(key):
    """They come in the order of the step, and the exercise as Python defines the same names."""
    names = [function.__name__ for function in solution(key)]
    for lang in LANGUAGES:
        for source in (exercise_source(key, lang), solution_source(key, lang)):
            defined = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
            assert [name for name in defined if name in names] == names
        assert "raise NotImplementedError" in exercise_source(key, lang)
        code = [cell for cell in json.loads(exercise_notebook(key, lang))["cells"] if cell["cell_type"] == "code"]
        assert "".join(code[-1]["source"]).endswith(f", {', '.join(names)})")
