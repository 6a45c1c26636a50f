"""Numbers and intervals on the page, written without words."""

from fractions import Fraction

import pytest

from attnbook.claims.labels import WORDS, interval, number, quantity, words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8886110.5, "8,886,110"), (0.8712344, "0.871234"), (0.5, "0.5"), (3.0, "3"), (0.0, "0"), (-0.25, "−0.25"),
        (1.2e-6, "1.2×10⁻⁶"), (9.99999e8, "999,999,000"), (1e9, "1×10⁹"), (-2.5e12, "−2.5×10¹²"), (0.0001, "0.0001"),
        (999999.96, "1,000,000"), (131072, "131,072"), (-7, "−7"), (Fraction(1, 8), "1/8 = 0.125"),
            (Fraction(-559, 66), "−559/66 ≈ −8.4697"), (Fraction(3), "3"), (Fraction(1, 10**7), "1/10000000 = 1×10⁻⁷"),
            (float("nan"), "NaN"),
        (float("inf"), "∞"), (float("-inf"), "−∞"), (True, "true"), (False, "false"), (None, "–"),
    ],
)  # fmt: skip
def test_number(value, text):
    """Six significant digits at most, thousands separated, a power of ten where the number is hard to read."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "language", "text"),
    [
        (8, "GiB", "en", "8 GiB"), (0.98, "ratio", "en", "0.98"), (2.0, "point", "ja", "2 ポイント"),
        (3, "", "en", "3"), (True, "", "ko", "참"), (None, "B", "en", "–"),
    ],
)  # fmt: skip
def test_quantity(value, unit, language, text):
    """The unit follows; a ratio has none."""
    assert quantity(value, unit, language) == text


@pytest.mark.parametrize(
    ("low", "high", "low_open", "high_open", "text"),
    [
        (0.945, 0.955, False, True, "0.945 ≤ x < 0.955"),
        (3, 3, False, False, "x = 3"),
        (None, 1e-6, False, True, "x < 1×10⁻⁶"),
        (None, 7, False, False, "x ≤ 7"),
        (20, None, True, False, "x > 20"),
        (20, None, False, False, "x ≥ 20"),
        (-2, 5, True, False, "−2 < x ≤ 5"),
    ],
)
def test_interval(low, high, low_open, high_open, text):
    """Open and closed ends, one-sided bounds, a single value."""
    assert interval(low, high, low_open=low_open, high_open=high_open) == text


def test_languages():
    """Regional codes find their language, any other one gets English, and no language lacks a word."""
    assert words("ko_KR") is WORDS["ko"]
    assert words("ja-JP") is WORDS["ja"]
    assert words("fr") is words(None) is WORDS["en"]
    assert {frozenset(table) for table in WORDS.values()} == {frozenset(WORDS["en"])}
