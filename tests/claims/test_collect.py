"""Numerals that nobody owns, and words beside a claim that belong inside it, found on finished pages."""

import pytest

from tests.claims.tiny import PROB, Project, build_page

HEAD = "# Page\n\n" + PROB + "\nText {claim}`0.87 <a.prob>`.\n\n"

UNOWNED = {
    "paragraph": ("One\ntwo 37 three\n", 9, "37"),
    "second of two equal numbers": ("Nothing here\n\nand 37 there\n", 10, "37"),
    "beside a claim": ("One {claim}`0.87 <a.prob>` and 0.871\n", 8, "0.871"),
    "full width": ("One\n\ntwo ３７個\n", 10, "３７"),
    "list item": ("- one\n- two 37\n", 9, "37"),
    "table cell": ("| a | b |\n|---|---|\n| x | 37 |\n", 10, "37"),
    "table head": ("| a | 37 |\n|---|---|\n| x | y |\n", 8, "37"),
    "figure caption": ("```{figure} a.svg\n:alt: x\n\none 37\n```\n", 11, "37"),
    "table caption": (":::{table} one 37\n| a | b |\n|---|---|\n| x | y |\n:::\n", 8, "37"),
    "code caption": ("```{code-block} python\n:caption: one 37\n\npass\n```\n", 9, "37"),
    "admonition": (":::{note}\none\n\ntwo 37\n:::\n", 11, "37"),
    "admonition title": (":::{admonition} one 37\ntwo\n:::\n", 8, "37"),
    "footnote": ("One[^f].\n\n[^f]: two 37\n", 10, "37"),
    "definition": ("One\n: two 37\n", 9, "37"),
    "term": ("One 37\n: two\n", 8, "37"),
    "emphasis": ("One **two 37** three\n", 8, "37"),
    "number split by emphasis": ("One 3**7** three\n", 8, "37"),
    "text of a link": ("One [37 times](https://example.org)\n", 8, "37"),
    "text of a link to a section": ("(here)=\n\nOne [37 times](#here)\n", 10, "37"),
    "quote": ("> one 37\n", 8, "37"),
    "HTML block": ("<div>\none 37\n</div>\n", 9, "37"),
    "between HTML tags": ("One <b>37</b>\n", 8, "37"),
    "raw HTML role": (
        "```{eval-rst}\n.. role:: raw-html(raw)\n   :format: html\n\nOne :raw-html:`<i>37</i>`\n```\n",
        12,
        "37",
    ),
    "number split by HTML tags": ("One 3<b>7</b> two\n", 8, "37"),
    "raised over nothing": ("One\ntwo ³⁷ three\n", 9, "³⁷"),
    "words in maths": ("One $\\text{two 37}$\n", 8, "37"),
    "entity": ("&#51;&#55; two\n", 8, "37"),
    "zero-width space after a letter": ("One\nx\u200b37 two\n", 9, "37"),
    "figure legend": ("```{figure} a.svg\n:alt: x\n\none\n\ntwo 37\n```\n", 13, "37"),
    "table of values": ("```{csv-table}\n:header: a, b\n\nx, 37\n```\n", 11, "37"),
    "raw block": ("```{raw} html\n<p>one 37</p>\n```\n", 9, "37"),
    "attribution": ("> one\n>\n> -- two 37\n", 10, "37"),
    "text of a reference": ("(here)=\n## Here\n\nOne {ref}`two 37 <here>`\n", 11, "37"),
    "substitution": ("One {{ size }}\n", 8, "37"),
    "in one output only": ("```{only} html\none 37\n```\n", 9, "37"),
    "result in inline code": ("One `0.9823` two\n", 8, "0.9823"),
    "result in maths": ("One $x \\approx 8886110$ two\n", 8, "8886110"),
    "result in display maths": ("One\n\n$$\nx \\approx 8886110\n$$\n", 11, "8886110"),
}


@pytest.mark.parametrize("place", UNOWNED)
def test_an_unowned_number_is_refused_with_its_line(tmp_path, place):
    """A numeral in prose that is no claim fails, at its own line."""
    text, line, number = UNOWNED[place]
    project = Project(tmp_path, 'myst_substitutions = {"size": "37"}')
    project.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    project.write("index.md", HEAD + text)
    built = project.build()
    assert built.code == 1
    assert built.kinds == ["unowned"]
    assert built.failures[0].startswith(f"book/index.md:{line}: ")
    assert number in built.failures[0]
    assert built.ledger["unowned"] == 1
    assert "1 unowned (en)" in built.status


OWNED = {
    "a claim": "One {claim}`0.87 <a.prob>`\n",
    "code block": "```python\nx = 37\n```\n",
    "definition in code": "One `d = 64` two\n",
    "definition in maths": "One $d = 64$ two\n",
    "name": "GPT-2, float32 and sm_90\n",
    "reference in words": "Chapter 3 and Figure 2\n",
    "name across emphasis": "GPT-**2**\n",
    "reference by label": "(sec-37)=\n## Two\n\n{ref}`sec-37` and [](#sec-37)\n",
    "section number as a link": "(sec-37)=\n## Two\n\n[3.2](#sec-37)\n",
    "page": "{doc}`page-37` and [](page-37.md)\n",
    "numbered figure": "```{figure} a.svg\n:name: fig-37\n:alt: x\n\none\n```\n\n{numref}`fig-37`\n",
    "footnote mark": "One[^7].\n\n[^7]: two\n",
    "address": "<https://example.org/37>\n",
    "heading": "## Two of 37\n",
    "front matter page": "Text\n",
    "alt text": "![one 37](a.svg)\n",
    "comment": "% one 37\n\n<!-- two 37 -->\n",
    "drawing": "<div><svg><text>37</text></svg></div>\n",
    "numbered list": "1. one\n2. two\n37. three\n",
}


@pytest.mark.parametrize("place", OWNED)
def test_what_is_no_number_in_prose_is_left_alone(tmp_path, place):
    """Names, references, definitions and code need no claim."""
    project = Project(tmp_path, "numfig = True")
    project.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    project.write("page-37.md", ":::{note}\nText\n:::\n")
    project.write("index.md", HEAD + OWNED[place])
    built = project.build()
    assert built.code == 0, built.errors
    assert built.kinds == []


def test_numerals_need_not_be_checked(tmp_path):
    """claims_check_numerals = False: a project may begin with its claims alone."""
    built = build_page(tmp_path, HEAD + "One 37\n", "claims_check_numerals = False")
    assert built.code == 0


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("ja", "{claim}`3 <a.x>`倍です", "倍"),
        ("ja", "約{claim}`3 <a.x>`です", "約"),
        ("ja", "{claim}`3 <a.x>` GiBです", "GiB"),
        ("ja", "**{claim}`3 <a.x>`**％です", "％"),
        ("ja", "−{claim}`3 <a.x>`です", "−"),
        ("ja", "{claim}`3 <a.x>`未満です", "未満"),
        ("ja", "{claim}`3 <a.x>`万です", "万"),
        ("ko", "{claim}`3 <a.x>`배로", "배"),
        ("en", "{claim}`3 <a.x>`% of", "%"),
        ("en", "{claim}`3 <a.x>` times", "times"),
        ("ja", "{claim}`3 <a.x>`$\\times 10^{6}$です", "× 10^6"),
        ("ja", "{claim}`3 <a.x>` $\\%$です", "%"),
        ("ja", "{claim}`3 <a.x>`$^2$です", "^2"),
        ("ja", "{claim}`3 <a.x>`²です", "²"),
        ("ja", "$x <$ {claim}`3 <a.x>`です", "<"),
        ("ja", "$-${claim}`3 <a.x>`です", "-"),
        ("ja", "$x =$ {claim}`3 <a.x>`です", ""),
        ("ja", "{claim}`3 <a.x>` $B$ 個", ""),
        ("ja", "$x - y$ {claim}`3 <a.x>`個", ""),
        ("en", "about {claim}`3 <a.x>` lines", "about"),
        ("ja", "{claim}`3 <a.x>`です", ""),
        ("ja", "{claim}`3 <a.x>`行です", ""),
        ("en", "a {claim}`3 <a.x>` sided", ""),
    ],
)
def test_a_unit_right_beside_a_role_is_refused(tmp_path, language, text, words):
    """What stands beside a number and changes it belongs inside; a counter does not change it."""
    page = f"# P\n\n```{{measured}} a.x 3\n```\n\n{text}\n"
    built = build_page(tmp_path, page, f'language = "{language}"')
    assert built.kinds == (["unit outside"] if words else [])
    if words:
        assert built.failures == [f"book/index.md:6: claim a.x says 3 but {words!r} beside it belongs inside the role"]


@pytest.mark.parametrize(("between", "kinds"), [("", ["unit outside"]), (" and ", []), ("、", [])])
def test_two_claims_that_touch_read_as_one_number(tmp_path, between, kinds):
    """`0.87` and `5` side by side say 0.875, which neither of them says."""
    page = HEAD + "```{measured} a.x 5\n```\n\nOne\n{claim}`0.87 <a.prob>`" + between + "{claim}`5 <a.x>` two\n"
    built = build_page(tmp_path, page)
    assert built.kinds == kinds
    if kinds:
        assert built.failures == [
            "book/index.md:12: claims a.prob and a.x touch, and read 0.875: write words between them"
        ]


@pytest.mark.parametrize("control", ["\u202e", "\u202d", "\u2067"])
def test_characters_that_turn_the_order_of_digits_are_refused(tmp_path, control):
    """`0.87` between them is shown as `78.0`, and read by the judge as it is written."""
    built = build_page(tmp_path, HEAD + f"One\n{control}{{claim}}`0.87 <a.prob>`\u202c two\n")
    assert built.kinds == ["hidden"]
    assert built.failures == [
        f"book/index.md:9: the invisible U+{ord(control):04X} turns the order of what is read around: take it out"
    ]
