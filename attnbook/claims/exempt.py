"""Numerals in prose that need no claim: parts of names, references and years, told apart by grammar alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from attnbook.claims.numerals.lexicon import SYMBOL_UNITS
from attnbook.claims.numerals.parse import LEXICONS

LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
_YEAR = r"(?<![0-9.,])(?:1[89][0-9]{2}|20[0-3][0-9])(?![0-9]|[.,][0-9])"  # 2048 is a size far more often than a year

_EVERYWHERE = (
    rf"(?:https?://|www\.|doi:|arXiv:)[{LETTER}0-9/._~%?#=&:+-]+",
    r"(?<![0-9.])[0-9]+(?:\.[0-9]+){2,}(?:\.?[a-z]+[0-9]+)?(?![0-9])",  # no number has two points: a version
    r"(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}(?![0-9-])",
    rf"\({_YEAR}\)",
    rf"\([^()0-9]{{1,60}}[,、] ?{_YEAR}[a-z]?(?:; ?[^()0-9]{{1,60}}[,、] ?{_YEAR}[a-z]?){{0,5}}\)",
    rf"et al\.,? ?\(?{_YEAR}",
    r"§ ?[0-9]{1,3}(?:\.[0-9]{1,3})*(?![0-9])",
)

_NUMBER = r"[1-9][0-9]{0,2}(?:[.-][0-9]{1,3}){0,2}(?:[a-d](?![A-Za-z]))?(?![0-9]|[.,][0-9])"


def _quantity_follows(language: str) -> str:
    """A pattern for what makes the digits before it an amount: a unit, a counter, a scale word, a bound."""
    lexicon = LEXICONS[language]
    every = {*lexicon.units, *lexicon.counters, *lexicon.large_scales, *lexicon.small_scales, *SYMBOL_UNITS, "%"}
    every |= {*lexicon.bounds_after, *lexicon.about_after}
    longest_first = sorted(every - {"章", "節", "장", "절"}, key=len, reverse=True)
    latin = "|".join(re.escape(word) for word in longest_first if word[-1:].isascii() and word[-1:].isalpha())
    other = "|".join(re.escape(word) for word in longest_first if not (word[-1:].isascii() and word[-1:].isalpha()))
    return rf"\s?(?:(?:{latin})(?![{LETTER}])|{other or '%'})"


def _labels(before: str, joints: str, language: str) -> str:
    """References that name a thing before its number: 図1, ステップ5, chapters 2 and 3."""
    number = rf"{_NUMBER}(?!{_quantity_follows(language)})"
    return rf"(?:{before})\s?\(?{number}\)?(?:(?:{joints}){number}){{0,5}}"


_JAPANESE_JOINTS = r"\s?(?:[、,・~–]|と|および|及び|から|または)\s?"
_KOREAN_JOINTS = r"\s?(?:[,·~–]|와|과|및|부터|에서|또는)\s?"
_ENGLISH_JOINTS = r"\s?(?:, and|, or|[,~–]|and|or|to|through)\s?"
_AFTER_A_YEAR = (
    r"(?=[.,;:!?)\]'\"]|\s?$|\s(?:the|a|an|it|we|they|he|she|this|that|these|and|but|or|by|with|when|as|at|on|for|to"
    r"|was|were|is|are|has|had|paper)\b)"
)

_BY_LANGUAGE: Mapping[str, tuple[str, ...]] = {
    "ja": (
        rf"{_YEAR}(?:[~–-]{_YEAR})?年(?:[0-9]{{1,2}}月(?:[0-9]{{1,2}}日)?)?(?!間|ぶり|分|前|後|以上|以下)",
        r"第\s?[0-9]{1,3}(?:(?:[、,・~–]|と)[0-9]{1,3}){0,5}\s?(?:章|節|項|部|編|巻|版|回|図|表|式|問|段階|ステップ)",
        rf"(?<!全)(?<!合計){_NUMBER}(?:{_JAPANESE_JOINTS}{_NUMBER}){{0,5}}\s?(?:章|節)(?!分|構成)",
        _labels(
            r"(?<![一-龯])(?:図|表|式|例|例題|問|問題|演習|付録|脚注|章|節|手順|段階)|ステップ|セル|リスト|ページ",
            _JAPANESE_JOINTS, "ja",
        ),
        r"(?:バージョン|版)\s?[0-9]+(?:\.[0-9]+)*(?![0-9%])",
    ),
    "ko": (
        rf"{_YEAR}(?:[~–-]{_YEAR})?\s?년(?:\s?[0-9]{{1,2}}월(?:\s?[0-9]{{1,2}}일)?)?(?!\s?(?:간|동안|치|째|차|전|후|이상))",
        r"제\s?[0-9]{1,3}\s?(?:장|절|항|부|편|권|판|회|단계)",
        rf"(?<!총 )(?<!총){_NUMBER}(?:{_KOREAN_JOINTS}{_NUMBER}){{0,5}}\s?(?:장|절|단계)(?!\s?(?:짜리|씩|분량))",
        _labels(
            r"(?<![가-힣])(?:그림|표|식|수식|예제|예|문제|연습|연습문제|부록|각주|단계|스텝|셀|장|절|목록|쪽)",
            _KOREAN_JOINTS, "ko",
        ),
        r"(?:버전)\s?[0-9]+(?:\.[0-9]+)*(?![0-9%])",
    ),
    "en": (
        rf"\b(?:[Ii]n|[Ss]ince|[Bb]y|[Uu]ntil|[Ff]rom|[Oo]f|[Bb]efore|[Aa]fter|[Dd]uring|early|late|mid)[ -]{_YEAR}"
        rf"(?:[~–-]{_YEAR}| to {_YEAR}| and {_YEAR})?{_AFTER_A_YEAR}",
        r"(?:[0-9]{1,2} )?\b(?:January|February|March|April|May|June|July|August|September|October|November"
        rf"|December)(?: [0-9]{{1,2}},)? {_YEAR}",
        _labels(
            rf"(?<![{LETTER}])(?:[Cc]hapters?|[Cc]h\.|[Ss]ections?|[Ss]ec\.|[Ff]igures?|[Ff]igs?\.|[Tt]ables?|[Ee]quations?"
            r"|[Ee]qs?\.|[Ss]teps?|[Ee]xercises?|[Aa]ppendix|(?<!in )[Pp]arts?|(?<![Ff]or )[Ee]xamples?|[Pp]ages?|pp?\."
            r"|[Ff]ootnotes?|[Ll]istings?|[Cc]ells?|[Pp]roblems?|[Qq]uestions?|[Vv]olume|[Vv]ol\.)",
            _ENGLISH_JOINTS, "en",
        ),
        r"\b[Vv]ersions?\s[0-9]+(?:\.[0-9]+)*(?![0-9%])",
    ),
}  # fmt: skip

_PATTERNS = {
    language: tuple(re.compile(pattern) for pattern in (*_EVERYWHERE, *patterns))
    for language, patterns in _BY_LANGUAGE.items()
}

_NAME = re.compile(rf"(?<![{LETTER}0-9_])[{LETTER}_][{LETTER}0-9_]*(?:[-.#][{LETTER}0-9_]+)*")
_DIGIT_NAME = re.compile(
    rf"(?<![{LETTER}0-9_.,])(?![0-9]+[eE][0-9]+(?![{LETTER}0-9]))[0-9]{{1,4}}(?:[{LETTER}]+[0-9]{{1,4}})+[{LETTER}]*"
    r"(?![0-9.,^⁰¹²³⁴⁵⁶⁷⁸⁹⁻])"
)
"""A name that starts with a digit and holds another one: 3x3, 1F1B, 540fcbfd; not a power, 1e6 or 9x10⁶."""
_NO_NAME = re.compile(r"[0-9]{5,}|(?<![0-9.])0\.[0-9]+(?![.0-9])")
"""Digits that stand in no name: a long run of them, a decimal below one. `ratio-8886110` and `p0.98` are no names."""
_TAIL = re.compile(rf"(?P<joint>[-_]?)(?P<word>[{LETTER}µ]+)(?P<more>[0-9]?)")
_AMOUNT_WORDS = frozenset(
    {*SYMBOL_UNITS, "k", "K", "M", "G", "T", "B", "b", "m", "x", "X", "h", "Ki", "Mi", "Gi", "Ti", "KB", "kb", "mb"}
    | {"gb", "tb", "st", "nd", "rd", "th", "pct", "min", "sec", "tok", "percent", "fold", "times", "pp"}
    | {"W", "mW", "kW", "J", "mJ", "kJ", "V", "Hz", "kHz", "MHz", "GHz", "nm", "mm", "cm", "km", "mg", "kg", "dB", "px"}
    | {"bps", "kbps", "Mbps", "Gbps", "fps", "rpm", "ppm", "TOPS", "dpi"}
)
_AMOUNT_WORDS_AFTER_HYPHEN = frozenset(
    {"fold", "percent", "per", "percentage", "point", "points", "times", "hundred", "thousand", "million", "billion"}
    | {"trillion", "k", "x", *(symbol for symbol in SYMBOL_UNITS if symbol not in ("bit", "bits", "B", "s"))}
)


def exempt_spans(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Where a (folded) text holds names, references, years, versions and addresses, as start and end."""
    for pattern in _PATTERNS[language]:
        yield from (match.span() for match in pattern.finditer(text))
    yield from (match.span() for match in _DIGIT_NAME.finditer(text))
    for match in _NAME.finditer(text):
        if "#" in match[0] or not _NO_NAME.search(match[0]) or re.fullmatch(r"v[0-9.]+", match[0]):
            yield match.span()


def is_start_of_name(text: str, end: int) -> bool:
    """Is a numeral that ends here the first part of a name (2D, 4-way) and not an amount (3x, 12GB, 135M)?"""
    tail = _TAIL.match(text, end)
    if tail is None:
        return False
    if tail["more"]:
        return False  # 3x3 is a name of its own pattern; what is left is 9x10⁶
    words = _AMOUNT_WORDS_AFTER_HYPHEN if tail["joint"] == "-" else _AMOUNT_WORDS
    return tail["word"] not in words
