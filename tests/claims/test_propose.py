"""Literals on offer: the judge finds every one of them fine, in every language, for every measurement."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnbook.claims.judge import judge
from attnbook.claims.numerals import LANGUAGES, UNITS, read
from attnbook.claims.propose import literals
from attnbook.measure import Measurement

values = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(min_value=-2, max_value=2),
    st.floats(min_value=1e-9, max_value=1e12),
    st.integers(min_value=-(10**15), max_value=10**15),
    st.fractions(max_denominator=64),
)
spreads = st.one_of(st.none(), st.floats(min_value=0, max_value=0.2))


@given(values, spreads, st.sampled_from(["", "ratio", "point", "B", "s", "token", "FLOP", "GiB", "B/s", "bit"]))
@example(0.0, None, "")
@example(8886110.5, None, "")
@example(0.87, 0.01, "ratio")
@example(0.9999, None, "ratio")
@example(5e-324, None, "")
@example(1.7976931348623157e308, None, "")
@settings(max_examples=300, deadline=None)
def test_whatever_is_offered_is_fine(value, spread, unit):
    """In three languages; and a value that is not random is always offered something."""
    spread = None if spread is None else spread * abs(float(value))
    measurement = Measurement("a.b", value, unit=unit, spread=spread)
    for language in LANGUAGES:
        offers = literals(measurement, language)
        for text in offers:
            verdict = judge(text, measurement, "claim", language)
            assert verdict.status == "fine", (text, verdict.message)
        assert offers or spread
        assert len(set(offers)) == len(offers)


@pytest.mark.parametrize(
    ("language", "two", "three", "four", "about"),
    [
        ("ja", "8.9×10⁶", "889万", "888.6万", "約890万"), ("ko", "8.9×10⁶", "889만", "888.6만", "약 890만"),
        ("en", "8.9 million", "8.89 million", "8.886 million", "about 8.9 million"),
    ],
)  # fmt: skip
def test_two_three_four_digits_and_about_are_offered_in_the_idiom(language, two, three, four, about):
    """A large real number in each language's own scale words."""
    offers = literals(Measurement("a.b", 8886110.5), language)
    assert {two, three, four, about} <= set(offers)


@pytest.mark.parametrize(
    ("measurement", "offer"),
    [
        (Measurement("a.b", 3), "3"), (Measurement("a.b", 131072), "131,072"), (Measurement("a.b", -0.98), "−0.98"),
        (Measurement("a.b", 0.871, unit="ratio"), "87%"), (Measurement("a.b", 4.0, unit="ratio"), "4倍"),
        (Measurement("a.b", 2**33, unit="B"), "8 GiB"), (Measurement("a.b", 2.34, unit="point"), "2.3ポイント"),
        (Measurement("a.b", 512, unit="token"), "512トークン"), (Measurement("a.b", 3.2e-7), "1e-6未満"),
        (Measurement("a.b", 0.125), "8分の1"), (Measurement("a.b", Fraction(2, 3)), "3分の2"),
        (Measurement("a.b", 0.0), "0"), (Measurement("a.b", 1.234e12, unit="FLOP"), "1.2 TFLOP"),
        (Measurement("a.b", 0.87, spread=0.01), "0.85以上"), (Measurement("a.b", 3.0, spread=2.0), "8未満"),
        (Measurement("a.b", math.inf), "inf"), (Measurement("a.b", -math.inf), "−inf"),
        (Measurement("a.b", math.nan), "nan"),
    ],
    ids=lambda value: str(value),
)  # fmt: skip
def test_each_kind_of_measurement_has_its_own_way_of_writing(measurement, offer):
    """Whole, small, binary, random, infinite."""
    assert offer in literals(measurement, "ja")


@pytest.mark.parametrize(
    ("value", "unit", "spread", "language", "first"),
    [
        (0.2996, "ratio", 0.0722, "ja", "16〜44%"), (0.843, "", 0.006, "ja", "0.831〜0.855"),
        (0.843, "", 0.006, "ko", "0.831~0.855"), (0.843, "", 0.006, "en", "0.831–0.855"),
        (8.9e6, "ratio", 4e5, "ja", "810万〜970万倍"), (8.9e6, "ratio", 4e5, "ko", "810만~970만 배"),
        (8.9e6, "ratio", 4e5, "en", "8.1 million–9.7 million times"), (12345.0, "", 300.0, "en", "11,740–12,950"),
        (-0.5, "", 0.1, "ja", "−0.7〜−0.3"), (-0.5, "", 0.4, "ja", "−1.3〜0.3"),
        (512.0, "token", 30.0, "ja", "452〜572トークン"),
        (1.3e-5, "", 2e-6, "ja", "0.9e-5〜1.7e-5"), (3.0, "", 2.0, "ja", "7.1未満"),
    ],
)  # fmt: skip
def test_a_random_number_is_offered_the_narrowest_range_that_holds_it(value, unit, spread, language, first):
    """Where no rounding has room for two standard deviations, in the language's own way; before any bound."""
    assert literals(Measurement("a.b", value, unit=unit, spread=spread), language)[0] == first


@given(values, spreads, st.sampled_from(["", "ratio", "B", "s"]))
@example(2.3, 1.5, "")
@example(0.2, 0.2, "")
@settings(max_examples=200, deadline=None)
def test_nothing_is_offered_that_says_nothing(value, spread, unit):
    """A loss is above nothing: 0以上 or −1〜5 of a positive number would accept whatever is measured."""
    if not value > 0:
        return
    for text in literals(Measurement("a.b", value, unit=unit, spread=(spread or 0.0) * abs(float(value))), "ja"):
        reading = read(text, "ja")
        assert reading.comparison not in (">=", ">") or reading.low > 0, text
        assert not text.startswith(("−", "0〜", "0%〜", "0.0〜")), text


def test_a_boolean_and_an_unknown_unit_are_offered_nothing():
    """A statement is bound with holds; a unit that no text has cannot be quoted."""
    assert literals(Measurement("a.b", True), "ja") == []
    assert literals(Measurement("a.b", 3, unit="parsec"), "ja") == []


def test_every_unit_has_an_offer_that_carries_it():
    """In each language the offered texts are read back in a unit of the same kind."""
    for symbol, unit in UNITS.items():
        if symbol in ("times", "割"):
            continue  # one language's way to write a ratio, which is what is measured
        for language in LANGUAGES:
            offers = literals(Measurement("a.b", 12.5, unit=symbol), language)
            assert offers, (symbol, language)
            read_back = {UNITS[read(text, language).unit].dimension for text in offers}
            assert read_back <= {unit.dimension, *(("number", "times") if unit.dimension in ("ratio", "times") else ())}
