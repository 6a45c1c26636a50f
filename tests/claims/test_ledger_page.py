"""The page of all claims."""

import re

import pytest

from tests.claims.tiny import Project, measured

TWO = "# Second\n\n" + measured("a.prob", 0.8712) + measured("a.leak", "True") + "\nSo {claim}`0.87 <a.prob>`.\n"
ONE = "# First\n\nIt {holds}`leaks <a.leak>`, and {claim}`about 0.9 <a.prob>`.\n"
INDEX = "# Book\n\n```{claims-ledger}\n```\n\n```{toctree}\nz-one\na-two\n```\n"


@pytest.fixture
def project(tmp_path):
    """Three pages; the table of contents does not follow the alphabet."""
    project = Project(tmp_path)
    for name, text in {"index.md": INDEX, "z-one.md": ONE, "a-two.md": TWO}.items():
        project.write(name, text)
    return project


def written(project):
    return (project.out / "html" / "index.html").read_text(encoding="utf-8")


def rows(project):
    """The text of each cell of each row of the table's body."""
    body = "".join(re.findall(r"<tbody>(.*?)</tbody>", written(project), re.DOTALL))
    found = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]
    return [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in found]


def test_every_claim_in_the_order_of_pages(project):
    """Pages come as a reader turns them; each row has text and id, value, interval, kind, cell and verdict."""
    built = project.build(builder="html")
    assert built.code == 0, built.errors
    assert built.errors == ""
    assert rows(project) == [
        ["First"],
        ["leaks a.leak", "true", "true", "measured", "Second, cell 3", "fine"],
        ["about 0.9 a.prob", "0.8712", "0.85 ≤ x ≤ 0.95", "measured", "Second, cell 3", "fine"],
        ["Second"],
        ["0.87 a.prob", "0.8712", "0.865 ≤ x &lt; 0.875", "measured", "cell 3", "fine"],
    ]


def test_links_lead_to_the_claim_and_to_the_cell(project):
    """The text links to the very claim in its page, the cell to the cell that measured it."""
    project.build(builder="html")
    page = written(project)
    assert 'href="z-one.html#claim-1">about 0.9</a>' in page
    assert 'href="a-two.html#code-cell-3"' in page
    assert 'id="claim-1"' in (project.out / "html" / "z-one.html").read_text(encoding="utf-8")


def test_the_table_has_a_caption_and_scopes(project):
    """A screen reader hears what the table is, and each column's and row's heading."""
    project.build(builder="html")
    page = written(project)
    assert "<caption>" in page
    assert page.count('scope="col"') == 6
    assert page.count('scope="row"') == 3
    assert re.findall(r'<th colspan="6" scope="rowgroup"><p><a [^>]*href="(.*?)"', page) == ["z-one.html", "a-two.html"]
    assert 'data-label="verdict"' in page


def test_summary_is_judged_and_unowned(project):
    """The sentence that every tool prints stands on the page."""
    project.build(builder="html")
    assert "3 judged, 0 unowned" in re.sub(r"<.*?>", "", written(project))


def test_a_page_in_japanese_says_it_in_japanese_too(project):
    """The words are the page's; the sentence of the tools stays."""
    project.edit("conf.py", "exclude_patterns", "language = 'ja'\nexclude_patterns")
    project.edit("z-one.md", "about 0.9", "約0.9")
    project.build(builder="html")
    text = re.sub(r"<.*?>", "", written(project))
    assert "照合した主張は 3 件、測定に結びつかない数字は 0 件です。" in text
    assert "3 judged, 0 unowned" in text


def test_a_verdict_that_changed_is_on_the_page_after_the_next_build(project):
    """Only another page was edited; the ledger's page is written again, and says what is not fine."""
    project.build(builder="html")
    project.edit("z-one.md", "about 0.9", "about 0.7")
    assert project.build(builder="html").code == 1
    assert [row[-1] for row in rows(project) if len(row) > 1] == ["fine", "drift", "fine"]
    assert "1 not fine" in written(project)
    project.edit("z-one.md", "about 0.7", "about 0.9")
    assert project.build(builder="html").code == 0
    assert [row[-1] for row in rows(project) if len(row) > 1] == ["fine"] * 3


def test_a_book_without_claims_has_no_table(tmp_path):
    """There is nothing to list, and the page says so instead of failing to be written."""
    project = Project(tmp_path)
    project.write("index.md", "# Book\n\n```{claims-ledger}\n```\n")
    project.build(builder="html")
    page = written(project)
    assert "0 judged, 0 unowned" in re.sub(r"<.*?>", "", page)
    assert "<table" not in page


@pytest.mark.parametrize("builder", ["text", "latex"])
def test_other_builders_write_a_plain_table(project, builder):
    """The ledger is in every format."""
    built = project.build(builder=builder)
    assert built.code == 0, built.errors
    suffix = {"text": "txt", "latex": "tex"}[builder]
    text = "".join(path.read_text(encoding="utf-8") for path in (project.out / builder).glob(f"*.{suffix}"))
    assert "Every claim and its measurement" in text
    assert "0.8712" in text
