"""Another value in the form of a number that is already written."""

from fractions import Fraction

import pytest

from attnbook.claims.accept import exact
from attnbook.claims.reshape import CannotReshape, candidates

# language, written, value in the written unit, standard deviation, first new text
FORMS = [
    # decimals: as many as were written
    ("ja", "0.95", 0.87, 0, "0.87"),
    ("ja", "0.950", 0.87, 0, "0.870"),
    ("en", "−0.50", 0.25, 0, "0.25"),
    ("en", "-0.50", -0.25, 0, "-0.25"),
    ("en", "0.95", -0.25, 0, "−0.25"),
    ("en", "0.95", 1234.5678, 0, "1234.57"),
    # a number that would round to nothing keeps its significant digits instead
    ("en", "0.95", 0.0003, 0, "0.00030"),
    ("en", "0.95", 0, 0, "0.00"),
    # a half is rounded up, towards what the new text accepts
    ("en", "0.95", 0.945, 0, "0.95"),
    # integers, separators, full width
    ("ja", "3個", 7, 0, "7個"),
    ("en", "1,024", 2048, 0, "2,048"),
    ("en", "1,024", 999, 0, "999"),
    ("en", "1024", 1234567, 0, "1234567"),
    ("en", "1,024", 1234567, 0, "1,234,567"),
    ("ja", "１，０２４", 2048, 0, "２，０４８"),
    ("ja", "０．９５", 0.87, 0, "０．８７"),
    ("ja", "131 072バイト", 262144, 0, "262 144バイト"),
    # scale words and units stay
    ("ja", "889万", 12345678, 0, "1235万"),
    ("ko", "9백만", 12345678, 0, "12백만"),
    ("en", "9 million", 12345678, 0, "12 million"),
    ("ja", "1億3500万", 240001234, 0, "2億4000万"),
    ("ko", "2만 5천", 31234, 0, "3만 1천"),
    ("en", "16 Ki", 32768, 0, "32 Ki"),
    ("en", "98%", 87.3, 0, "87%"),
    ("ja", "8 GiB", 16, 0, "16 GiB"),
    # "about": significant digits, trailing zeros none
    ("ja", "約900万", 7200000, 0, "約700万"),
    ("ko", "약 900만", 7200000, 0, "약 700만"),
    ("ja", "約4倍", 7.8, 0, "約8倍"),
    ("ja", "約100", 430, 0, "約400"),
    ("ja", "約1.2", 3.456, 0, "約3.5"),
    ("ja", "約4", 0.52, 0, "約0.5"),
    # powers of ten
    ("ja", "1.2×10⁻⁶", 3.4e-5, 0, "3.4×10⁻⁵"),
    ("en", "1.2e-6", 3.4e5, 0, "3.4e5"),
    ("en", "1.2e-06", 3.4e-5, 0, "3.4e-05"),
    ("en", "1.2 × 10^6", 3.4e5, 0, "3.4 × 10^5"),
    ("en", "9.9e-6", 9.99e-6, 0, "1.0e-5"),
    ("en", "12e3", 34000, 0, "34e3"),
    # bounds move to the next one of as many significant digits
    ("ja", "1e-6未満", 2.3e-6, 0, "3e-6未満"),
    ("en", "<1e-6", 2.3e-6, 0, "<3e-6"),
    ("en", "<3e-6", 4e-6, 0, "<5e-6"),
    ("en", "at most 3e-6", 4e-6, 0, "at most 4e-6"),
    ("ja", "9e-6未満", 9.7e-6, 0, "1e-5未満"),
    ("ja", "90%以上", 85, 0, "80%以上"),
    ("ja", "95%以上", 87.3, 0, "87%以上"),
    ("ja", "95%以上", 87.3, 0.4, "86%以上"),
    ("ja", "0.01以下", 0.43, 0, "0.5以下"),
    ("ja", "0.01以下", 0.43, 0.05, "0.6以下"),
    ("ja", "10⁻⁶未満", 3e-5, 0, "10⁻⁴未満"),
    ("ja", "10⁻⁶未満", 1e-5, 0, "10⁻⁴未満"),
    ("en", "at most 10^-6", 1e-5, 0, "at most 10^-5"),
    ("en", "at least 10^6", 345, 0, "at least 10^2"),
    # ranges are drawn around value ± 2 standard deviations
    ("ja", "2〜3倍", 4.4, 0, "4〜5倍"),
    ("ja", "2〜3倍", 4.4, 0.5, "3〜6倍"),
    ("ko", "2~3배", 4, 0, "4~5배"),
    ("en", "2–3×", 1.2, 0, "1–2×"),
    ("en", "0.20–0.30", 0.456, 0, "0.45–0.46"),
    # fractions, where the value is one
    ("ja", "8分の1", 0.25, 0, "4分の1"),
    ("ko", "8분의 1", 0.125 / 2, 0, "16분의 1"),
    ("en", "1/8", Fraction(1, 3), 0, "1/3"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "written", "value", "spread", "new"), FORMS)
def test_the_form_is_kept(language, written, value, spread, new):
    """The first candidate says the value at the written precision, in the written form."""
    assert next(candidates(written, exact(value), exact(spread), language)) == new


def test_about_offers_more_digits():
    """Where one digit reaches too little, "about" may take more: the caller's judge chooses."""
    assert list(candidates("約900万", Fraction(12345678), Fraction(0), "ja")) == [
        "約1000万", "約1200万", "約1230万", "約1235万",
    ]  # fmt: skip


REFUSED = [
    ("ja", "半分", 0.25, "'半分' is written in words"),
    ("ja", "三つ", 4, "'三つ' is written in words"),
    ("en", "nan", 1, "'nan' is no number whose digits could change"),
    ("ja", "8分の1", 0.3, "the measurement is no fraction with 1 above the line, as '8分の1' is"),
    ("en", "10⁻⁶", 1e-5, "'10⁻⁶' is a bare power: only a bound at a power of ten has a next one"),
    ("en", "1.2e-6", 0, "0 has no power of ten"),
    ("ja", "0.9以上", -0.2, "a bound of this form would only give the sign"),
    ("ja", "0.9以上", 0.0, "a bound of this form would only give the sign"),
    ("ja", "2〜3倍", 0.4, "a range in the form of '2〜3倍' would begin at 0"),
    ("ja", "1億3500万", 24000000, "the new number has no part of its own for every scale word of '1億3500万'"),
    ("en", "2-3", 4, "cannot read '2-3'"),
]


@pytest.mark.parametrize(("language", "written", "value", "reason"), REFUSED)
def test_what_the_form_cannot_say_is_refused(language, written, value, reason):
    """A form that cannot say the value is refused with the reason."""
    with pytest.raises(CannotReshape) as refused:
        next(candidates(written, exact(value), Fraction(0), language))
    assert str(refused.value).startswith(reason)
