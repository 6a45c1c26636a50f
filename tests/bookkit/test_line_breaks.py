"""Lines of a page do not break where a reader of Japanese would stumble."""

from __future__ import annotations

import re

from attnbook.bookkit.line_breaks import SHORT
from tests.bookkit.site_builder import build


def page(tmp_path, text: str) -> str:
    """The HTML of a page with one paragraph."""
    html = build(tmp_path, {"index": f"(top)=\n# 題\n\n{text}\n"}).html()
    return re.sub(r"<math>.*?</math>", "M", html, flags=re.DOTALL)


def test_a_formula_keeps_the_punctuation_beside_it(tmp_path) -> None:
    """No line begins with 、 or ends with （, though a browser would break on either side of a formula."""
    html = page(tmp_path, "目印を $k$、成分は四つ（$d$）なので「$q$」。")
    assert '目印を <span class="joined">M、</span>成分は四つ<span class="joined">（M）</span>なので' in html
    assert '<span class="joined">「M」。</span>' in html


def test_two_formulas_share_their_punctuation(tmp_path) -> None:
    """What the first has taken, the second cannot."""
    assert '<span class="joined">M、</span>M' in page(tmp_path, "文 $a$、$b$ の文。")


def test_a_formula_among_words_is_left_alone(tmp_path) -> None:
    """There a line may break."""
    html = page(tmp_path, "成分は $d$ 個で、*$x$* も同じ。")
    assert "成分は M 個で、<em>M</em> も同じ。" in html
    assert "joined" not in html


def test_short_code_stays_on_one_line_and_long_code_breaks(tmp_path) -> None:
    """A pair such as `d = 64` is one thing; a long name has to fit a phone."""
    long = "a" * (SHORT + 1)
    html = page(tmp_path, f"`{long[:-1]}` と `{long}` の文。")
    assert re.search(rf'<code class="[^"]*\bshort\b[^"]*"><span class="pre">{long[:-1]}</span>', html)
    assert re.search(rf'<code class="(?![^"]*\bshort\b)[^"]*"><span class="pre">{long}</span>', html)
