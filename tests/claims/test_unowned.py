"""Numerals in prose: which are names, references and years by grammar, and which nobody owns."""

import pytest

from attnbook.claims.unowned import find

EXEMPT = {
    "ja": [
        "GPT-2とfloat32とsm_90とSmolLM2-135M", "H200やA100、int8、e5m2", "Llama-3.1-8B", "Q4_1に量子化", "ＧＰＴ-２",
        "2Dと4-way", "3x3の畳み込み", "第2章", "第２章", "第2章と第3章", "2章", "2、3章", "1〜5章", "3.2節", "図1",
        "図 1.2", "図1、2", "図1〜3を見る", "図1と表2と式(3)", "ステップ5で測る", "例2、問3", "付録1", "第3回",
        "2017年", "２０１７年", "2017年6月12日", "2017〜2020年に", "論文（2017）", "（Vaswani ほか、2017）",
        "(Vaswani et al., 2017)", "Vaswani et al. (2017)", "torch 2.13.0", "バージョン3.11", "pytorch#103963",
        "arXiv:1706.03762", "https://example.org/2017/3", "2026-11-29", "三行で書く", "一つ目と二つ目", "八分の一",
        "百科事典", "千差万別", "万一", "一般に", "数百", "ゼロを掛ける", "n²とe⁸", "v0.9", "x₁とσ²",
        "(a + b)²", "\ufffc²",
    ],
    "ko": [
        "GPT-2와 float32", "제2장", "2장", "2, 3장", "3.2절", "그림 1", "그림 1과 표 2", "식 (3)", "5단계에서",
        "스텝 5", "2017년", "2017년 6월 12일", "2017~2020년", "(2017)", "torch 2.13.0", "버전 3.11", "세 줄", "하나",
        "이만 줄입니다", "천천히", "백과사전", "오만한 생각", "만약", "조금",
    ],
    "en": [
        "GPT-2 and float32", "a 4-bit, 8-head, 2-way model", "chapter 2", "Chapters 2 and 3", "chapters 2, 3, and 4",
        "sections 2.1–2.4", "Figure 3a", "Fig. 2", "figures 1 and 2", "Table 1", "Eq. (3)", "step 5 measures it",
        "page 12", "§ 3.2", "in 2017, Vaswani", "In 2017 the paper appeared", "since 2017.", "from 2017 to 2020.",
        "(2017)", "(Vaswani et al., 2017; Shazeer, 2019)", "June 2017", "June 12, 2017", "torch 2.13.0",
        "version 3.11", "three lines", "twenty-one steps", "one of them", "hundreds of", "a million ways",
    ],
}  # fmt: skip

UNOWNED = {
    "ja": [
        ("比は0.98になる", "0.98"), ("比は−0.98になる", "−0.98"), ("約900万", "900"), ("６４次元", "６４"),
        ("3行", "3"), ("1つ", "1"), ("2倍", "2"), ("98％", "98"), ("1,024個", "1,024"), ("1e-6未満", "1e-6"),
        ("12GBのメモリ", "12"), ("12 GB", "12"), ("4kトークン", "4"), ("3x速い", "3"), ("7Bモデル", "7"),
        ("5msで", "5"), ("n=128では", "128"), ("\ufffc=64", "64"), ("約\ufffc、3倍", "3"), ("表0.98", "0.98"),
        ("図1、3行", "3"), ("図1と3倍", "3"), ("図3倍", "3"), ("例3万", "3"), ("ステップ5000", "5000"),
        ("ステップ5回", "5"), ("公式3", "3"), ("代表98", "98"), ("発表2017", "2017"), ("第3の理由", "3"),
        ("全12章", "12"), ("2048年", "2048"), ("（2048）", "2048"), ("2017年間", "2017"), ("2017個", "2017"),
        ("1024年", "1024"), ("Python 3.11", "3.11"), ("(1) まず", "1"), ("n の2乗", "2"), ("10⁶個", "10"),
        ("½になる", "½"), ("𝟗𝟖%", "𝟗𝟖"), ("٣個", "٣"), ("九百万", "九百万"), ("二百五十六", "二百五十六"),
        ("十万回", "十万"), ("百万個", "百万"), ("九十八パーセント", "九十八"), ("精度ratio-8886110", "8886110"),
        ("p0.98になる", "0.98"), ("9x10⁶", "9"), ("1e6", "1e6"), ("バージョン98%", "98"), ("±8の範囲", "±8"),
        ("2-3倍", "2"), ("約+3ポイント", "+3"), ("値は ¹²³ です", "¹²³"), ("700Wで", "700"), ("1.98GHz", "1.98"),
        ("値は₁₂です", "₁₂"), ("約⁻³", "⁻³"),
    ],
    "ko": [
        ("약 900만", "900"), ("3줄", "3"), ("3배", "3"), ("98%", "98"), ("구백만", "구백만"), ("이백만 개", "이백만"),
        ("구십팔 퍼센트", "구십팔"), ("방식 3", "3"), ("표 3개", "3"), ("그림 1과 3배", "3"), ("2017년간", "2017"),
        ("총 12장", "12"), ("2장씩", "2"), ("예 8만", "8"), ("스텝 5000", "5000"), ("2048년", "2048"),
    ],
    "en": [
        ("about 9 million", "9"), ("0.98", "0.98"), ("in 2000 steps", "2000"), ("in 2017 tokens", "2017"),
        ("(2048)", "2048"), ("for example 98", "98"), ("step 5 GiB", "5"), ("Step 1000", "1000"),
        ("98-percent", "98"), ("9-million", "9"), ("a 3-fold gain", "3"), ("nine million", "nine"),
        ("one hundred", "one"), ("ninety-eight percent", "ninety-eight"), ("the 98th", "98"), ("the 1st", "1"),
        ("in part 98 of them", "98"), ("Section 2.1 and 3 lines", "3"), ("chapter 2 and 98% of it", "98"),
        ("Table 0.98", "0.98"), ("in part 98%", "98"), ("Llama 3", "3"), ("3 lines", "3"), ("version 98%", "98"),
        ("8-GiB card", "8"), ("300% faster", "300"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("language", "text"), [(lang, text) for lang, texts in EXEMPT.items() for text in texts])
def test_names_references_and_years_need_no_claim(language, text):
    """Told apart by grammar: touching a letter, after or before a word for a place in the book, a year."""
    assert find(text, language) == []


@pytest.mark.parametrize(
    ("language", "text", "numeral"), [(lang, *row) for lang, rows in UNOWNED.items() for row in rows]
)
def test_every_other_numeral_is_unowned(language, text, numeral):
    """Also where it tries to look like a name, a reference or a year."""
    found = find(text, language)
    assert numeral in [number.text for number in found]
    assert all(text[number.start : number.end] == number.text for number in found)


def test_numerals_come_in_the_order_of_the_text_with_their_places():
    """Start and end point into the text as given, full width included."""
    found = find("比は０.98と図1と九百万と3倍", "ja")
    assert [(number.start, number.text) for number in found] == [(2, "０.98"), (10, "九百万"), (14, "3")]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("language", ["ja", "ko", "en"])
@pytest.mark.parametrize(
    "piece", ["(", "1-", "a.", "図1、", "1,", "(a, 2017; ", "chapters 1, ", "第1、", "二", "1.1", "-", "aA1_#"]
)
def test_a_hostile_page_is_searched_in_reasonable_time(language, piece):
    """No text makes the search run away."""
    find(piece * 3000, language)


def test_a_page_full_of_prose_and_no_numeral_is_clean():
    """Letters and small counts in words raise no alarm."""
    text = "アテンションは加重平均です。三行で書けます。GPT-2もLLaMAも同じで、第2章と図1で見ます。"
    assert find(text, "ja") == []
