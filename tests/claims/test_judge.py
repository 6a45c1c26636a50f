"""Judging: what is fine, and each way of not being fine, with its message."""

import math
from fractions import Fraction

import pytest

from attnbook.claims.judge import accepts, difference, judge, same_number
from attnbook.claims.numerals import UNITS, read
from attnbook.measure import Measurement


def status(text, value, unit="", spread=None, language="ja", role="claim"):
    """The verdict in one word."""
    return judge(text, Measurement("a.b", value, unit=unit, spread=spread), role, language).status


def message(text, value, unit="", spread=None, language="ja", role="claim", **more):
    """What the author is told."""
    return judge(text, Measurement("a.b", value, unit=unit, spread=spread, **more), role, language).message


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("0.98", 0.975, ""), ("0.98", 0.9849999, ""), ("3", 3, ""), ("3", 3.0, ""), ("3", 3 + 2e-9, ""),
        ("0", 0.0, ""), ("0", 0, ""), ("0", -0.0, ""), ("0.1", 0.1, ""), ("約900万", 8886110.5, ""),
        ("889万", 8886110.5, ""), ("1e-6未満", 3.2e-7, ""), ("98%", 0.98, "ratio"), ("0.98", 0.98, "ratio"),
        ("4倍", 4.0, "ratio"), ("半分", 0.5, "ratio"), ("8分の1", 0.125, ""), ("8分の1", Fraction(1, 8), "ratio"),
        ("1/3", 1 / 3, ""), ("2ポイント", 2.1, "point"), ("8 GiB", 2**33, "B"), ("8 GiB", 8, "GiB"),
        ("8,192 MiB", 8, "GiB"), ("16 Ki", 16384, ""), ("131 072バイト", 131072, "B"), ("三行", 3, ""),
        ("512トークン", 512, "token"), ("128 Kiトークン", 131072, "token"), ("3分", 180, "s"),
        ("1.5 ms", 0.0015, "s"), ("1.5 µs", 1.5e-6, "s"), ("1.5 ns", 1.5e-9, "s"), ("1.2 TFLOP", 1.2e12, "FLOP"),
        ("nan", math.nan, ""), ("inf", math.inf, ""), ("−inf", -math.inf, ""), ("inf", math.inf, "s"),
        ("2〜3倍", 2.5, "ratio"), ("8.6 GB", 2**33, "B"), ("20トークン/秒", 20, "token/s"),
    ],
)  # fmt: skip
def test_a_number_that_says_what_was_measured_is_fine(text, value, unit):
    """Every way of writing, converted to the measurement's unit."""
    assert status(text, value, unit) == "fine"


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("0.98", 0.985, ""), ("0.98", 0.9749, ""), ("3", 4, ""), ("3", 3.01, ""), ("3", 3 + 4e-9, ""),
        ("0", 1e-300, ""), ("0.98", -0.98, ""), ("−0.98", 0.98, ""), ("3", Fraction(10**10 + 1, 3 * 10**10), ""),
        ("1.2e-6", 9.9e-6, ""), ("約900万", 8_400_000, ""), ("1e-6未満", 1e-6, ""), ("1e-6超", 1e-6, ""),
        ("98%", 98, "ratio"), ("98%", 0.99, "ratio"), ("4倍", 4.2, "ratio"), ("8 GB", 2**33, "B"),
        ("2 GB", 2**31, "B"), ("8 MiB", 2**33, "B"), ("128 Ki", 128_000, ""), ("8分の1", 0.126, ""), ("nan", 3.0, ""),
        ("inf", 1e308, ""), ("inf", -math.inf, ""), ("3秒", 180, "s"), ("2〜3倍", 3.5, "ratio"), ("6", 600, ""),
        ("0.95", 0.87, ""),
    ],
)  # fmt: skip
def test_a_number_that_says_something_else_drifts(text, value, unit):
    """Signs, units, powers, comparisons: each is enough."""
    assert status(text, value, unit) == "drift"


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("98%", 0.98, ""), ("4倍", 4, ""), ("半分", 0.5, ""), ("2%", 2.0, "point"), ("2", 2.0, "point"),
        ("2ポイント", 2.0, "ratio"), ("2ポイント", 2.0, ""), ("131072", 131072, "B"), ("8 GiB", 2**33, ""),
        ("8 GiB", 2**33, "s"), ("3個", 3, "ratio"), ("3個", 3, "B"), ("512", 512, "token"), ("512トークン", 512, ""),
        ("8 B", 8, "bit"), ("3", 3, "parsec"), ("3秒", 3, "FLOP"), ("1.2 TFLOP", 1.2e12, "FLOP/s"),
    ],
)  # fmt: skip
def test_a_missing_or_incompatible_unit_is_an_error(text, value, unit):
    """Even where the bare digits would agree."""
    assert status(text, value, unit) == "unit"


def test_a_drift_says_what_was_measured_and_what_would_be_accepted():
    """The words that the build prints after the file and line."""
    assert message("0.95", 0.87) == "claim a.b says 0.95, measured 0.87 (accepts 0.945 to 0.955)"
    assert message("2 GB", 2**31, "B") == "claim a.b says 2 GB, measured 2147483648 B (accepts exactly 2000000000 B)"
    assert message("1e-6未満", 0.5) == "claim a.b says 1e-6未満, measured 0.5 (accepts less than 1e-6)"
    assert message("3倍以上", 2.0, "ratio") == "claim a.b says 3倍以上, measured 2 (accepts at least 3)"
    assert message("nan", 3.0) == "claim a.b says nan, measured 3 (accepts only nan)"
    assert message("98%", 0.9, "ratio") == "claim a.b says 98%, measured 90% (accepts 97.5 to 98.5%)"
    assert message("15〜45%", 0.0885417, "ratio").endswith("measured 8.85417% (accepts 14.5 to 45.5%)")
    assert message("87%", 0.87, "ratio", spread=0.01).partition(": write")[0] == (
        "claim a.b says 87%, measured 87% (accepts 86.5 to 87.5%), fragile: ±2 standard deviations reach 85 to 89%"
    )


@pytest.mark.parametrize(
    ("text", "value", "told"),
    [
        ("約800万", 8886110.52, "measured 8886111 (accepts 7500000 to 8500000)"),
        ("0.001以上", 3.2e-4, "measured 0.00032 (accepts at least 0.001)"),
        ("1e-6未満", 3.2e-5, "measured 3.2e-5 (accepts less than 1e-6)"),
        ("1e15以上", 5e14, "measured 500000000000000 (accepts at least 1e15)"),
        ("3e15以上", 1.25e15, "measured 1.25e15 (accepts at least 3e15)"),
        ("3e15", 10**17 + 1, "measured 1e17 (accepts 2.5e15 to 3.5e15)"),
        ("1.0e9", 1234567890.123, "measured 1234567890 (accepts 950000000 to 1050000000)"),
        ("10以上", 9.9999999, "measured 9.9999999 (accepts at least 10)"),
        ("100000000000000000", 10**17 + 1, "measured 100000000000000001 (accepts exactly 1e17)"),
    ],
)
def test_a_value_is_written_as_the_interval_is(text, value, told):
    """In plain digits from 1e-4 up to 1e15, with an exponent outside; never both ways in one line."""
    assert told in message(text, value)


def test_a_value_just_outside_is_shown_with_the_digits_that_put_it_outside():
    """Never `measured 0.945 (accepts 0.945 to 0.955)`."""
    assert message("0.95", 0.94499999) == "claim a.b says 0.95, measured 0.94499999 (accepts 0.945 to 0.955)"


@pytest.mark.parametrize(
    ("text", "value", "unit", "what"),
    [
        ("3", 3.01, "", "whole number"), ("3", 2.51, "", "whole number"), ("0", -0.2, "", "whole number"),
        ("2 KiB", 2100.0, "B", "whole number"), ("3分", 170.0, "s", "whole number"),
        ("8分の1", 0.126, "", "fraction"), ("半分", 0.52, "ratio", "fraction"),
    ],
)  # fmt: skip
def test_a_real_near_a_whole_number_is_told_how_to_be_written(text, value, unit, what):
    """A whole number is exact, and so is a fraction; the message says what else there is."""
    advice = f"; a {what} is exact: for a real write decimals, a bound or about"
    assert message(text, value, unit).endswith(advice)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("2", 4.0, ""), ("3", 3.5, ""), ("3", -3.01, ""), ("3", 4, ""), ("1", 300.0, ""), ("2 KiB", 2600.0, "B"),
        ("3分", 140.0, "s"), ("8分の1", 0.25, ""), ("半分", 0.8, "ratio"), ("3", math.inf, ""),
        ("3.0", 3.06, ""),
    ],
)  # fmt: skip
def test_a_number_that_is_just_wrong_is_not_told_how_to_write_a_real(text, value, unit):
    """Writing it with decimals would mend nothing."""
    assert "exact:" not in message(text, value, unit)


def test_a_random_measurement_needs_room_for_two_standard_deviations():
    """Value ± 2 spread must lie inside; touching the open end is outside; a bound needs room on its side only."""
    assert status("0.87", 0.87, spread=0.0024) == "fine"
    assert status("0.87", 0.87, spread=0.0025) == "fragile"  # 0.875 is not accepted any more
    assert status("0.87", 0.87, spread=0.01) == "fragile"
    assert status("0.8以上", 0.87, spread=0.01) == "fine"
    assert status("0.86以上", 0.87, spread=0.01) == "fragile"
    assert status("3", 3.0, spread=1e-12) == "fragile"
    assert status("0.87", 0.87, spread=0.0) == "fine"
    assert status("98%", 0.98, "ratio", spread=0.002) == "fine"
    assert status("0.95", 0.87, spread=0.01) == "drift"


def test_a_fragile_claim_is_told_its_reach_and_what_to_write():
    """The message has the interval, the reach of two standard deviations, and literals that are steady."""
    told = message("0.87", 0.87, spread=0.01)
    assert told.startswith("claim a.b says 0.87, measured 0.87 (accepts 0.865 to 0.875), fragile: ")
    assert "±2 standard deviations reach 0.85 to 0.89: write 約0.9" in told


@pytest.mark.parametrize("spread", [math.nan, math.inf, -1.0, 1e308])
def test_a_nonsense_spread_never_passes(spread):
    """A standard deviation that is no number, negative or beyond all bounds makes nothing fine."""
    assert status("0.87", 0.87, spread=spread) in ("not finite", "fragile")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["0.87", "3", "約3", "3以上", "3以下", "2〜3", "1e308以下"])
def test_a_number_never_quotes_nan_or_infinity(text, value):
    """Not even a bound that infinity would satisfy."""
    assert status(text, value) == "not finite"
    assert f"measured {value}" in message(text, value)


def test_a_text_that_cannot_be_read_is_told_why():
    """The reason and the way out come with the claim's name."""
    told = message("128k", 131072)
    assert status("128k", 131072) == "unreadable"
    assert told == (
        "claim a.b says 128k, which cannot be read: k is 1000 to some and 1024 to others; write 128 Ki, or 128,000"
    )


def test_a_statement_holds_where_the_measurement_is_true():
    """holds needs the boolean True: not 1, not 1.0, not a text with a number in it."""
    assert status("未来は見えない", True, role="holds") == "fine"
    assert status("未来は見えない", False, role="holds") == "false"
    assert status("未来は見えない", 1, role="holds") == "not boolean"
    assert status("未来は見えない", math.nan, role="holds") == "not boolean"
    assert status("", True, role="holds") == "unreadable"
    assert status("精度は98%です", True, role="holds") == "unreadable"
    assert (
        message("未来は見えない", False, role="holds") == "holds a.b says 未来は見えない, measured False (accepts True)"
    )
    assert "holds the number 98" in message("精度は98%です", True, role="holds")


def test_a_number_does_not_quote_a_boolean():
    """True is not 1."""
    assert status("1", True) == "not a number"
    assert "needs the role holds" in message("1", True)


def test_a_stale_record_fails_though_its_number_still_agrees():
    """The message names the changed file and the record."""
    stale = {"stale": ("attnbook/kernels/flash.py",), "source": "book/records/flash.json", "kind": "recorded"}
    verdict = judge("3", Measurement("a.b", 3, **stale), "claim", "ja")
    assert verdict.status == "stale"
    assert "attnbook/kernels/flash.py changed after book/records/flash.json was made" in verdict.message
    assert judge("文", Measurement("a.b", True, **stale), "holds", "ja").status == "stale"


@pytest.mark.parametrize(("language", "about"), [("ja", "約890万"), ("ko", "약 890만"), ("en", "about 8.9 million")])
def test_a_placeholder_is_answered_with_literals(language, about):
    """A question mark never passes, and is answered in the language of the page."""
    verdict = judge("?", Measurement("a.b", 8886110.5), "claim", language)
    assert verdict.status == "placeholder"
    assert about in verdict.message


def test_a_placeholder_for_a_boolean_points_to_holds():
    """There is no number to offer for True; where the role is right, the statement is what is missing."""
    assert "with the role holds" in message("?", True)
    assert message("?", True, role="holds") == (
        "holds a.b is a placeholder: write the statement in place of ?; measured True"
    )
    assert message("?", False, role="holds").endswith("in place of ?; measured False (accepts True)")
    assert message("?", 0.5, role="holds") == "holds a.b needs a boolean, measured 0.5: write a claim instead"


def test_a_verdict_carries_the_accepted_interval_in_the_measurement_s_unit():
    """For the ledger and for translators."""
    verdict = judge("8.0 GiB", Measurement("a.b", 2**33, unit="B"), "claim", "ja")
    assert verdict.accepts_text == "8536247500.8 to 8643621683.2 B"
    assert (verdict.accepts.low, verdict.accepts.high_open) == (Fraction("7.95") * 2**30, True)
    assert accepts(read("98%", "ja"), Measurement("a.b", 0.98, unit="ratio")).text == "0.975 to 0.985"


def test_every_unit_can_be_measured_and_written():
    """A measurement in any known unit is quoted by a text in that unit, and by no bare number unless it is bare."""
    for symbol, unit in UNITS.items():
        if symbol in ("", "ratio", "%", "×", "割", "times", "point"):
            continue
        text = {"token": "3トークン", "token/s": "3トークン/秒", "min": "3分", "h": "3時間"}.get(symbol, f"3 {symbol}")
        assert status(text, 3, symbol) == "fine", symbol
        assert status("3", 3, symbol) == "unit", symbol
        assert unit.factor > 0


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("約900万", "about 9 million"), ("890万", "8.90 million"), ("3倍", "three times"), ("98%", "98 percent"),
        ("98%", "0.98"), ("8分の1", "1/8"), ("半分", "half"), ("1e-6未満", "less than 1e-6"), ("2〜3倍", "2–3×"),
        ("三行", "three lines"), ("8 GiB", "8 GiB"), ("128 Ki", "131,072"), ("512トークン", "512 tokens"),
        ("−inf", "−inf"), ("nan", "NaN"), ("3以上", "at least 3"), ("半分以下", "at most half"), ("3回", "3 times"),
    ],
)  # fmt: skip
def test_a_translation_may_write_the_same_number_its_own_way(source, target):
    """Same amount, comparison, precision and about-ness."""
    assert difference(source, "ja", target, "en") == ""
    assert same_number(source, "ja", target, "en")


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("0.12", "0.1234", "another number"), ("6", "600", "another number"), ("0.12", "0.120", "another precision"),
        ("約900万", "9 million", "no about where the source has one"),
        ("9百万", "about 9 million", "about where the source does not say it"),
        ("1e-6未満", "at most 1e-6", "another comparison"), ("3以上", "more than 3", "another comparison"),
        ("3以上", "3", "another comparison"), ("2〜3倍", "2–4×", "another number"), ("98%", "98", "another number"),
        ("8 GiB", "8 GB", "another number"), ("900万", "9 million", "another precision"),
        ("3", "three apples", "cannot read"), ("2ポイント", "2%", "another"), ("0.98", "−0.98", "another number"),
        ("inf", "−inf", "another number"), ("nan", "3", "another number"), ("3秒", "3 minutes", "another number"),
        ("3ビット", "3 tokens", "another precision or unit"),
    ],
)  # fmt: skip
def test_a_translation_that_says_another_number_is_told_how_it_differs(source, target, why):
    """Also where the measurement would bear out both."""
    assert difference(source, "ja", target, "en").startswith(why)
    assert not same_number(source, "ja", target, "en")
