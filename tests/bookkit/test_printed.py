"""Long lists of printed measurements fold; everything else that a cell prints stays in sight."""

from __future__ import annotations

import re

import pytest

from attnbook.bookkit.printed import SHOWN
from attnbook.measure import Measurement
from tests.bookkit.site_builder import FRONT, build

PAGE = FRONT + "(top)=\n# 題\n\n文。\n\n```{code-cell} ipython3\nshow()\n```\n"


def printed(tmp_path, *lines: str, language: str = "ja", builder: str = "html"):
    """A page whose only cell printed the lines."""
    output = {"output_type": "stream", "name": "stdout", "text": "".join(f"{line}\n" for line in lines)}
    return build(tmp_path, {"index": PAGE}, {"show()": [output]}, builder=builder, language=language)


def folds(html: str) -> list[str]:
    return re.findall(r'<details class="admonition hide printed">.*?</details>', html, re.DOTALL)


def measurements(count: int) -> list[str]:
    """Lines as `print(found)` writes them."""
    return [str(Measurement(f"scaling.value_{n}", n + 0.5, unit="ratio", spread=0.25)) for n in range(count)]


@pytest.mark.parametrize(
    ("language", "label"), [("ja", "測定値の一覧（7件）"), ("ko", "측정값 목록 (7개)"), ("en", "All 7 measurements")]
)
def test_a_long_list_folds_under_its_length(tmp_path, language: str, label: str) -> None:
    """Whole, in the language of the page."""
    (fold,) = folds(printed(tmp_path, *measurements(7), language=language).html())
    assert f'<summary class="admonition-title">{label}</summary>' in fold
    assert fold.count("standard deviation 0.25") == 7


def test_a_short_list_stays(tmp_path) -> None:
    """A glance is enough for it."""
    assert folds(printed(tmp_path, *measurements(SHOWN)).html()) == []
    assert len(folds(printed(tmp_path, *measurements(SHOWN + 1)).html())) == 1


def test_what_was_printed_before_a_list_stays(tmp_path) -> None:
    """Only the measurements at the end fold."""
    html = printed(tmp_path, "WEIGHTS -> STHGIEW", *measurements(7)).html()
    (fold,) = folds(html)
    assert "STHGIEW" not in fold
    assert "STHGIEW" in html
    assert "scaling.value_0" not in html.replace(fold, "")


def test_other_output_stays_whole(tmp_path) -> None:
    """Source code and tables, and measurements that are not the last."""
    assert folds(printed(tmp_path, *("x = 1" for _ in range(20))).html()) == []
    assert folds(printed(tmp_path, *measurements(7), "done").html()) == []


def test_other_formats_print_everything(tmp_path) -> None:
    """Nothing folds on paper."""
    built = printed(tmp_path, *measurements(7), builder="text")
    assert "scaling.value_6 = 6.5" in (tmp_path / "_build/text/index.txt").read_text("utf-8")
    assert built.problems() == []
