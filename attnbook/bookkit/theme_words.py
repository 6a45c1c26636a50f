"""The words that Sphinx and the theme put around a page, where their own catalogues leave them in English."""

from __future__ import annotations

from gettext import NullTranslations
from typing import TYPE_CHECKING, Final

import sphinx.locale

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

WORDS: Final[dict[str, dict[str, str]]] = {
    "ja": {
        "Link to this heading": "この見出しへのリンク",
        "Link to this equation": "この式へのリンク",
        "Link to this image": "この図へのリンク",
        "Link to this table": "この表へのリンク",
        "Link to this code": "このコードへのリンク",
        "Link to this term": "この用語へのリンク",
        "Link to this definition": "この定義へのリンク",
        "Link to this toctree": "この目次へのリンク",
        "Collapse Sidebar": "サイドバーを閉じる",
        "Expand Sidebar": "サイドバーを開く",
        "Color mode": "配色",
        "System Settings": "システムの設定",
        "Front page of the book": "本の表紙",
        "Contents of the book": "本の目次",
        "Show or hide the contents of the book": "本の目次の表示と非表示",
        "Show or hide the contents of the page": "このページの目次の表示と非表示",
        "Search the book": "本を検索",
    },
    "ko": {
        "Link to this heading": "이 제목으로 가는 링크",
        "Link to this equation": "이 수식으로 가는 링크",
        "Link to this image": "이 그림으로 가는 링크",
        "Link to this table": "이 표로 가는 링크",
        "Link to this code": "이 코드로 가는 링크",
        "Link to this term": "이 용어로 가는 링크",
        "Link to this definition": "이 정의로 가는 링크",
        "Link to this toctree": "이 목차로 가는 링크",
        "Collapse Sidebar": "사이드바 닫기",
        "Expand Sidebar": "사이드바 열기",
        "Skip to main content": "본문으로 건너뛰기",
        "Back to top": "맨 위로",
        "On this page": "이 페이지에서",
        "Section Navigation": "절 목록",
        "Site navigation": "사이트 메뉴",
        "Version warning": "버전 알림",
        "Color mode": "색 구성",
        "Light": "밝게",
        "Dark": "어둡게",
        "System Settings": "시스템 설정",
        "previous page": "이전 페이지",
        "next page": "다음 페이지",
        "Front page of the book": "책의 표지",
        "Contents of the book": "책의 차례",
        "Show or hide the contents of the book": "책의 차례 보이기와 숨기기",
        "Show or hide the contents of the page": "이 페이지의 차례 보이기와 숨기기",
        "Search the book": "책에서 찾기",
    },
}


class _Words(NullTranslations):
    """A catalogue in memory, asked after all others."""

    def __init__(self, words: dict[str, str]) -> None:
        super().__init__()
        self._words = words

    def gettext(self, message: str) -> str:
        return self._words.get(message) or super().gettext(message)


def _add(app: Sphinx, config: Config) -> None:
    words = WORDS.get((config.language or "en").partition("_")[0])
    translator = sphinx.locale.translators.get(("general", "sphinx"))
    if words and translator is not None:
        translator.add_fallback(_Words(words))
    if words:
        # The theme takes the name of its search field from its options only.
        config.html_theme_options = {"search_bar_text": words["Search the book"], **config.html_theme_options}


def setup(app: Sphinx) -> None:
    """Add the words of the build's language, once the catalogues of all extensions are loaded."""
    app.connect("config-inited", _add)
