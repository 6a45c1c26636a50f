"""Why a text cannot be read, and what to write instead. Reached only when the grammar has already refused it."""

from __future__ import annotations

import re

from attnbook.claims.numerals.lexicon import Lexicon
from attnbook.claims.numerals.reading import Unreadable

_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (r"", "it is empty", "write the number, or ? to be shown what you may write"),
    (r".*±.*", "± says neither a value nor a range", "write a range (−8〜8, −8~8, −8–8) or a bound"),
    (r".*[¼½¾⅐-⅞].*", "a fraction in one character", "write 2分の1, 2분의 1 or 1/2"),
    (r".*[0-9]\s?k(?![A-Za-z]).*", "k is 1000 to some and 1024 to others", "write 128 Ki, or 128,000"),
    (r".*[0-9]B", "B is bytes to some and billions to others", "write 8 B for bytes, or 80億, 80억, 8 billion"),
    (r".*[0-9]\s?[MGT]", "a bare M, G or T", "write 万 or 億, million or billion, Mi or MB"),
    (r".*[0-9]\s?KB.*", "KB is 1000 bytes to some and 1024 to others", "write kB or KiB"),
    (r".*[0-9]\s?[gmkt]i?b\b.*", "a unit in the wrong case", "write GB, GiB, MB, MiB, kB or KiB"),
    (r".*[0-9]\s?[xX*](?:\s?[0-9].*)?", "a letter for a multiplication sign", "write 3倍, 3배, 3×; 9×10⁶"),
    (r"~.*", "~ before a number", "write 約, 약 or about"),
    (r".*[~–]", "a range with one end", "write both ends, or 以上, 이상, at least"),
    (r"[–—].*", "a dash before a number", "write the minus sign, −"),
    (r".*[~–].*[~–].*", "a range with more than two ends", "write both ends once"),
    (r".*[0-9]\s?-\s?[0-9].*", "a hyphen between two numbers", "write a range with 〜, ~ or –"),
    (r".*[0-9][,][0-9]{1,2}(?![0-9]).*", "a comma that parts no three digits", "write a point for decimals: 1.02"),
    (r".*[0-9][, ][0-9].*", "separators that do not part digits in threes", "write 1,024 or 131,072"),
    (r".*[0-9]_[0-9].*", "an underscore between digits", "write 1,024"),
    (r".*(?<![0-9.])0[0-9].*", "a number that starts with 0", "leave the zero out"),
    (r"[-+]?\.[0-9].*", "no digit before the point", "write 0.5"),
    (r".*[0-9]\.(?![0-9]).*", "no digit after the point", "write 5 or 5.0"),
    (r".*[0-9]\.[0-9]+\.[0-9].*", "two decimal points", "a version needs no role"),
    (r".*[0-9].*(?:減|増|감소|증가|faster|slower|smaller|larger|higher|lower|less|more|increase|decrease|reduction).*",
     "whether it is what is left or what is gone is not said", "write the ratio itself (95%, 3倍, 3배, 3×)"),
    (r".*(?:数|몇|several|many|few).*", "an amount that nobody can check", "write a number, a bound or a range"),
)  # fmt: skip


def refusal(text: str, plain: str, lexicon: Lexicon) -> Unreadable:
    """The reason and the hint for a text that the grammar refused; `plain` is the text folded and stripped."""
    for pattern, reason, hint in _REFUSALS:
        if re.fullmatch(pattern, plain, re.DOTALL):
            return Unreadable(text, reason, hint)
    if not re.search(r"[0-9]", plain):
        return Unreadable(text, f"no number of language {lexicon.language!r} is in it", "write the number in digits")
    return Unreadable(
        text, "it is not one number with one known unit or counter",
        "put only the number and its unit into the role, in the words of the page's language",
    )  # fmt: skip
