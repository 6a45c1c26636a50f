"""A claim in HTML: text with a card that says what was measured, for eyes, keyboards and screen readers alike."""

import re
from html.parser import HTMLParser

import pytest

from tests.claims.tiny import Project, measured

PAGE = (
    "# Attention\n\n"
    + measured("a.prob", 0.8712, 'spread=0.0001 experiment="pkg.experiments.scores" settings={"d":"64"}')
    + measured("a.leak", "True")
    + measured("a.speed", 312.5, 'kind="recorded" source="records/<x>.json" device="H200" date="2026-11-02"')
    + """
The probability is {claim}`0.87 <a.prob>` and {holds}`nothing **leaks** <a.leak>`.

- In a list {claim}`0.87 <a.prob>`, in [a link {claim}`0.871 <a.prob>` of it](https://example.org).

| speed |
|---|
| {claim}`less than 400 <a.speed>` |

See {doc}`there <other>`.
"""
)
OTHER = "# Other page\n\nFrom elsewhere {claim}`about 0.9 <a.prob>`.\n"
PHRASING = {"span", "a", "code"}


class Card(HTMLParser):
    """The tags and the text inside every claim, with the ids that the page has."""

    def __init__(self, page):
        super().__init__()
        self.stack, self.ids, self.cards, self.claims, self.inside_link = [], set(), {}, [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id"))
        classes = (attributes.get("class") or "").split()
        if tag == "a":
            self.inside_link.append(any(open_tag == "a" for open_tag, _ in self.stack))
        if "claim" in classes:
            self.claims.append(attributes)
        if "claim-card" in classes:
            self.cards[attributes["id"]] = {"tags": [], "text": "", "links": [], "attributes": attributes}
        if self.card:
            self.card["tags"].append(tag)
            self.card["links"] += [attributes["href"]] if tag == "a" else []
        if tag not in ("meta", "link", "br", "input", "img", "hr"):
            self.stack.append((tag, attributes))

    @property
    def card(self):
        found = [a["id"] for _, a in self.stack if "claim-card" in (a.get("class") or "").split()]
        return self.cards[found[-1]] if found else None

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.card:
            self.card["text"] += data


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Two pages: one measures and quotes, one quotes."""
    project = Project(tmp_path_factory.mktemp("html"))
    project.write("index.md", PAGE + "\n```{toctree}\nother\n```\n")
    project.write("other.md", OTHER)
    built = project.build(builder="html")
    assert built.code == 0, built.errors
    return project


def page(project, name="index", builder="html"):
    return (project.out / builder / f"{name}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cards(project):
    return Card(page(project))


def test_a_claim_is_text_that_can_be_focused_and_is_described_by_its_card(cards):
    """Every claim takes the keyboard's focus, has an id of its own, and names the card that describes it."""
    assert len(cards.claims) == 5
    assert len({claim["id"] for claim in cards.claims}) == 5
    for claim in cards.claims:
        assert claim["tabindex"] == "0"
        assert claim["aria-describedby"] in cards.cards


def test_a_number_is_not_torn_at_the_end_of_a_line(cards):
    """1e-12 broken after its hyphen would read as another number; a sentence has to break."""
    assert ["claim-short" in claim["class"].split() for claim in cards.claims][:2] == [True, False]


def test_a_card_is_phrasing_content_and_kept_out_of_search(cards):
    """A card stands in a paragraph, so it holds no block; it is a tooltip, and no search index repeats it."""
    for card in cards.cards.values():
        assert set(card["tags"]) <= PHRASING
        assert card["attributes"]["role"] == "tooltip"
        assert card["attributes"]["data-pagefind-ignore"] == "all"


def test_what_a_card_says(cards):
    """Value, interval, kind, spread, experiment with its settings, and a link to the cell."""
    first, leak, *_, speed = cards.cards.values()
    assert first["text"] == (
        "measured: 0.8712 the text accepts: 0.865 ≤ x < 0.875 kind: measured standard deviation: 0.0001 "
        "experiment: scores(d=64) measured in: cell 3"
    )
    assert leak["text"] == "measured: true kind: measured measured in: cell 3"
    assert speed["text"] == (
        "measured: 312.5 the text accepts: x < 400 kind: recorded device: H200, 2026-11-02 "
        "source: records/<x>.json measured in: cell 3"
    )
    assert first["links"] == ["#code-cell-3"]


def test_a_claim_inside_a_link_has_no_link_of_its_own(cards):
    """A link may not hold another one: there the card names the cell without leading to it."""
    assert not any(cards.inside_link)
    assert [bool(card["links"]) for card in cards.cards.values()] == [True, True, True, False, True]


def test_a_card_leads_to_the_page_that_measured(project):
    """On another page the cell is named with its page, and the link goes there."""
    (card,) = Card(page(project, "other")).cards.values()
    assert card["links"] == ["index.html#code-cell-3"]
    assert card["text"].endswith("measured in: Attention, cell 3")


def test_the_page_loads_style_and_script(project):
    """Both files of the extension are on the page and in the output."""
    for name in ("claims.css", "claims.js"):
        assert f"_static/{name}" in page(project)
        assert (project.out / "html" / "_static" / name).is_file()


def test_a_second_build_does_not_think_that_settings_changed(project):
    """Serving the extension's files changes no setting between builds."""
    built = project.build(builder="html")
    assert "0 added, 0 changed, 0 removed" in built.status
    assert "html_static_path" not in built.status


def test_dirhtml_links_to_the_folder_of_the_page(project):
    """With a folder a page the link follows."""
    assert project.build(builder="dirhtml").code == 0
    (card,) = Card((project.out / "dirhtml" / "other" / "index.html").read_text(encoding="utf-8")).cards.values()
    assert card["links"] == ["../#code-cell-3"]


def test_one_file_has_all_claims_under_different_ids(project):
    """In a book that is one file, claims of two pages do not share an id."""
    assert project.build(builder="singlehtml").code == 0
    cards = Card(page(project, builder="singlehtml"))
    assert len({claim["id"] for claim in cards.claims}) == len(cards.claims) == 6
    assert all(claim["aria-describedby"] in cards.cards for claim in cards.claims)


@pytest.mark.parametrize("builder", ["text", "latex", "xml", "gettext"])
def test_other_builders_print_the_text_only(project, builder):
    """Where there is no pointer and no keyboard, a claim is its text."""
    built = project.build(builder=builder)
    assert built.code == 0, built.errors
    suffix = {"text": "txt", "latex": "tex", "xml": "xml", "gettext": "pot"}[builder]
    written = "".join(path.read_text(encoding="utf-8") for path in (project.out / builder).rglob(f"*.{suffix}"))
    assert "0.87" in written
    assert "claim-card" not in written
    assert "standard deviation" not in written


def test_a_page_is_written_again_when_its_value_moves(tmp_path):
    """The measuring page changes, the quoting page does not: its card shows the new value after the next build."""
    project = Project(tmp_path)
    project.write("index.md", PAGE + "\n```{toctree}\nother\n```\n")
    project.write("other.md", OTHER)
    project.build(builder="html")
    project.edit("index.md", "a.prob 0.8712", "a.prob 0.8708")
    assert project.build(builder="html").code == 0
    (card,) = Card(page(project, "other")).cards.values()
    assert card["text"].startswith("measured: 0.8708 ")


def test_a_claim_that_fails_shows_why(tmp_path):
    """While an author serves a red book, the page marks the claim and its card has the verdict."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n" + measured("a.b", 0.5) + "\nIt is {claim}`0.7 <a.b>`, or {claim}`0.5 <a.c>`.\n")
    assert project.build(builder="html").code == 1
    drift, unknown = Card(page(project)).cards.values()
    assert "claim-not-fine" in page(project)
    assert drift["text"].endswith("verdict: drift (claim a.b says 0.7, measured 0.5 (accepts 0.65 to 0.75))")
    assert unknown["text"].startswith("measured: – ")
    assert "nothing is measured under that id" in unknown["text"]


def test_the_card_speaks_the_page_s_language(tmp_path):
    """Japanese words on a Japanese page, Korean ones on a Korean page."""
    for language, word in (("ja", "測定値: 真"), ("ko", "측정값: 참")):
        project = Project(tmp_path / language, conf=f"language = {language!r}")
        project.write("index.md", "# A\n\n" + measured("a.b", "True") + "\nIt {holds}`leaks <a.b>`.\n")
        assert project.build(builder="html").code == 0
        (card,) = Card(page(project)).cards.values()
        assert card["text"].startswith(word)


def test_the_style_keeps_cards_out_of_print_and_out_of_copied_text(project):
    """Rules that are easily lost: no card on paper, none in what a reader copies, dark colours, Escape."""
    css = (project.out / "html" / "_static" / "claims.css").read_text()
    card = re.search(r"\n\.claim-card \{(.*?)\}", css, re.DOTALL)[1]
    assert "display: none" in card
    assert "user-select: none" in card
    assert 'html[data-theme="dark"]' in css
    assert re.search(r"@media print \{.*?\.claim-card \{\s*display: none", css, re.DOTALL)
    assert ":not([data-dismissed]) > .claim-card" in css
    assert '"Escape"' in (project.out / "html" / "_static" / "claims.js").read_text()
