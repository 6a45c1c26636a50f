"""Where a claim may stand and where it is refused, each with its exact line."""

import pytest

from tests.claims.tiny import PROB, Project, build_page

BAD = "{claim}`0.95 <a.prob>`"
HEAD = "# Page\n\n" + PROB + "\nText {claim}`0.87 <a.prob>`.\n\n"
"""Seven lines, of which the sixth holds a good claim: what follows begins on the eighth."""

ALLOWED = {
    "paragraph": (f"One\ntwo {BAD}\nthree\n", 9),
    "second paragraph": (f"One\n\ntwo {BAD}\n", 10),
    "list item": (f"- one\n- two {BAD}\n", 9),
    "nested list": (f"- one\n  1. two\n  2. three {BAD}\n", 10),
    "second line of a list item": (f"- one\n- two\n  and {BAD}\n", 10),
    "task in a quote": (f"> one\n>\n> two {BAD}\n", 10),
    "table cell": (f"| a | b |\n|---|---|\n| x | y |\n| x | {BAD} |\n", 11),
    "table head": (f"| a | {BAD} |\n|---|---|\n| x | y |\n", 8),
    "admonition": (f":::{{note}}\none\n\ntwo {BAD}\n:::\n", 11),
    "admonition in an admonition": (f"::::{{note}}\none\n\n:::{{tip}}\ntwo {BAD}\n:::\n::::\n", 12),
    "admonition title": (f":::{{admonition}} one {BAD}\ntwo\n:::\n", 8),
    "folded solution": (f":::{{admonition}} one\n:class: dropdown\n\ntwo {BAD}\n:::\n", 11),
    "figure caption": (f"```{{figure}} a.svg\n:alt: x\n\none {BAD}\n```\n", 11),
    "figure legend": (f"```{{figure}} a.svg\n:alt: x\n\none\n\ntwo {BAD}\n```\n", 13),
    "table caption": (f":::{{table}} one {BAD}\n| a | b |\n|---|---|\n| x | y |\n:::\n", 8),
    "list table": (f"```{{list-table}}\n* - a\n  - b\n* - x\n  - {BAD}\n```\n", 12),
    "code block caption": (f"```{{code-block}} python\n:caption: one {BAD}\n\npass\n```\n", 9),
    "footnote": (f"One[^f].\n\nTwo.\n\n[^f]: three {BAD}\n", 12),
    "definition": (f"One\n: two {BAD}\n", 9),
    "term": (f"One {BAD}\n: two\n", 8),
    "emphasis": (f"One **two {BAD}**.\n", 8),
    "link": (f"One\n[two {BAD}](https://example.org).\n", 9),
    "reStructuredText in Markdown": ("```{eval-rst}\none\n\ntwo :claim:`0.95 <a.prob>`\n```\n", 11),
    "only in some outputs": (f"```{{only}} html\none\n\ntwo {BAD}\n```\n", 11),
    "topic": (f"```{{topic}} one\ntwo\n\nthree {BAD}\n```\n", 11),
}


@pytest.mark.parametrize("place", ALLOWED)
def test_a_claim_may_stand_here_and_has_its_exact_line(tmp_path, place):
    """A wrong number in running text is judged (it drifts), and reported at its own line."""
    text, line = ALLOWED[place]
    project = Project(tmp_path)
    project.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    project.write("index.md", HEAD + text)
    built = project.build()
    assert built.code == 1
    assert built.kinds == ["drift"]
    assert built.failures[0].startswith(f"book/index.md:{line}: claim a.prob says 0.95")


REFUSED = {
    "heading": (f"## Two {BAD}\n", 8, "misplaced", "a heading"),
    "heading in a box": (f":::{{note}}\n## Two {BAD}\n:::\n", 9, "misplaced", "a heading"),
    "rubric": (f":::{{rubric}} Two {BAD}\n:::\n", 8, "misplaced", "a heading"),
    "glossary term": (f"```{{glossary}}\ntwo {BAD}\n  three\n```\n", 9, "misplaced", "a glossary term"),
    "Markdown alt text": (f"One\n![two {BAD} three](a.svg)\n", 9, "misplaced", "alt text"),
    "alt option": (f"```{{image}} a.svg\n:alt: two {BAD}\n```\n", 9, "printed", "alt text"),
    "alt of a figure": (f"```{{figure}} a.svg\n:alt: two {BAD}\n\nthree\n```\n", 9, "printed", "alt text"),
    "maths": (f"One\n$x = $ and $y = {BAD}$\n", 9, "printed", "maths"),
    "display maths": (f"$$\nx = {BAD}\n$$\n", 9, "printed", "maths"),
    "maths directive": (f"```{{math}}\nx = {BAD}\n```\n", 9, "printed", "maths"),
    "inline code": (f"One\ntwo `` {BAD} ``\n", 9, "printed", "inline code"),
    "the name of a role in inline code": ("One\nthe `{claim}` role\n", 9, "printed", "inline code"),
    "code": (f"```python\npass\nx = '{BAD}'\n```\n", 10, "printed", "code"),
    "code without a language": (f"```\n{BAD}\n```\n", 9, "printed", "code"),
    "raw HTML": (f"<div>\n{BAD}\n</div>\n", 9, "printed", "raw HTML"),
    "HTML attribute": (f'<p title="{BAD}">One</p>\n', 8, "printed", "raw HTML"),
    "toctree caption": (f"```{{toctree}}\n:caption: two {BAD}\nb\n```\n", 9, "printed", "a toctree caption"),
    "toctree entry": (f"```{{toctree}}\ntwo {BAD} <b>\n```\n", 9, "printed", "a toctree entry"),
    "a bar in a table cell": (
        "| a | b |\n|---|---|\n| {claim}`much|more <a.prob>` | y |\n", 10, "printed", "a table cell",
    ),
    "no closing backtick": ("One\n\ntwo {claim}`0.87 <a.prob>\n", 10, "printed", "text"),
    "a space before the backtick": ("One\n\ntwo {claim} `0.87 <a.prob>`\n", 10, "printed", "text"),
}  # fmt: skip


@pytest.mark.parametrize("place", REFUSED)
def test_a_role_is_refused_here_with_its_exact_line(tmp_path, place):
    """One failure, which names the place."""
    text, line, kind, name = REFUSED[place]
    project = Project(tmp_path)
    project.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    project.write("b.md", "# B\n")
    project.write("index.md", HEAD + text)
    built = project.build()
    assert built.code == 1
    assert [(f.split(": ")[0], k) for f, k in zip(built.failures, built.kinds, strict=True)] == [
        (f"book/index.md:{line}", kind)
    ]
    assert name in built.failures[0]


@pytest.mark.parametrize(
    "matter",
    [f"---\nauthor: two {BAD}\n---\n", f"---\nabout: two {BAD}\n---\n",
     f"---\nmyst:\n  html_meta:\n    description: two {BAD}\n---\n",
     f"---\nmyst:\n  substitutions:\n    x: two {BAD}\n---\n"],
)  # fmt: skip
def test_front_matter_is_refused(tmp_path, matter):
    """Neither the fields that MyST parses, nor those it copies, nor those it keeps may hold a claim."""
    built = build_page(tmp_path, matter + HEAD)
    assert built.code == 1
    assert len(built.failures) == 1
    assert "front matter" in built.failures[0]
    assert built.failures[0].startswith(f"book/index.md:{matter[: matter.index(BAD)].count(chr(10)) + 1}: ")


@pytest.mark.parametrize("language", ["md", "markdown", "myst", "rst"])
def test_a_code_block_may_show_how_a_page_is_written(tmp_path, language):
    """The how-to page shows roles in code blocks of Markdown or reStructuredText; nothing in them is judged."""
    role = ":claim:`0.95 <a.prob>`" if language == "rst" else BAD
    built = build_page(tmp_path, HEAD + f"```{{code-block}} {language}\nA {role} and {role}\n```\n")
    assert built.kinds == []
    assert built.code == 0, built.errors


@pytest.mark.parametrize("comment", [f"% two {BAD}\n", f"<!-- two {BAD} -->\n", f"<!--\ntwo {BAD}\n-->\n"])
def test_a_comment_is_no_text(tmp_path, comment):
    """A role in a comment is not on the page and is left alone."""
    assert build_page(tmp_path, HEAD + comment).kinds == []


RST = """
Page
====

.. measured:: a.prob 0.87 spread=0.001

Text :claim:`0.87 <a.prob>`.

"""


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("One\ntwo :claim:`0.95 <a.prob>`\n", 10, "drift"),
        ("* one\n* two :claim:`0.95 <a.prob>`\n", 10, "drift"),
        ("===  ======\n a    b\n===  ======\nx    :claim:`0.95 <a.prob>`\n===  ======\n", 12, "drift"),
        (".. note::\n\n   one\n\n   two :claim:`0.95 <a.prob>`\n", 13, "drift"),
        ("One [#f]_.\n\n.. [#f] two :claim:`0.95 <a.prob>`\n", 11, "drift"),
        ("Two :claim:`0.95 <a.prob>`\n--------------------------\n\nText\n", 9, "misplaced"),
        (".. image:: a.svg\n   :alt: two :claim:`0.95 <a.prob>`\n", 10, "printed"),
        ("Literal ``:claim:`0.95 <a.prob>` here``\n", 9, "printed"),
        ("Text::\n\n   :claim:`0.95 <a.prob>`\n", 11, "printed"),
        ("One\n\nMyST's {claim}`0.95 <a.prob>` here\n", 11, "printed"),
        (".. :claim:`0.95 <a.prob>`\n", 0, ""),
        (".. code-block:: rst\n\n   :claim:`0.95 <a.prob>`\n", 0, ""),
    ],
)
def test_restructuredtext(tmp_path, text, line, kind):
    """The same rules and exact lines in reStructuredText."""
    project = Project(tmp_path, extensions=())
    project.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    project.write("index.rst", RST + text)
    built = project.build()
    assert built.kinds == ([kind] if kind else [])
    assert [f.split(": ")[0] for f in built.failures] == ([f"book/index.rst:{line}"] if kind else [])


@pytest.mark.parametrize(("suffix", "role", "include"), [
    ("md", "{claim}", "```{include} part.txt\n```\n"), ("rst", ":claim:", ".. include:: part.txt\n"),
])  # fmt: skip
def test_what_is_included_is_reported_in_its_own_file(tmp_path, suffix, role, include):
    """Claims, printed roles and numerals of an included file carry that file's name and lines."""
    project = Project(tmp_path, 'exclude_patterns = ["part*"]', extensions=("myst_parser",))
    good = f"{role}`0.87 <a.prob>`"
    head = HEAD if suffix == "md" else RST
    project.write(f"index.{suffix}", head + include + f"\nAfter\n\nafter 38 and {good}\n")
    code = f"``{role}`x <a.y>` z``"
    project.write("part.txt", f"One\n\ntwo {role}`0.95 <a.prob>`\n\nthree 37\n\nfour {code}\n\n{good}\n")
    built = project.build()
    assert built.code == 1, built.errors
    assert [(f.split(": ")[0], kind) for f, kind in zip(built.failures, built.kinds, strict=True)] == [
        (f"book/index.{suffix}:13", "unowned"),
        ("book/part.txt:3", "drift"), ("book/part.txt:5", "unowned"), ("book/part.txt:7", "printed"),
    ]  # fmt: skip


NO_ROLES = {
    "no braces": ("Two claim`0.95 <a.prob>`.", "claim without its braces: write {claim}`0.95 <a.prob>`"),
    "no braces around a statement": ("所、holds`真だ <a.b>`。", "holds without its braces: write {holds}`真だ <a.b>`"),
    "an id of one word": ("Two claim`0.95 <prob>`.", "claim without its braces: write {claim}`0.95 <prob>`"),
    "full-width braces": ("約｛claim｝`999個 <a.b>`。", "claim without its braces: write {claim}`999個 <a.b>`"),
    "one brace": ("Two claim}`0.95 <a.prob>`.", "claim without its braces: write {claim}`0.95 <a.prob>`"),
    "other brackets": ("Two [claim]`0.95 <a.prob>`.", "claim without its braces: write {claim}`0.95 <a.prob>`"),
    "a misspelt name in full-width braces": (
        "｛calim｝`0.95 <prob>`", "`0.95 <prob>` is code, and bound to nothing: write {claim}`0.95 <prob>`",
    ),
    "nothing before": (
        "Two `nothing <a.b>`.", "`nothing <a.b>` is code, and bound to nothing: write {claim}`nothing <a.b>`",
    ),
    "misspelt": ("Two {calim}`0.95 <a.prob>`.", "unknown role calim: did you mean claim?"),
    "plural": ("Two {hold}`true <a.prob>`.", "unknown role hold: did you mean holds?"),
}  # fmt: skip


@pytest.mark.parametrize("form", NO_ROLES)
def test_what_looks_like_a_role_and_is_none(tmp_path, form):
    """A number in it would be on the page with nothing behind it: refused at its line, with the way to write it."""
    text, message = NO_ROLES[form]
    built = build_page(tmp_path, f"{HEAD}One\n{text}\n")
    assert built.failures == [f"book/index.md:9: {message}"]


def test_what_looks_like_a_role_in_restructuredtext(tmp_path):
    """Single and double backticks, and the way to write it there."""
    project = Project(tmp_path, extensions=())
    page = "A\n=\n\n.. measured:: a.b True\n\nOne :holds:`so <a.b>`.\n\n"
    project.write("index.rst", f"{page}Two ``so <a.b>``.\n\nThree `so <a.b>`.\n\nFour :hold:`so <a.b>`.\n")
    wrong = "`so <a.b>` is code, and bound to nothing: write :claim:`so <a.b>`"
    assert project.build().failures == [
        f"book/index.rst:8: {wrong}", f"book/index.rst:10: {wrong}",
        "book/index.rst:12: unknown role hold: did you mean holds?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "The claim `List <T>` is code.", "One `#include <a.h>`.", "One `x <a.b> y`.", "One `<a.b>`.", "One `a<b.c>`.",
        "```md\nTwo claim`0.95 <a.prob>`.\n```", "One {kbd}`Enter` and `d = 64`.", "Proclaim `x`.",
    ],
)  # fmt: skip
def test_other_code_is_no_role(tmp_path, text):
    """Types, headers, tags; and a block of Markdown shows how a page is written."""
    assert build_page(tmp_path, HEAD + text + "\n").failures == []
