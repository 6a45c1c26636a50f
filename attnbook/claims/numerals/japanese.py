"""The words around Japanese numbers."""

from __future__ import annotations

import re
from fractions import Fraction

from attnbook.claims.numerals.lexicon import Lexicon, numbers_below_hundred, words

_KANJI = numbers_below_hundred("一二三四五六七八九", "十")
_NATIVE = dict(
    zip(("ひと", "ふた", "みっ", "よっ", "いつ", "むっ", "なな", "やっ", "ここの"), range(1, 10), strict=True)
)

_COUNTERS = words(
    """
    個 つ 行 列 文字 本 回 度 層 段 段階 通り 枚 人 件 点 種 種類 語 単語 文 箇所 か所 カ所 ヶ所 ケ所 台 ページ
    ステップ ヘッド パラメーター パラメータ 要素 成分 次元 キー クエリ バリュー タイル ブロック チャンク バッチ 番
    番目 つ目 回目 行目 列目 層目 個目 桁 組 対 位置 エキスパート モデル シード 系列 サンプル 例 項 章 節 命令
    テンソル ベクトル レジスタ 演算 世代 エポック リクエスト 要求 グループ ラウンド 乗 位 問 色 値
    """
)

JAPANESE = Lexicon(
    language="ja",
    spaced=False,
    about_before=("約", "およそ", "おおよそ", "おおむね", "概ね", "ほぼ", "だいたい", "大体"),
    about_after=("ほど", "程度", "くらい", "ぐらい", "前後"),
    bounds_before={"少なくとも": ">=", "多くとも": "<=", "高々": "<=", "たかだか": "<="},
    bounds_after={
        "未満": "<", "以下": "<=", "以内": "<=", "以上": ">=", "超": ">", "を超える": ">", "より大きい": ">",
        "より多い": ">", "より小さい": "<", "より少ない": "<", "を上回る": ">", "を下回る": "<",
    },
    minus=("マイナス",),
    small_scales={"百": 100, "千": 1000},
    large_scales={"万": 10**4, "億": 10**8, "兆": 10**12},
    units={
        "パーセント": "%", "割": "割", "ポイント": "point", "%ポイント": "point", "パーセントポイント": "point",
        "倍": "×", "バイト": "B", "キロバイト": "kB", "メガバイト": "MB", "ギガバイト": "GB", "テラバイト": "TB",
        "ビット": "bit", "秒": "s", "ミリ秒": "ms", "マイクロ秒": "µs", "ナノ秒": "ns", "分": "min", "分間": "min",
        "秒間": "s", "時間": "h", "トークン": "token",
    },
    per_second=("/秒", "毎秒"),
    counters=_COUNTERS,
    number_words=_KANJI | _NATIVE,
    standing_words=frozenset(_KANJI) | {"とお"},
    share_words={"半分": (Fraction(1, 2), "×"), "とお": (Fraction(10), ""), "ゼロ": (Fraction(0), "")},
    fraction=re.compile(
        r"(?P<under>[0-9,]+万?|[一二三四五六七八九十百千万]+) ?分の ?(?P<over>[0-9,]+|[一二三四五六七八九十]+)"
    ),
    fraction_words=_KANJI | {"百": 100, "千": 1000, "一万": 10**4, "百万": 10**6},
    between=(re.compile(r"(?P<low>.+?)から(?P<high>.+?)(?:まで|の間)?"),),
)  # fmt: skip
