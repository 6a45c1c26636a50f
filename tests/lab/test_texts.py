"""Texts in three languages: which language is spoken, and that nothing is missing unnoticed."""

import pytest

from attnbook.lab import texts
from attnbook.lab.texts import LANGUAGES, Texts, language

HELD = Texts(
    "7",
    {
        "title": {"ja": "題", "ko": "제목", "en": "Title"},
        "functions": {"f": {"ja": "関数", "ko": "함수"}},
        "hints": [{"ja": "一", "ko": "하나", "en": "one"}, {"ja": "二", "ko": "둘"}],
        "mistakes": {
            "off": {"page": "05-mask#mask", "ja": "{by} ずれ", "ko": "{by}만큼", "en": "off by {by}, {{braced}}"},
            "silent": {"ja": "あ", "ko": "아", "en": "ah"},
        },
    },
)


@pytest.mark.parametrize(
    ("wanted", "environment", "spoken"),
    [
        ("ja", {"LANG": "ko_KR.UTF-8"}, "ja"),
        ("KO-kr", {}, "ko"),
        (None, {"LC_ALL": "ja_JP.UTF-8", "LANG": "ko_KR.UTF-8"}, "ja"),
        (None, {"LC_ALL": "", "LC_MESSAGES": "ko_KR", "LANG": "ja"}, "ko"),
        (None, {"LANG": "ja.UTF-8"}, "ja"),
        (None, {"LC_ALL": "C.UTF-8", "LANG": "ja_JP"}, "en"),
        (None, {"LANG": "fr_FR.UTF-8"}, "en"),
        (None, {"LANG": "jam"}, "en"),
        (None, {}, "en"),
    ],
)
def test_the_language(wanted, environment, spoken):
    """What was asked for wins, then the first variable of the locale that is set; any other locale means English."""
    assert language(wanted, environment) == spoken


def test_a_language_that_the_lab_does_not_speak():
    """Asked for by name it is an error that says what there is."""
    with pytest.raises(ValueError, match="speaks ja, ko, en, got 'fr'"):
        language("fr")


def test_texts_of_a_step():
    """The docstring of English is the solution's own; details are filled in, also those of a mistake's page."""
    assert HELD.title("ko") == "제목"
    assert HELD.function("f", "ja") == "関数"
    assert HELD.function("f", "en") is None
    assert HELD.mistake("off", "en", by="1") == "off by 1, {braced}"
    assert (HELD.page("off"), HELD.page("silent")) == ("05-mask#mask", None)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: HELD.goal("ja"), "step 7 has no text goal"),
        (lambda: HELD.hints("en"), "step 7: hint 2 is not there in en"),
        (lambda: HELD.hole("lines", "en"), "step 7 has no text holes.lines"),
        (lambda: HELD.mistake("other", "en"), "no text of the mistake other; of its own: off, silent"),
        (lambda: HELD.mistake("off", "en"), "mistakes.off asks for a detail that is not given: 'by'"),
        (lambda: texts.texts(99), "no step 99 in the lab: it has 1"),
        (lambda: texts.say("en", "no.such"), "the lab has no text no.such"),
    ],
)
def test_a_missing_text_is_named(ask, message):
    """No text falls back to another language: the error says which text lacks where."""
    with pytest.raises(KeyError, match=message):
        ask()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_first_step_is_read_from_beside_its_module(lang):
    """The TOML file is found as part of the package."""
    assert len(texts.texts(1).hints(lang)) >= 2
    assert texts.texts("1").title(lang) == texts.texts(1).title(lang) != ""
