"""Folded solutions."""

from __future__ import annotations

import re

from tests.bookkit.site_builder import build

PAGE = """(top)=
# 題

:::{admonition} 解答 $x$
:class: dropdown
:name: answer
本文。
:::

:::{note}
:class: dropdown
注。
:::

:::{admonition} 開いたまま
文。
:::

{ref}`こちら <answer>`
"""


def test_a_dropdown_is_a_details_element(tmp_path) -> None:
    """No script: the browser folds it, and a link to it finds it. Only what asked for it is folded."""
    html = build(tmp_path, {"index": PAGE}).html()
    details = re.findall(r"<details.*?</details>", html, re.DOTALL)
    assert len(details) == 1
    assert details[0].startswith('<details class="admonition dropdown" id="answer">')
    assert '<summary class="admonition-title">解答 <math>' in details[0]
    assert "<p>本文。</p>" in details[0]
    assert '<a class="reference internal" href="#answer">' in html


def test_it_may_start_open(tmp_path) -> None:
    """The class `open` does that."""
    page = PAGE.replace(":class: dropdown\n:name", ":class: dropdown open\n:name")
    assert 'id="answer" open="open">' in build(tmp_path, {"index": page}).html()


def test_plain_text_shows_the_solution(tmp_path) -> None:
    """A format that folds nothing has an ordinary admonition."""
    build(tmp_path, {"index": PAGE}, builder="text")
    assert "本文。" in (tmp_path / "_build/text/index.txt").read_text("utf-8")
