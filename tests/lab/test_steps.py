"""What holds for every step: whole texts, pages that exist, a solution that passes, an exercise that is unwritten."""

import ast
import re
from functools import cache
from importlib import resources
from pathlib import Path
from string import Formatter

import pytest

from attnbook.lab import step as interface
from attnbook.lab.exercise import exercise_source, holes, solution_source
from attnbook.lab.steps import FILES, step
from attnbook.lab.texts import LANGUAGES, phrases, texts

BOOK = Path(__file__).parents[2] / "book"
GENERAL = (*interface.KINDS, "changed", "remembers", "shape", "kind", "low_precision", "wrong")
"""Mistakes that the judge names in any step."""

every_step = pytest.mark.parametrize("key", FILES)


@cache
def labels(page):
    """The labels of a page's headings."""
    return set(re.findall(r"^\(([\w-]+)\)=$", (BOOK / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE))


def known(key):
    """The mistakes that a step names: imitated ones and recognised ones, each once."""
    return list(dict.fromkeys(name for part in step(key).parts for name in mistakes_of(part)))


def mistakes_of(part):
    return (*part.flaws, *(recogniser.name for recogniser in part.recognisers))


def solution_text(key):
    return (resources.files("attnbook.lab.solutions") / f"{step(key).stem}.py").read_text(encoding="utf-8")


def details(text):
    """The details that a text asks for."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@every_step
@pytest.mark.parametrize("lang", LANGUAGES)
def test_texts_are_complete(key, lang):
    """Title, goal, names of parts, two hints or more: none empty, none another language's."""
    said = texts(key)
    found = [said.title(lang), said.goal(lang), *said.hints(lang)]
    found += [said.part(part.key, lang) for part in step(key).parts if part.key]
    assert all(found)
    assert len(said.hints(lang)) == len(said.data["hints"]) >= 2
    if lang != "en":
        script = {"ja": r"[ぁ-んァ-ヶ]", "ko": r"[가-힣]"}[lang]
        assert all(re.search(script, text) for text in found if text != said.title(lang))


@every_step
def test_every_mistake_is_explained_in_three_languages(key):
    """Each flaw and each recogniser; the three texts ask for the same details, and no other text is left over."""
    own = texts(key).data.get("mistakes", {})
    for name in known(key):
        entry = texts(key)._mistake(name)
        asked = [details(entry[lang]) for lang in LANGUAGES]
        assert asked[0] == asked[1] == asked[2], name
        assert all(entry[lang].strip() for lang in LANGUAGES)
    assert set(own) - {*known(key), *GENERAL} == set()


@every_step
def test_every_mistake_has_a_place_in_the_book(key):
    """Its page is a file of the book and has the label."""
    for name in known(key):
        page, _, label = (texts(key).page(name) or "").partition("#")
        assert (BOOK / f"{page}.md").is_file(), name
        assert label in labels(page), name


def test_mistakes_of_any_function_are_explained_too():
    """Whatever the judge may name has a text in every language."""
    general = phrases()["mistakes"]
    assert set(GENERAL) == set(general)
    for name in GENERAL:
        assert details(general[name]["ja"]) == details(general[name]["ko"]) == details(general[name]["en"])


def test_phrases_ask_for_the_same_details_in_every_language():
    """All that stands around the steps."""
    for table in phrases().values():
        for name, entry in table.items():
            assert set(LANGUAGES) <= set(entry), name
            assert details(entry["ja"]) == details(entry["ko"]) == details(entry["en"]), name


@every_step
def test_solution_and_step_belong_together(key):
    """The solution defines the step's functions in its order; its holes and functions are those that have texts."""
    text = solution_text(key)
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert [name for name in defined if name in step(key).functions] == list(step(key).functions)
    assert {hole.name for hole in holes(text)} == set(texts(key).data["holes"])
    assert set(texts(key).data["functions"]) <= set(defined)


@every_step
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_exercise_is_unwritten_and_the_solution_passes(key, lang, judged):
    """As a reader would have them, judged in one process; `steps/test_capstone.py` opens the capstone's model."""
    # The capstone's own file imports the reader's of step 4, which lies beside it.
    exercise, right = (
        draw(key, lang).replace("from step4_", "from attnbook.lab.solutions.step4_")
        for draw in (exercise_source, solution_source)
    )
    compile(exercise, "exercise", "exec")
    for part in [part for part in step(key).parts if part.driver is None or key != "capstone"]:
        assert judged.diagnose(step(key), exercise, part) == ("unwritten",)
        if lang == "ja":
            assert judged.diagnose(step(key), right, part) == ()


@every_step
def test_the_step_has_its_page(key):
    """It shows the exercise, the hints and the solution of this step."""
    text = (BOOK / f"{step(key).page}.md").read_text(encoding="utf-8")
    for shows in ("exercise", "hints", "solution"):
        assert text.count(f"{{lab-{shows}}} {key}\n") == 1


def test_keys_and_files_are_each_ones_own():
    """No two steps share a file; a key is a number or words of small letters."""
    places = [(step(key).folder, step(key).stem) for key in FILES]
    assert len(set(places)) == len(places)
    assert all(step(key).key == key and re.fullmatch(r"[1-9]|[a-z]+(-\w+)?", key) for key in FILES)
