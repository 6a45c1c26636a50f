"""Translated claims: compared with their source, judged in their language, reported at their catalogue."""

import pytest

from attnbook.claims.translations import Said, differences
from tests.claims.tiny import Project, measured

SOURCE = (
    "# 題\n\n" + measured("a.ratio", 8886110.5) + measured("a.prob", 0.98, 'unit="ratio"') + measured("a.flag", "True")
    + measured("a.half", 0.5, 'unit="ratio"')
    + "\n比は {claim}`約900万 <a.ratio>` で、確率は {claim}`98% <a.prob>` です。\n"
    + "\n文は {holds}`見えない <a.flag>` です。\n\n数字のない文。\n\n半分は {claim}`半分 <a.half>` です。\n"
)  # fmt: skip
FIRST = "比は {claim}`約900万 <a.ratio>` で、確率は {claim}`98% <a.prob>` です。"
GOOD = {
    FIRST: "확률은 {claim}`98% <a.prob>`이고 비는 {claim}`약 900만 <a.ratio>`입니다.",
    "文は {holds}`見えない <a.flag>` です。": "글은 {holds}`보이지 않는다 <a.flag>`.",
    "半分は {claim}`半分 <a.half>` です。": "{claim}`절반 <a.half>`입니다.",
}


def catalogue(messages, fuzzy=()):
    """A .po file; each message takes five lines, the first msgid stands on line 6."""
    text = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    for number, (msgid, msgstr) in enumerate(messages.items()):
        flag = "#, fuzzy" if msgid in fuzzy else "#."
        text += f'\n#: index.md:{number}\n{flag}\nmsgid "{msgid}"\nmsgstr "{msgstr}"\n'
    return text


def korean(folder, messages, fuzzy=(), conf='claims_source_language = "ja"\n', source=SOURCE):
    """A Japanese project with a Korean catalogue."""
    project = Project(folder, f'language = "ja"\n{conf}')
    project.write("index.md", source)
    if messages is not None:
        project.write("locales/ko/LC_MESSAGES/index.po", catalogue(messages, fuzzy))
    return project


def build(folder, messages, fuzzy=(), **options):
    """The Korean build of it."""
    return korean(folder, messages, fuzzy, **options).build("-D", "language=ko")


def test_a_faithful_translation_is_green(tmp_path):
    """Each claim is judged as Korean, and the ledger says where it stands."""
    project = korean(tmp_path, GOOD)
    built = project.build("-D", "language=ko")
    assert built.code == 0, built.errors
    assert "claims: 4 judged, 0 failed, 0 unowned (ko)" in built.status
    entries = {entry["id"]: entry for entry in built.ledger["claims"]}
    ratio = entries["a.ratio"]
    assert (ratio["text"], ratio["language"]) == ("약 900만", "ko")
    assert (ratio["document"], ratio["line"]) == ("book/index.md", 12)
    assert (ratio["po"], ratio["po_line"]) == ("book/locales/ko/LC_MESSAGES/index.po", 7)
    assert (project.out / "dummy" / "ledger.ko.json").is_file()


def test_the_source_build_is_not_held_to_catalogues(tmp_path):
    """In the source's own language nothing is compared, and the ledger keeps its name."""
    project = korean(tmp_path, {})
    assert project.build().code == 0
    assert (project.out / "dummy" / "ledger.json").is_file()


PO = "book/locales/ko/LC_MESSAGES/index.po:7: "
WRONG = {
    "missing": (
        "확률은 {claim}`98% <a.prob>`입니다.", ["missing"],
        "claim a.ratio '約900万' of the source is missing in ko: translate it inside its role",
    ),
    "missing, with the number in prose": (
        "확률은 {claim}`98% <a.prob>`이고 비는 약 900만입니다.", ["missing", "unowned"], "claim a.ratio '約900万'",
    ),
    "added": (
        GOOD[FIRST] + " {claim}`절반 <a.half>`", ["added"], "claim a.half '절반' in ko is bound to an id",
    ),
    "twice": (
        GOOD[FIRST] + " {claim}`98% <a.prob>`", ["added"], "claim a.prob stands 1 times in the source but 2 in ko",
    ),
    "another id": (
        GOOD[FIRST].replace("a.ratio", "a.half").replace("약 900만", "절반"), ["missing", "added"], "a.ratio",
    ),
    "another role": (
        GOOD[FIRST].replace("{claim}`98% <a.prob>`", "{holds}`높은 <a.prob>`"), ["other role", "not boolean"],
        "a.prob is claim in the source but holds in ko",
    ),
    "more digits than the source": (
        GOOD[FIRST].replace("98%", "98.0%"), ["other number"],
        "claim a.prob says 98.0% in ko but 98% in the source: another precision or unit",
    ),
    "another comparison": (
        GOOD[FIRST].replace("98%", "98% 이하"), ["other number"],
        "claim a.prob says 98% 이하 in ko but 98% in the source: another comparison",
    ),
    "about dropped": (
        GOOD[FIRST].replace("약 900만", "889만"), ["other number"],
        "claim a.ratio says 889만 in ko but 約900万 in the source: no about where the source has one",
    ),
    "a drift too": (
        GOOD[FIRST].replace("98%", "89%"), ["other number", "drift"],
        "claim a.prob says 89% in ko but 98% in the source: another number",
    ),
    "swapped": (
        GOOD[FIRST].replace("98% <a.prob>", "9 <a.ratio>").replace("약 900만 <a.ratio>", "98% <a.prob>"),
        ["other number", "drift"],
        "claim a.ratio says 9 in ko but 約900万 in the source: no about",
    ),
    "malformed": (
        GOOD[FIRST].replace(" <a.prob>", ""), ["missing", "malformed"], "claim a.prob '98%' of the source is missing",
    ),
    "unit outside": (
        GOOD[FIRST].replace("98% <a.prob>`", "0.98 <a.prob>`%"), ["unit outside"], "'%' beside it belongs inside",
    ),
    "a role of the source's text left in code": (
        GOOD[FIRST] + " `{claim}`", ["printed"], "{claim} in inline code is printed as it stands",
    ),
    "a number nobody owns": (GOOD[FIRST] + " 37개", ["unowned"], "nobody owns the number 37"),
    "a code block": (
        "```\\n{claim}`약 900만 <a.ratio>`\\n```", ["missing", "missing", "printed"], "claim a.prob '98%'",
    ),
    "the second paragraph is dropped": (
        "확률은 {claim}`98% <a.prob>`이다.\\n\\n비는 {claim}`약 900만 <a.ratio>`이다.", ["missing"], "claim a.ratio",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_each_fault_is_red_at_the_catalogue_line(tmp_path, fault):
    """What a translation claims otherwise than its source fails, at the line of its message."""
    text, kinds, message = WRONG[fault]
    built = build(tmp_path, GOOD | {FIRST: text})
    assert built.code == 1
    assert sorted(built.kinds) == sorted(kinds)
    assert all(failure.startswith(PO) for failure in built.failures)
    assert any(message in failure for failure in built.failures), built.failures


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", "is untranslated in ko"),
        (None, "is not in the catalogue in ko"),
        (
            "1. 비는 {claim}`약 900만 <a.ratio>`",
            "has a translation that Sphinx does not use (not one paragraph?) in ko",
        ),
    ],
)
def test_a_message_with_claims_that_is_not_translated(tmp_path, text, state):
    """It would show the source's language: red, naming the language, once for the message."""
    messages = GOOD | {FIRST: text}
    if text is None:
        del messages[FIRST]
    built = build(tmp_path, messages)
    assert built.code == 1
    assert built.kinds == ["untranslated"]
    held = "a message that holds claim a.ratio '約900万', claim a.prob '98%'"
    assert built.failures[0].endswith(f": {held} {state}")
    assert built.failures[0].startswith(PO if text is not None else PO.replace(":7:", ":1:"))


def test_a_fuzzy_message_with_claims(tmp_path):
    """A changed number makes the message fuzzy and shows Japanese: red, at the message."""
    built = build(tmp_path, GOOD, fuzzy=(FIRST,))
    assert built.code == 1
    assert built.kinds == ["fuzzy"]
    assert built.failures[0].startswith(PO)
    assert built.failures[0].endswith("is fuzzy in ko")


def test_no_catalogue_at_all(tmp_path):
    """Every message that holds a claim is reported, naming the catalogue that is missing."""
    built = build(tmp_path, None)
    assert built.code == 1
    assert built.kinds == ["untranslated"] * 3
    assert all("has no catalogue in ko" in failure for failure in built.failures)
    assert built.failures[0].startswith("book/locales/ko/LC_MESSAGES/index.po:1: ")


def test_without_the_source_language_there_is_no_comparison_and_it_is_said(tmp_path):
    """Catalogues without claims_source_language: the source's numbers can't be read, so the setting is asked for."""
    built = build(tmp_path, GOOD, conf="")
    assert built.code == 1
    assert "book/conf.py:1: there are catalogues for ko: set claims_source_language" in built.errors


def test_an_untranslated_message_without_claims_is_fine(tmp_path):
    """Only messages that hold a claim must be translated."""
    assert "数字のない文。" not in GOOD
    assert build(tmp_path, GOOD).code == 0


def test_mending_the_catalogue_mends_the_build(tmp_path):
    """Red on every build until the .po is mended, then green, incrementally."""
    project = korean(tmp_path, GOOD | {FIRST: ""})
    assert [project.build("-D", "language=ko").code for _ in range(2)] == [1, 1]
    project.write("locales/ko/LC_MESSAGES/index.po", catalogue(GOOD))
    built = project.build("-D", "language=ko")
    assert built.code == 0, built.errors


def test_a_changed_source_number_is_red_in_every_translation(tmp_path):
    """The message id changes with the number: the translation no longer applies."""
    project = korean(tmp_path, GOOD)
    project.edit("index.md", "`98% <a.prob>`", "`98.0% <a.prob>`")
    assert project.build().code == 0
    built = project.build("-D", "language=ko")
    assert built.code == 1
    assert built.kinds == ["untranslated"]


PLACES = {
    "table": "| a | 比 {claim}`約900万 <a.ratio>` |\n|---|---|\n| b | c |\n",
    "list": "- 文\n- 比 {claim}`約900万 <a.ratio>`\n",
    "caption": "```{figure} a.svg\n:alt: 図\n\n比 {claim}`約900万 <a.ratio>`\n```\n",
    "admonition title": ":::{admonition} 比 {claim}`約900万 <a.ratio>`\n文\n:::\n",
    "footnote": "文[^f]。\n\n[^f]: 比 {claim}`約900万 <a.ratio>`\n",
    "definition": "語\n: 比 {claim}`約900万 <a.ratio>`\n",
}


@pytest.mark.parametrize("place", PLACES)
def test_claims_are_translated_wherever_they_stand(tmp_path, place):
    """In each kind of block the translation is judged, and without it the build is red."""
    msgid, msgstr = "比 {claim}`約900万 <a.ratio>`", "비 {claim}`약 900만 <a.ratio>`"
    source = "# 題\n\n" + measured("a.ratio", 8886110.5) + "\n" + PLACES[place]
    project = korean(tmp_path, {msgid: msgstr}, source=source)
    project.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    built = project.build("-D", "language=ko")
    assert built.code == 0, built.errors
    assert [entry["text"] for entry in built.ledger["claims"]] == ["약 900만"]
    project.write("locales/ko/LC_MESSAGES/index.po", catalogue({msgid: msgstr.replace("900", "800")}))
    built = project.build("-D", "language=ko")
    assert built.kinds == ["other number", "drift"]
    project.write("locales/ko/LC_MESSAGES/index.po", catalogue({"x": "y"}))
    assert project.build("-D", "language=ko").kinds == ["untranslated"]


FIXED = """
class Fixed(Directive):
    required_arguments, final_argument_whitespace = 1, True

    def run(self):
        from docutils import nodes
        children, _ = self.state.inline_text(self.arguments[0], self.lineno)
        return [nodes.paragraph("", "", *children, translatable=False)]

_measured = setup
def setup(app):
    app.add_directive("fixed", Fixed)
    return _measured(app)
"""


def test_a_claim_that_no_translation_reaches(tmp_path):
    """Where an extension keeps a text out of the catalogues, its claim would stay in the source's language: red."""
    source = "# 題\n\n" + measured("a.ratio", 8886110.5) + "\n:::{fixed} 比 {claim}`約900万 <a.ratio>`\n:::\n"
    project = korean(tmp_path, {"x": "y"}, source=source, conf='claims_source_language = "ja"\n' + FIXED)
    assert project.build().code == 0
    built = project.build("-D", "language=ko")
    assert built.code == 1
    assert built.failures == ["book/index.md:6: claim '約900万' stands where no translation reaches it"]


def said(*claims):
    return [Said("claim", ident, text) for ident, text in claims]


@pytest.mark.parametrize(
    ("ours", "theirs", "statuses"),
    [
        ([("a", "98%"), ("b", "3")], [("b", "3"), ("a", "98%")], []),
        ([("a", "98%")], [("a", "0.98")], []),
        ([("a", "0.12")], [("a", "0.1234")], ["other number"]),
        ([("a", "6")], [("a", "600")], ["other number"]),
        ([("a", "1"), ("b", "2")], [("a", "2"), ("b", "1")], ["other number", "other number"]),
        ([("a", "1"), ("a", "2")], [("a", "2"), ("a", "1")], []),
        ([("a", "1"), ("a", "2")], [("a", "1"), ("a", "1")], ["other number"]),
        ([("a", "1e-6未満")], [("a", "1e-6 이하")], ["other number"]),
        ([("a", "1e-6未満")], [("a", "1e-6 미만")], []),
        ([("a", "2〜3倍")], [("a", "2~3배")], []),
        ([("a", "1")], [], ["missing"]),
        ([], [("a", "1")], ["added"]),
        ([("a", "読めない")], [("a", "12")], []),
    ],
)
def test_differences(ours, theirs, statuses):
    """Order is free; ids, counts, numbers and comparisons are not; the unreadable is reported elsewhere."""
    assert [status for status, _ in differences(said(*ours), said(*theirs), "ja", "ko")] == statuses
