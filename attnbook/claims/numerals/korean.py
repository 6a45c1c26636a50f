"""The words around Korean numbers."""

from __future__ import annotations

import re
from fractions import Fraction

from attnbook.claims.numerals.lexicon import Lexicon, numbers_below_hundred, words

_SINO = numbers_below_hundred("일이삼사오육칠팔구", "십")
_ONES = ("하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉")
_BEFORE_COUNTERS = ("한", "두", "세", "네", *_ONES[4:])
_TENS = ("열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")


def _native(ones: tuple[str, ...]) -> dict[str, int]:
    names = {name: value for value, name in enumerate(ones, start=1)}
    for tens, ten in enumerate(_TENS, start=1):
        names[ten] = 10 * tens
        names |= {ten + name: 10 * tens + value for value, name in enumerate(ones, start=1)}
    return names


_COUNTERS = words(
    """
    개 줄 행 열 번 번째 글자 자 문자 층 단 단계 가지 명 사람 건 점 종 종류 장 쪽 페이지 스텝 헤드 파라미터 매개변수
    원소 요소 성분 차원 키 쿼리 밸류 타일 블록 청크 배치 자리 쌍 위치 단어 문장 전문가 모델 시드 시퀀스 샘플 예 항
    절 명령 명령어 텐서 벡터 레지스터 연산 회 세대 에포크 요청 그룹 곳 군데 칸 대 개째 줄째 층째 제곱 위 값 라운드
    """
)

KOREAN = Lexicon(
    language="ko",
    spaced=False,
    about_before=("약", "대략", "거의", "대체로"),
    about_after=("정도", "가량", "쯤", "안팎", "내외"),
    bounds_before={"적어도": ">=", "최소한": ">=", "많아야": "<=", "기껏해야": "<="},
    bounds_after={
        "미만": "<", "이하": "<=", "이내": "<=", "이상": ">=", "초과": ">", "보다 큰": ">", "보다 큼": ">",
        "보다 많은": ">", "보다 작은": "<", "보다 작음": "<", "보다 적은": "<", "을 넘는": ">", "를 넘는": ">",
    },
    minus=("마이너스",),
    small_scales={"백": 100, "천": 1000},
    large_scales={"만": 10**4, "억": 10**8, "조": 10**12},
    units={
        "퍼센트": "%", "포인트": "point", "%포인트": "point", "퍼센트포인트": "point", "퍼센트 포인트": "point",
        "배": "×", "바이트": "B", "킬로바이트": "kB", "메가바이트": "MB", "기가바이트": "GB", "테라바이트": "TB",
        "비트": "bit", "초": "s", "밀리초": "ms", "마이크로초": "µs", "나노초": "ns", "분": "min", "분간": "min",
        "초간": "s", "시간": "h", "토큰": "token",
    },
    per_second=("/초",),
    counters=_COUNTERS,
    number_words=_SINO | _native(_ONES) | _native(_BEFORE_COUNTERS) | {"스무": 20},
    standing_words=frozenset(_native(_ONES)),
    share_words={"절반": (Fraction(1, 2), "×"), "반": (Fraction(1, 2), "×"), "영": (Fraction(0), "")},
    fraction=re.compile(
        r"(?P<under>[0-9,]+만?|[일이삼사오육칠팔구십백천만]+) ?분의 ?(?P<over>[0-9,]+|[일이삼사오육칠팔구십]+)"
    ),
    fraction_words=_SINO | {"백": 100, "천": 1000, "만": 10**4, "백만": 10**6},
    between=(
        re.compile(r"(?P<low>.+?)에서 ?(?P<high>.+?)(?: ?사이)?"),
        re.compile(r"(?P<low>.+?)부터 ?(?P<high>.+?)(?:까지)?"),
    ),
)  # fmt: skip
