"""Nothing of what the book set out from is lost: every section of that document is a place in the book, in its order.

The document goes from the one line to practice. For each of its sections, and for what it lists inside one where the
book has a place of its own for it, stands the label at which the book takes it up, always further on than the one
before. Titles are ours; the document is not part of the project.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[1] / "book"

SECTIONS = (
    ("attention is a weighted average", "front"),
    ("in one line", "one-line"),
    ("three names: query, key, value", "names"),
    ("why √d, in numbers", "scaling"),
    ("softmax with the largest subtracted", "softmax"),
    ("the mask that hides the future", "mask"),
    ("who is masked, and who is not", "mask-encoder-decoder"),
    ("several heads, and why", "heads"),
    ("heads of a trained model, opened", "trained"),
    ("positions: attention knows no order", "positions"),
    ("input permuted, output permuted", "positions-permutation"),
    ("sines and cosines", "positions-sinusoidal"),
    ("a learned table", "positions-learned"),
    ("RoPE", "positions-rope"),
    ("ALiBi", "positions-alibi"),
    ("LayerNorm and the residual", "norms"),
    ("before or after attention", "norms-order"),
    ("where the cost comes from", "costs"),
    ("FlashAttention", "flash"),
    ("GQA and MQA", "groups"),
    ("mixtures of experts", "experts"),
    ("sliding windows and sparse attention", "window"),
    ("summary", "summary"),
    ("in practice: what to look at", "practice"),
    ("the loss becomes NaN", "practice-nan"),
    ("scores that are too good", "practice-good"),
    ("the result depends on the batch", "practice-batch"),
    ("memory × 4 when the context doubles", "practice-memory"),
    ("the KV cache is the budget", "practice-kv"),
)


def pages(name: str = "index") -> list[str]:
    """All pages of the book from one on, in the order of their tables of contents, each before its own."""
    text = (BOOK / f"{name}.md").read_text(encoding="utf-8")
    lists = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    entries = [line for found in lists for line in found.splitlines() if line and not line.startswith(":")]
    folder = name.rpartition("/")[0]
    children = [f"{folder}/{entry}" if folder else entry for entry in entries]
    return [name, *(page for child in children for page in pages(child))]


def headings() -> list[str]:
    """The labels of all headings, in the order in which a reader meets them."""
    found = []
    for page in pages():
        text = (BOOK / f"{page}.md").read_text(encoding="utf-8")
        found += re.findall(r"^\(([\w-]+)\)=\n#+ ", text, re.MULTILINE)
    return found


@pytest.mark.parametrize(("section", "label"), SECTIONS)
def test_a_section_has_its_place(section: str, label: str):
    """One heading of the book, on a page of its contents, has the label."""
    assert headings().count(label) == 1, section


def test_sections_stand_in_the_documents_order():
    """Each further on than the one before."""
    known = headings()
    places = [known.index(label) for _, label in SECTIONS]
    assert places == sorted(set(places))


def test_every_chapter_takes_up_a_section():
    """No chapter of the contents is without a section, so the list above cannot fall behind the book in silence."""
    index = (BOOK / "index.md").read_text(encoding="utf-8")
    chapters = re.findall(r"^(\d\d-[\w-]+)$", index, re.MULTILINE)
    labels = {label for _, label in SECTIONS}
    for chapter in chapters:
        text = (BOOK / f"{chapter}.md").read_text(encoding="utf-8")
        assert labels & set(re.findall(r"^\(([\w-]+)\)=\n# ", text, re.MULTILINE)), chapter
