"""`**「強調」**の` is bold: emphasis beside East Asian text, which CommonMark's rule for spaces leaves as asterisks.

CommonMark decides whether `**` may open or close by the white space and punctuation around it. Text without spaces
between words fails that test wherever the emphasis begins or ends with a bracket or a quotation mark. The change, the
one proposed for CommonMark itself: East Asian punctuation counts as a letter, and next to any East Asian character
other punctuation needs no space.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned

if TYPE_CHECKING:
    from sphinx.application import Sphinx


COMMONMARK_SCAN = StateInline.scanDelims
"""The scan that `setup` replaces."""


def is_east_asian(character: str) -> bool:
    """Is this a character of Chinese, Japanese or Korean text: ideograph, kana, Hangul, full-width or half-width form?

    Emoji are wide too and are none of these.
    """
    if "\U0001f000" <= character <= "\U0001faff" or unicodedata.category(character) == "So":
        return "㈀" <= character <= "㏿"  # enclosed and squared forms are symbols that belong to the text
    return unicodedata.east_asian_width(character) in ("W", "F", "H") or "ᅠ" <= character <= "ᇿ"


def scan_delimiters(state: StateInline, start: int, canSplitWord: bool) -> Scanned:
    """May the run of markers at `start` open or close emphasis? In place of `StateInline.scanDelims`."""
    marker, end = state.src[start], start
    while end < state.posMax and state.src[end] == marker:
        end += 1
    before = state.src[start - 1] if start > 0 else " "
    after = state.src[end] if end < state.posMax else " "
    left = not isWhiteSpace(ord(after)) and (not _separates(after) or _loosens(before))
    right = not isWhiteSpace(ord(before)) and (not _separates(before) or _loosens(after))
    can_open = left and (canSplitWord or not right or _is_punctuation(before))
    can_close = right and (canSplitWord or not left or _is_punctuation(after))
    return Scanned(can_open, can_close, end - start)


def _is_punctuation(character: str) -> bool:
    return isMdAsciiPunct(ord(character)) or isPunctChar(character)


def _separates(character: str) -> bool:
    """Punctuation of a script that puts spaces between words."""
    return _is_punctuation(character) and not is_east_asian(character)


def _loosens(character: str) -> bool:
    """A neighbour beside which punctuation does not stop emphasis."""
    return isWhiteSpace(ord(character)) or _is_punctuation(character) or is_east_asian(character)


def setup(app: Sphinx) -> None:
    """Put the scan into markdown-it, for pages and translated messages alike.

    MyST makes a parser for each page and each message and offers no door to its rules, and the state's class is fixed
    in markdown-it: the method is the one place that all of them pass.
    """
    StateInline.scanDelims = scan_delimiters  # type: ignore[method-assign, assignment]
