"""Lints of sources: each finding with its line, nothing else found."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from attnbook.bookkit import lints
from tests.bookkit.site_builder import build

FRONT = "---\nfile_format: mystnb\nkernelspec: {name: python3}\n---\n\n"
CONF = Path(__file__).parents[2] / "book" / "conf.py"
GOOD = FRONT + """(top)=
# 題

一つの段落は一行に書きます。**強調**も $x$ も入ります。

- 箇条書き
- 二つ目

English text may break
between words, and 日本語
after a Latin word too… or not.

```{plot} name
:name: fig-name
:alt: 何が見えるか。
説明。
```

![何が見えるか](x.png)

```{code-cell} ipython3
:tags: [hide-input]

""" + "\n".join(f"x{n} = {n}" for n in range(10)) + """
```

```python
# an example, not a cell: this line may be as long as it likes, for nobody runs it and the box scrolls on a phone anyway
```

````md
# no heading of this page
```{plot} not-of-this-page
```
````
"""  # fmt: skip


def found(text: str, **options) -> list[tuple[int, str]]:
    return [(finding.line, finding.message) for finding in lints.check(text, **options)]


def test_a_good_page_has_no_finding() -> None:
    """What the book does all the time is allowed."""
    assert found(GOOD, chapter=True) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("(a)=\n# 題\n\n段落の途中で\n改行します。\n", 4),
        ("(a)=\n# 題\n\n一行目。\n\n二つ目の段落は、\n読点で改行。", 6),
        ("- 箇条書きの\n  改行\n", 1),
        ("> 引用の\n> 改行\n", 1),
        (":::{note}\n:class: x\n\n注の\n改行\n:::\n", 4),
        ("::::{admonition} 題\n文。\n\n:::{note}\n注の\n改行\n:::\n::::\n", 5),
        ("```{plot} x\n:alt: y\n説明の\n改行\n```\n", 3),
        ("用語\n: 定義の\n  改行\n", 2),
        ("[^a]\n\n[^a]: 脚注の\n    改行\n", 3),
        ("終わりの括弧」\n「始まりの括弧\n", 1),
    ],
)
def test_a_line_break_between_japanese_characters(text: str, line: int) -> None:
    """It is drawn as a space: found in every kind of block, at the line that breaks."""
    ((place, message),) = found(text)
    assert place == line
    assert "a browser draws it as a space" in message


@pytest.mark.parametrize(
    "text", ["한국어 문단은\n줄을 바꿔도 된다.\n", "日本語と\nEnglish\n", "`コード`\n`コード`\n", "終わり  \n改行\n"]
)
def test_a_line_break_that_does_no_harm(text: str) -> None:
    """Korean has spaces between words, and so has a border to Latin text; a hard break is meant."""
    assert found(text) == [] or "  \n" in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("文。\n\n    比は9です。\n", 3),
        ("文。\n\n\t比は9です。\n", 3),
        ("\t比は9です。\n", 1),
        ("- 文\n\n      比は9です。\n", 3),
        (":::{note}\n:class: x\n\n文。\n\n    比は9です。\n:::\n", 6),
        ("(a)=\n# 題\n    比は9です。\n", 3),
        ("> 文。\n>\n>     比は9です。\n", 3),
    ],
)
def test_an_indented_paragraph_is_code_that_nobody_checks(text: str, line: int) -> None:
    """By a tab or by four spaces, in any block."""
    assert found(text) == [
        (line, "indented text becomes code and is not checked; use a ``` fence or take out the indent")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "- 箇条\n\n  続き\n",
        "- 箇条\n  - 中\n\n    続き\n\n    - その中\n\n      続き\n",
        "1. 箇条\n\n   続き\n",
        "10. 箇条\n\n    続き\n",
        "text\n    goes on\n",
        "[^a]\n\n[^a]: 脚注\n\n    続き\n",
        "用語\n: 定義\n\n    続き\n",
        "```python\nif x:\n    y = 9\n\n    z = 9\n```\n",
        "$$\nx\n\n    = y\n$$\n",
        "```{eval-rst}\n.. note::\n\n    reStructuredText\n```\n",
        FRONT + "```{code-cell} ipython3\n\n    \n    x = 1\n```\n",
    ],
)
def test_an_indent_that_continues_something(text: str) -> None:
    """What goes on in a list, a footnote or a definition is text; what stands in a fence is code already."""
    assert found(text) == []


def test_a_heading_needs_a_label() -> None:
    """A Japanese heading without one is called id1, and links to it break when another comes before it."""
    text = "(top)=\n# 題\n\n## 節\n\n(other)=\n\n### 小節\n"
    ((line, message),) = found(text)
    assert (line, message) == (4, "heading '節' has no label: put (some-label)= on the line before it")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("![](x.png)\n", 1),
        ("一行目\n![ ](x.png)\n", 2),
        ("```{figure} x.png\n説明\n```\n", 1),
        (":::{image} x.png\n:width: 10\n:::\n", 1),
        ("文。\n\n```{plot} x\n:name: y\n:alt:\n説明\n```\n", 3),
        ("```{plot} x\n---\nname: y\n---\n説明\n```\n", 1),
    ],
)
def test_a_picture_needs_alternative_text(text: str, line: int) -> None:
    """Whether it is Markdown or a directive, and however the options are written."""
    ((place, message),) = found(text)
    assert place == line
    assert "has no alternative text" in message


@pytest.mark.parametrize(
    "options", [":alt: 説明", ":alt:\n  説明\n  の続き", "---\nalt: 説明\n---", "---\nalt: |\n  説明\n---"]
)
def test_alternative_text_is_recognised(options: str) -> None:
    """In the ways that MyST lets options be written."""
    assert found(f"```{{figure}} x.png\n{options}\n```\n") == []


def test_a_long_cell_is_told_where_its_code_belongs() -> None:
    """The eleventh line is one too many; blank lines and options do not count; the limit can be set."""
    cell = "\n\n".join(f"x{n} = {n}" for n in range(11))
    text = f"{FRONT}文。\n\n```{{code-cell}} ipython3\n:tags: [hide-input]\n\n{cell}\n```\n"
    ((line, message),) = found(text)
    assert line == 11
    assert message.startswith("code cell of 11 lines, at most 10: split it, or move what it defines into attnbook")
    assert found(text, cell_lines=11) == []


@pytest.mark.parametrize(
    ("options", "tag"),
    [(":tags: [remove-output]", "output"), ("---\ntags:\n  - remove-cell\n---", "cell"), (":tags: [hide-output]", "")],
)
def test_a_cell_whose_output_is_removed(options: str, tag: str) -> None:
    """MyST-NB drops the output, measurements and all, and the claims on them would be told that nothing is measured."""
    findings = found(f"{FRONT}```{{code-cell}} ipython3\n{options}\nx = 'remove-output'\n```\n")
    expected = f"code cell tagged remove-{tag}: what it measures reaches no page; tag it hide-{tag}"
    assert findings == ([(6, expected)] if tag else [])


def test_a_wide_code_line() -> None:
    """At its own line, after the options."""
    wide = "y = " + "x" * 85
    ((line, message),) = found(f"{FRONT}```{{code-cell}} ipython3\n:tags: [a]\nx = 1\n{wide}\n```\n")
    assert (line, message) == (9, "code line of 89 characters, at most 88: break it")


@pytest.mark.parametrize(
    ("text", "chapter", "why"),
    [
        ("文。\n", True, "a page named NN-… needs it"),
        ("---\ntitle: x\n---\n文。\n", True, "a page named NN-… needs it"),
        ("```{code-cell} ipython3\n1\n```\n", False, "its code cells are not run"),
        ("```{code-cell} ipython3\n1\n```\n", True, "its code cells are not run"),
    ],
)
def test_a_chapter_needs_its_front_matter(text: str, chapter: bool, why: str) -> None:
    """A page that is a chapter by name, or has a cell that would not be run; no other page."""
    ((line, message),) = found(text, chapter=chapter)
    assert line == 1
    assert message.startswith(f"no front matter of a chapter, and {why}: begin the page with lines ---, file_format")
    assert found("文。\n") == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n" + FRONT, 1, "the first line of the file must be --- (line 1 is empty)"),
        ("\ufeff" + FRONT, 1, "the first line of the file must be --- (line 1 begins with a byte-order mark)"),
        (FRONT.replace("_format", "_fromat"), 2, "unknown key file_fromat, did you mean file_format?"),
    ],
)
@pytest.mark.parametrize("chapter", [True, False])
def test_front_matter_that_makes_no_chapter_is_said_once_with_what_is_wrong(
    text: str, line: int, message: str, chapter: bool
) -> None:
    """Not that there is none."""
    assert (line, message) in found(text, chapter=chapter)
    assert not [said for _, said in found(text, chapter=chapter) if said.startswith("no front matter")]


def test_the_lints_read_pages_with_the_extensions_that_the_book_has() -> None:
    """With others they would see other blocks than the build does."""
    assert sorted(lints.EXTENSIONS) == sorted(runpy.run_path(str(CONF))["myst_enable_extensions"])


def test_chapters_are_known_by_their_number() -> None:
    """The front page and the appendix execute nothing."""
    assert [lints.is_chapter(name) for name in ("01-one-line", "09a-flash", "index", "notation")] == [
        True, False, False, False,
    ]  # fmt: skip


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-m", "attnbook.bookkit.lints", *arguments], cwd=cwd, text=True,
                          capture_output=True, timeout=60)  # fmt: skip


def test_the_command_prints_file_and_line(tmp_path: Path) -> None:
    """One line a finding, as compilers do; exit 1. Folders that hold no source are left out."""
    (tmp_path / "book/_build").mkdir(parents=True)
    (tmp_path / "book/_build/x.md").write_text("# 題\n", "utf-8")
    (tmp_path / "book/03-x.md").write_text(FRONT + "# 題\n", "utf-8")
    result = run("book", cwd=tmp_path)
    first, last = result.stdout.splitlines()
    assert first == "book/03-x.md:6: heading '題' has no label: put (some-label)= on the line before it"
    assert last == "1 finding"
    assert result.returncode == 1


def test_a_terminal_that_lacks_japanese_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it can't print is printed as an escape."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    (tmp_path / "03-x.md").write_text(FRONT + "# 題\n", "utf-8")
    result = run(".", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    assert "heading '\\u984c' has no label" in result.stdout


def test_the_command_is_silent_when_all_is_well(tmp_path: Path) -> None:
    """Exit 0; and 2 for a folder that is not there."""
    (tmp_path / "index.md").write_text(GOOD, "utf-8")
    fine = run(str(tmp_path))
    assert (fine.returncode, fine.stdout) == (0, "")
    missing = run(str(tmp_path / "nothing"))
    assert missing.returncode == 2
    assert "no such folder or page" in missing.stderr


def test_a_build_reports_the_same(tmp_path: Path) -> None:
    """With the line of the file, and on pages that execute nothing too."""
    built = build(tmp_path, {"index": "# 題\n\n段落の途中で\n改行します。\n"})
    assert [(line, status) for line, status, _ in sorted(built.problems())] == [(1, "lint"), (3, "lint")]
