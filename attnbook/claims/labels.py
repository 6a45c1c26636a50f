"""The words around a claim on the page, in three languages, and numbers and intervals written without words.

A page in any other language gets the English words. Numbers need no language here: `8,886,110`, `1.2×10⁻⁶`,
`0.945 ≤ x < 0.955`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from attnbook.measure import Value

WORDS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "value": "measured", "accepts": "the text accepts", "kind": "kind", "spread": "standard deviation",
        "device": "device", "source": "source", "experiment": "experiment", "cell": "cell {number}", "and": ", ",
        "place": "measured in", "verdict": "verdict", "true": "true", "false": "false", "point": "percentage points",
        "measured": "measured", "parameter": "parameter", "derived": "derived", "recorded": "recorded",
        "cited": "cited", "text": "in the text", "claims": "Every claim and its measurement",
        "summary": "{judged} judged, {unowned} unowned", "fine": "fine", "not fine": "{count} not fine",
    },
    "ja": {
        "value": "測定値", "accepts": "文が認める範囲", "kind": "種類", "spread": "標準偏差",
        "device": "装置", "source": "出典", "experiment": "実験", "cell": "セル {number}", "and": "、",
        "place": "測定した場所", "verdict": "判定", "true": "真", "false": "偽", "point": "ポイント",
        "measured": "測定", "parameter": "設定値", "derived": "計算", "recorded": "記録",
        "cited": "引用", "text": "本文", "claims": "すべての主張とその測定",
        "summary": "照合した主張は {judged} 件、測定に結びつかない数字は {unowned} 件です。",
        "fine": "一致", "not fine": "一致しないもの {count} 件",
    },
    "ko": {
        "value": "측정값", "accepts": "글이 허용하는 범위", "kind": "종류", "spread": "표준편차",
        "device": "장치", "source": "출처", "experiment": "실험", "cell": "셀 {number}", "and": ", ",
        "place": "측정한 곳", "verdict": "판정", "true": "참", "false": "거짓", "point": "%p",
        "measured": "측정", "parameter": "설정값", "derived": "계산", "recorded": "기록",
        "cited": "인용", "text": "본문", "claims": "모든 주장과 그 측정",
        "summary": "대조한 주장 {judged}개, 측정과 연결되지 않은 숫자 {unowned}개.",
        "fine": "일치", "not fine": "일치하지 않는 것 {count}개",
    },
}  # fmt: skip

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def words(language: str | None) -> dict[str, str]:
    """The words of a Sphinx language code (`ja`, `ko_KR`, …); English for any other."""
    return WORDS.get((language or "en").replace("-", "_").split("_")[0].lower(), WORDS["en"])


def number(value: Value | None, language: str | None = "en") -> str:
    """A value at up to six significant digits, thousands separated; "–" if there is none.

    Integers are whole, a fraction is followed by its decimal form; a real hard to read gets a power of ten.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return words(language)["true" if value else "false"]
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return number(int(value))
        sign = "=" if Fraction(f"{float(value):.6g}") == value else "≈"
        return f"{value} {sign} {number(float(value))}".replace("-", "−")
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    mantissa, _, exponent = f"{value:.5e}".partition("e")
    power = int(exponent)
    readable = value == 0 or -5 < power < 9
    text = f"{value:,.{max(0, 5 - power)}f}" if readable else mantissa
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if not readable:
        text += "×10" + str(power).translate(_SUPERSCRIPT)
    return text.replace("-", "−")


def quantity(value: Value | None, unit: str, language: str | None = "en") -> str:
    """A value with its unit; a ratio and a bare number have none to show."""
    text = number(value, language)
    if value is None or unit in ("", "ratio") or isinstance(value, bool):
        return text
    return f"{text} {words(language)['point'] if unit == 'point' else unit}"


def interval(low: float | None, high: float | None, *, low_open: bool, high_open: bool) -> str:
    """An interval as a formula: `0.945 ≤ x < 0.955`, `x < 10⁻⁶`, `x = 3`; an end that is None is unbounded."""
    if low is not None and low == high:
        return f"x = {number(low)}"
    left = "" if low is None else f"{number(low)} {'<' if low_open else '≤'} "
    right = "" if high is None else f" {'<' if high_open else '≤'} {number(high)}"
    if left and not right:
        return f"x {'>' if low_open else '≥'} {number(low)}"
    return f"{left}x{right}"
