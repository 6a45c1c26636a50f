"""Which words beside a written number belong to it."""

import pytest

from attnbook.claims.neighbours import outside


@pytest.mark.parametrize(
    ("before", "text", "after", "language", "words"),
    [
        ("", "8", " GiB の", "ja", "GiB"),
        ("", "8", "GiB", "ja", "GiB"),
        ("", "98", "%以上", "ja", "%以上"),
        ("", "98", "パーセント", "ja", "パーセント"),
        ("", "2", "ポイント上がる", "ja", "ポイント"),
        ("", "2", "〜3倍", "ja", "〜3倍"),
        ("およそ", "900万", "です", "ja", "およそ"),
        ("", "3", "倍速", "ja", ""),  # a word of its own
        ("契約", "3", "件", "ja", ""),
        ("値は", "0.98", "です。", "ja", ""),
        ("", "0.98", "、", "ja", ""),
        ("", "3", " 배치를", "ko", ""),
        ("", "3", "배입니다", "ko", "배"),
        ("", "3", "배", "ko", "배"),
        ("약 ", "3", "배", "ko", "배"),
        ("계약 ", "3", "건", "ko", ""),
        ("", "0.98", "이다", "ko", ""),
        ("", "9", " million", "en", "million"),
        ("", "3", " million", "en", "million"),
        ("", "3", " timestamps", "en", ""),
        ("", "3", " samples", "en", ""),
        ("", "3", " of 4", "en", ""),
        ("GPT-", "2", "", "en", ""),
        ("from -", "2", "", "en", "-"),
        ("less than ", "2", "", "en", "less than"),
        ("useless than ", "2", "", "en", ""),
        ("", "9", "9", "en", "9"),
        ("", "oops", "%", "en", ""),
        ("", "8 GiB", "。", "ja", ""),
        ("", "1", "/8", "en", "/8"),
        ("", "3", "。４倍", "ja", ""),
        ("値は≠", "3", "です", "ja", "≠"),
        ("値は ~ ", "3倍", "です", "ja", "~"),
        ("≈", "0.98", "", "en", "≈"),
        ("\ufffc〜", "3倍", "", "ja", ""),
        ("\ufffc ± ", "0.1", "", "en", ""),
        ("x = ", "0.98", "", "en", ""),
        ("", "0.98", "‰", "en", "‰"),
        ("", "10", "⁻⁶", "en", "⁻⁶"),
        ("", "3", "^2", "en", "^2"),
    ],
)
def test_outside(before, text, after, language, words):
    """Units, scale words, signs, bounds and about-words; never a part of another word."""
    assert outside(text, before, after, language) == words
