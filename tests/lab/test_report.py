"""What the check says: the mistake, the smallest input, the page; in three languages, as text, HTML and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attnbook.lab.checking import check_code
from attnbook.lab.report import Report, plain, shown
from attnbook.lab.step import Given
from attnbook.lab.steps import step
from attnbook.lab.texts import LANGUAGES, Language
from attnbook.lab.wrapping import WIDTH, columns

NO_SCALE = (
    "import numpy as np\ndef attention(q, k, v):\n    w = np.exp(q @ k.T)\n    return w / w.sum(1, keepdims=True) @ v\n"
)

TRANSPOSED = (
    "import numpy as np\ndef attention(q, k, v):\n    w = np.exp(q @ k.T / np.sqrt(q.shape[1]))\n"
    "    return (w / w.sum(1, keepdims=True) @ v).T\n"
)


def report(source: str, lang: Language = "en") -> Report:
    return check_code(step(1), {"source": source, "file": "mine.py"}, folder=Path.cwd(), lang=lang)


@pytest.fixture(scope="module")
def no_scale() -> Report:
    return report(NO_SCALE.replace("    w = ", "    print('<b>here</b>')\n    w = "))


def test_a_prompt_shows_what_print_shows(no_scale: Report):
    """Python's, and a notebook's where it shows no HTML."""
    assert repr(no_scale) == str(no_scale)


def test_a_mistake_is_shown_with_its_input_both_answers_and_the_page(no_scale: Report):
    assert str(no_scale) == (
        "Step 1: Write the three lines\n"
        "✗ attention\n"
        "  The scale is missing: the scores are the dot products themselves, not divided by √d.\n"
        "  The smallest input that shows it:\n"
        "    q = [[1., 1., 1., 1.]]\n"
        "    k = [[1., 1., 1., 1.],\n"
        "         [1., 0., 0., 0.]]\n"
        "    v = [[1.],\n"
        "         [0.]]\n"
        "    expected = [[0.8176]]\n"
        "    returned = [[0.9526]]\n"
        "  In the book: 03-scaling.html#scaling-idea\n"
        "What the function printed (the end of it):\n" + "\n".join(["  | <b>here</b>"] * 6)
    )


def test_a_notebook_shows_the_same_and_nothing_printed_becomes_markup(no_scale: Report):
    page = no_scale._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;here" in page
    assert 'lang="en"' in page


def test_json_has_the_numbers_themselves(no_scale: Report):
    data = json.loads(json.dumps(no_scale.as_json(), allow_nan=False))
    (function,) = data["functions"]
    assert (data["step"], data["ok"], function["ok"], function["mistakes"]) == ("1", False, False, ["no_scale"])
    assert function["input"]["k"] == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert abs(function["expected"][0][0] - 1 / (1 + np.exp(-1.5))) < 1e-12
    assert function["pages"] == ["03-scaling#scaling-idea"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_language_says_it_in_its_own_words(no_scale: Report, lang: Language):
    told = str(Report("1", lang, no_scale.results))
    others = [str(Report("1", other, no_scale.results)) for other in LANGUAGES if other != lang]
    assert told not in others
    assert "{" not in told
    assert "0.9526" in told


def test_the_lines_of_a_matrix_stand_below_each_other_after_wide_letters_too():
    lines = str(report(TRANSPOSED, "ja")).splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("正しい値 = [["))
    wide = len("正しい値")  # letters as wide as two
    assert lines[first].index("[[") + wide + 1 == lines[first + 1].index("[")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_line_of_a_message_is_wider_than_a_page(lang: Language):
    told = str(report("def attention(q, k, v):\n    raise ValueError('so many words ' * 20)\n", lang))
    assert max(columns(line) for line in told.splitlines()) <= WIDTH
    assert " ".join(told.split()).count("so many words") == 20


def test_what_is_right_is_said_shortly():
    good = report(NO_SCALE.replace("q @ k.T", "q @ k.T / np.sqrt(q.shape[1])"))
    assert good.ok
    assert str(good) == "Step 1: Write the three lines\n✓ attention: Right."
    assert good.mistakes == ()


def test_a_failure_names_the_line_and_shows_the_input():
    told = str(report(NO_SCALE.replace("k.T", "k")))
    assert "It raised an exception (line 3): ValueError" in told
    assert "q = [[2., 0.]," in told or "q = [[1., 1., 1., 1.]]" in told
    assert "returned" not in told


def test_an_exercise_that_is_not_written_shows_no_input():
    told = str(report("def attention(q, k, v):\n    raise NotImplementedError\n"))
    assert told == "Step 1: Write the three lines\n✗ attention\n  It is not written yet."


def test_a_file_that_does_not_run_is_one_finding():
    found = report("def attention(:\n")
    assert found.mistakes == ("unloadable",)
    assert "(line 1): SyntaxError" in str(found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([[1.0, 2.5]], np.float32), "[[1. , 2.5]]"),
        (np.array([1.0, 1e-9]), "[1.e+00, 1.e-09]"),  # a small number does not become 0
        (np.zeros((3, 50), np.float32), "(3, 50) float32"),
        (np.float64(1 / 3), "0.333333"),
        (7, "7"),
        (np.array(7), "7"),
        (np.array([3, 4]), "[3, 4]"),
        (np.array([True, False]), "[ True, False]"),
        (np.array(0.5), "0.5"),
        (True, "True"),
        (Given("attnbook.lab.flawed:attention"), "attention"),
        (Given("attnbook.lab.flawed:softmax", {"axis": 0}), "softmax(axis=0)"),
        (np.array([np.nan, -np.inf]), "[ nan, -inf]"),
    ],
)
def test_values_as_people_read_them(value: object, text: str):
    assert shown(value) == text  # type: ignore[arg-type]


def test_numbers_that_json_lacks_are_words():
    assert plain(np.array([[np.nan, -np.inf, 1.5]])) == [["nan", "-inf", 1.5]]


def test_the_largest_difference_is_named_where_the_table_is_too_large_to_show():
    """A function that is right for everything but the last entry of a large table."""
    source = NO_SCALE.replace("q @ k.T", "q @ k.T / np.sqrt(q.shape[1])").replace(
        "    return w / w.sum(1, keepdims=True) @ v",
        "    out = w / w.sum(1, keepdims=True) @ v\n    if out.size > 100: out[-1, -1] += 1\n    return out",
    )
    told = str(report(source))
    assert "q = (11, 17) float32" in told
    assert "largest difference, at [10, 18]: expected" in told
