"""Reading a chapter: its cells, their lines, and what is wrong with a page that can't be read."""

import pytest

from attnbook.bookkit.chapter import ChapterError, chapters, read
from tests.bookkit.small_book import FRONT, PAGES, chapter, write


def page(tmp_path, text):
    path = write(tmp_path, {"03-page.md": text}) / "03-page.md"
    return read(path, tmp_path)


def test_cells_have_their_numbers_and_the_lines_their_code_begins_at(tmp_path):
    """Options stand between a cell's fence and its code; the line is the code's."""
    text = (
        FRONT + "# T\n\n```{code-cell} ipython3\n:tags: [hide-input]\n\na = 1\n```\n\n```{code-cell} ipython3\na\n```\n"
    )
    cells = page(tmp_path, text).cells
    assert [(cell.number, cell.source, cell.tags) for cell in cells] == [(1, "a = 1", ("hide-input",)), (2, "a", ())]
    lines = text.splitlines()
    assert [lines[cell.line - 1] for cell in cells] == ["a = 1", "a"]


def test_a_page_without_the_front_matter_of_a_chapter_is_plain(tmp_path):
    """Also one that shows, inside a longer fence, how a code cell is written."""
    assert page(tmp_path, PAGES["plain.md"]) is None


def test_a_page_with_code_cells_but_no_front_matter_is_refused_at_the_first_cell(tmp_path):
    """It would never run, silently."""
    with pytest.raises(ChapterError, match=r"/03-page\.md:3: this page has code cells but no front matter"):
        page(tmp_path, "# T\n\n```{code-cell} ipython3\n1\n```\n")
    with pytest.raises(ChapterError, match=r":6: this page has code cells"):
        page(tmp_path, "---\ntitle: T\n---\n# T\n\n```{code-cell} ipython3\n1\n```\n")


FIRST = r":1: the first line of the file must be --- \(line 1 "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n" + FRONT + "# T\n", FIRST + r"is empty\); begin the file with\n---\nfile_format"),
        ("  \n\n" + FRONT, FIRST + r"is empty\)"),
        ("\ufeff" + FRONT + "# T\n", FIRST + r"begins with a byte-order mark\)"),
        (FRONT.replace("file_format", "file_fromat"), r":2: unknown key file_fromat, did you mean file_format\?"),
        ("\n---\nfile-format: x\n---\n", None),
        (
            "---\ntitle: x\n" + FRONT[4:].replace("mystnb", "myst-nb"),
            r":3: file_format: expected mystnb, got 'myst-nb'",
        ),
    ],
)
def test_front_matter_that_was_meant_for_a_chapter_and_makes_none_is_refused(tmp_path, text, message):
    """The page would be shown with its settings as text, or not be run: also one without cells."""
    if message is None:
        assert page(tmp_path, text) is None
        return
    with pytest.raises(ChapterError, match=r"^test\S*/03-page\.md" + message):
        page(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "\n---\n\n文。\n",
        "---\ntitle: x\n---\n\nfile_format: mystnb\n",
        "\ufeff# T\n",
        "# T\n\n---\nfile_format: x\n",
    ],
)
def test_other_pages_are_none_of_its_business(tmp_path, text):
    """Rules, a page's title, an example in the text."""
    assert page(tmp_path, text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\nfile_format: mystnb\n---\n# T\n", r":1: .*kernelspec: expected \{name: python3\}, got None"),
        ("---\nfile_format: mystnb\nkernelspec: {name: julia}\n---\n", r":1: .*kernelspec: expected .* got 'julia'"),
        ("---\nfile_format: mystnb\nkernelspec: python3\n---\n", r":1: .*kernelspec: expected .* got None"),
        ("---\nfile_format: mystnb\nkernelspec: {name\n---\n", r":\d: the front matter is not YAML: "),
        ("---\n- file_format\n---\n", r":2: the front matter: expected keys and values, got list"),
        ("---\nfile_format: mystnb\n", r":1: the front matter that begins here has no end"),
        (FRONT + "```{code-cell} ipython3\n:tags: [a\n\n1\n```\n", r":7: .*could not be read"),
    ],
)
def test_front_matter_and_options_that_cannot_be_read_are_refused_with_their_line(tmp_path, text, message):
    """One clear message, with file and line."""
    with pytest.raises(ChapterError, match=r"^test\S*/03-page\.md" + message):
        page(tmp_path, text)


def test_a_page_that_is_not_utf8_is_refused(tmp_path):
    """Its name is in the message."""
    (tmp_path / "03-page.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ChapterError, match=r"/03-page\.md:1: can't be read"):
        read(tmp_path / "03-page.md", tmp_path)


def test_chapters_are_found_below_the_book_but_not_in_output_or_hidden_folders(tmp_path):
    """And a page that can't be read does not hide the others."""
    pages = {"a.md": chapter("1"), "sub/b.md": chapter("2"), "_build/c.md": chapter("3"), ".d/d.md": chapter("4")}
    found, errors = chapters(write(tmp_path, pages | {"e.md": "---\n", "f.md": PAGES["plain.md"]}))
    assert [c.name for c in found] == ["a", "sub/b"]
    assert len(errors) == 1


def test_reading_twice_gives_the_same_notebook(tmp_path):
    """Nothing random in it, or two builds of the same sources would differ."""
    assert page(tmp_path, chapter("1", "2")).notebook == page(tmp_path, chapter("1", "2")).notebook
