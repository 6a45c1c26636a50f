"""Lines of a page's width, in three languages."""

import pytest

from attnbook.lab.wrapping import WIDTH, columns, wrapped


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two " * 6, ["one two one two one two", "one two one two one two"]),
        ("- " + "word " * 6, ["- word word word word", "word word"]),
        ("    code = 1\nand\nmore.\nNext", ["    code = 1 and more.", "Next"]),
        ("a sum of ten and softmax(x, y) / z", ["a sum of ten and", "softmax(x, y) / z"]),
        ("短い。これはとても長い一行です、それで折ります", ["短い。これはとても長い一", "行です、それで折ります"]),
        ("これは少し長い文です、ここで折れます。", ["これは少し長い文です、", "ここで折れます。"]),
        ("途中で\n切れた行。\n次の行", ["途中で切れた行。", "次の行"]),
        ("縮めて書いたあと行をかえってくる", ["縮めて書いたあと行をか", "えってくる"]),
        ("문장은 낱말 사이에서만 나뉜다고 한다", ["문장은 낱말 사이에서만", "나뉜다고 한다"]),
        ("x" * 30, ["x" * 30]),
    ],
)
def test_texts_are_wrapped(text, lines):
    """Between words, outside brackets and formulas, an ideograph two columns wide; what cannot be broken stays."""
    assert wrapped(text, WIDTH - 24) == lines


def test_the_width_of_a_text():
    """Ideographs, kana and Korean syllables are two columns wide, letters and formulas one."""
    assert columns("q kᵀ / √d") == 9
    assert columns("重み、") == columns("가중치") == 6
