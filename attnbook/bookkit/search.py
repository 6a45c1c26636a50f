"""The search box finds Japanese and Korean words: texts without spaces are indexed, and asked for, in pairs of letters.

Sphinx cuts Japanese into words when it makes the index, and leaves what a reader types uncut, so that 注意機構, indexed
as 注意 and 機構, is never found; Korean words it finds only whole, with their particles. A pair of neighbouring letters
needs no dictionary and is the same on both sides; a page is found when it has all pairs of what was typed.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from sphinx.search import SearchLanguage

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_UNSPACED: Final = r"\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
"""Kana, ideographs and hangul."""
_RUN: Final = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])\w)+")
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")

SPLIT_QUERY: Final = rf"""
function splitQuery(query) {{
  const words = [];
  for (const run of query.match(/[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[\p{{L}}\p{{N}}_])+/gu) || []) {{
    if (run.length === 1 || !/^[{_UNSPACED}]/u.test(run)) words.push(run);
    else for (let i = 1; i !== run.length; i++) words.push(run.slice(i - 1, i + 1));
  }}
  return words;
}}
"""
"""What the search page does with the words that a reader types."""


class PairsOfLetters(SearchLanguage):
    """Words of spaced scripts as they are; of the others every two neighbouring letters, and every letter."""

    js_splitter_code = SPLIT_QUERY

    def split(self, input: str) -> list[str]:
        """The terms under which a text is found."""
        words = []
        for run in _RUN.findall(input):
            if _IS_UNSPACED.match(run):
                words += [*run, *map("".join, itertools.pairwise(run))]
            else:
                words.append(run)
        return words


class Japanese(PairsOfLetters):
    """In place of Sphinx's own."""

    lang = "ja"
    language_name = "Japanese"


class Korean(PairsOfLetters):
    """Sphinx has none."""

    lang = "ko"
    language_name = "Korean"


def setup(app: Sphinx) -> None:
    """Index the pages of these languages so."""
    app.add_search_language(Japanese)
    app.add_search_language(Korean)
