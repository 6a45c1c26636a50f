"""What holds of every written number, in each of the three languages."""

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from attnbook.claims.numerals import LANGUAGES, Unreadable, read
from attnbook.claims.numerals.digits import fold
from attnbook.claims.numerals.parse import LEXICONS

ABOUT = {"ja": "約{}", "ko": "약 {}", "en": "about {}"}
BOUNDS = {
    "ja": {"<": "{}未満", "<=": "{}以下", ">=": "{}以上", ">": "{}超"},
    "ko": {"<": "{} 미만", "<=": "{} 이하", ">=": "{} 이상", ">": "{} 초과"},
    "en": {"<": "less than {}", "<=": "at most {}", ">=": "at least {}", ">": "more than {}"},
}
RANGE = {"ja": "{}〜{}", "ko": "{}~{}", "en": "{}–{}"}
MILLIONS = {"ja": ("万", 10**4), "ko": ("만", 10**4), "en": (" million", 10**6)}

languages = st.sampled_from(LANGUAGES)
decimals = st.decimals(min_value=-(10**6), max_value=10**6, allow_nan=False, allow_infinity=False, places=7)
places = st.integers(min_value=1, max_value=6)
wholes = st.integers(min_value=1, max_value=10**9)


def _rounded(value, digits):
    return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def _holds(reading, value):
    above = reading.low is None or (value > reading.low if reading.low_open else value >= reading.low)
    below = reading.high is None or (value < reading.high if reading.high_open else value <= reading.high)
    return above and below


def full_width(text):
    """Every sign that has a full-width form in that form."""
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)


@given(languages, decimals, places)
def test_a_number_is_accepted_by_what_it_is_rounded_to(language, value, digits):
    """Formatting a number and reading it back gives an interval that holds the number."""
    written = _rounded(value, digits)
    assert _holds(read(f"{written:f}".replace("-", "−"), language), Fraction(value))
    assert _holds(read(f"{written:,f}", language), Fraction(value))


@given(languages, decimals, places, st.integers(min_value=1, max_value=9))
def test_another_last_digit_is_another_number(language, value, digits, step):
    """With its last digit changed, a text no longer accepts the number it was written for."""
    written = _rounded(value, digits)
    changed = written + Decimal(step).scaleb(-digits)
    assume(changed != 0)
    assert not _holds(read(f"{changed:f}", language), Fraction(written))


@given(languages, wholes, wholes)
def test_a_whole_number_accepts_itself_alone(language, number, other):
    """Bare integers are exact, with separators or without."""
    for text in (str(number), f"{number:,}"):
        assert _holds(read(text, language), Fraction(number))
        assert _holds(read(text, language), Fraction(other)) == (number == other)


@given(languages, wholes, st.integers(min_value=0, max_value=3))
def test_about_never_reaches_further_than_a_tenth(language, number, digits):
    """The word about widens to half a unit of the last digit that says something, and at most to ±10 %."""
    text = f"{number}" if digits == 0 else f"{number / 10**digits:.{digits}f}"
    assume(float(text) != 0)
    plain, about = read(text, language), read(ABOUT[language].format(text), language)
    assert about.kind == "about"
    assert about.low <= plain.value <= about.high
    assert about.high - about.low <= plain.value / 5
    assert about.value == plain.value


@given(languages, wholes)
def test_trailing_zeros_say_nothing_after_about(language, number):
    """Nor do they before a scale word, and a scale word alone carries the unit of the last digit."""
    word, scale = MILLIONS[language]
    about = read(ABOUT[language].format(f"{number}{word}"), language)
    assert (about.low, about.high) == (
        read(ABOUT[language].format(number * scale), language).low,
        read(ABOUT[language].format(number * scale), language).high,
    )
    plain = read(f"{number}{word}", language)
    assert plain.high - plain.low == scale


@given(languages, decimals, places)
def test_a_bound_is_the_number_itself_and_never_widened(language, value, digits):
    """A bound accepts one side of the written number, the number itself only where the words say so."""
    written = _rounded(value, digits)
    for comparison, frame in BOUNDS[language].items():
        reading = read(frame.format(f"{written:f}"), language)
        assert reading.comparison == comparison
        assert _holds(reading, Fraction(written)) == ("=" in comparison)
        assert _holds(reading, Fraction(written) - 1) == ("<" in comparison)
        assert _holds(reading, Fraction(written) + 1) == (">" in comparison)


@given(languages, decimals, decimals, places)
def test_a_range_accepts_what_lies_between_its_ends(language, one, other, digits):
    """A rising range holds its ends and its middle and not what is a whole unit outside; a falling one is refused."""
    low, high = _rounded(one, digits), _rounded(other, digits)
    text = RANGE[language].format(f"{low:f}", f"{high:f}")
    if low >= high:
        with pytest.raises(Unreadable, match="does not rise"):
            read(text, language)
        return
    reading, unit = read(text, language), Decimal(1).scaleb(-digits)
    assert all(_holds(reading, Fraction(inside)) for inside in (low, high, (low + high) / 2))
    assert not any(_holds(reading, Fraction(outside)) for outside in (low - unit, high + unit))


_SIGNS = sorted({
    *"0123456789.,+-−~〜～–%×^⁰¹²⁶⁻ 　\u2009\u202f?±x", *"百千万億兆백천만억조분의の分", "約", "약", "about ", "e-6",
    "Ki", "GiB", "以上", "미만", "at most ", "three ", "三つ", "세 줄", "倍", "배", " times", "行", "개", " lines",
    "nan", "inf", "−inf", "半分", "half",
})  # fmt: skip


@given(languages, st.one_of(st.text(max_size=30), st.lists(st.sampled_from(_SIGNS), max_size=9).map("".join)))
@example("ja", "9" * 5000)
@example("ja", "1e999999999999999999999999")
@example("ja", "9^9999")
@example("en", "1,000" * 16)
@example("en", " to " * 20)
@example("ja", "から" * 40)
@example("ko", "에서 " * 20)
@example("ja", "1万" * 40)
@example("ja", "۱۲")
@example("ja", "½")
@example("ja", "²")
@example("en", "İ")
@settings(max_examples=1500)
def test_any_text_is_read_or_refused(language, text):
    """Nothing but Unreadable is ever raised, and what is read is well formed and full-width proof."""
    try:
        reading = read(text, language)
    except Unreadable:
        return
    assert reading.text == text
    if reading.low is not None and reading.high is not None:
        assert reading.low <= reading.high
    if reading.value is not None and reading.kind != "bound":
        assert _holds(reading, reading.value)
    wide = read(full_width(text), language)
    assert (wide.low, wide.high, wide.comparison, wide.unit) == (
        reading.low, reading.high, reading.comparison, reading.unit,
    )  # fmt: skip
    assert reading.denotes(wide)


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing(text):
    """Full-width folding is idempotent and keeps every character's place."""
    assert fold(fold(text)) == fold(text)
    assert len(fold(text)) == len(text)


def test_the_lexicons_do_not_read_a_word_in_two_ways():
    """No word of a language is both a unit and a counter, or opens a number as both about and a bound."""
    for lexicon in LEXICONS.values():
        assert not set(lexicon.units) & lexicon.counters
        assert not set(lexicon.about_before) & set(lexicon.bounds_before)
        assert not set(lexicon.about_after) & set(lexicon.bounds_after)


def test_a_language_without_lexicon_is_a_mistake_of_the_caller():
    """Asking for a language that has no numerals names those that exist."""
    with pytest.raises(ValueError, match="no numerals for language 'fr': there are ja, ko, en"):
        read("3", "fr")
