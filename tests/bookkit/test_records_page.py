"""The list of records: whose they are, how old, whether stale; and the plain statement that there is none."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest

from attnbook import kernels
from attnbook.bookkit.records_page import WORDS, age
from attnbook.records import source_digest
from tests.bookkit.site_builder import build

PAGE = "(top)=\n# 題\n\n```{records} kernels\n```\n"
EXTENSIONS = ["myst_nb", "tests.bookkit.site_builder", "attnbook.claims.ledger_page", "attnbook.bookkit.records_page"]
SOURCE = "attnbook/kernels/variant.py"
DIGEST = source_digest([Path(kernels.__file__).parent / "variant.py"])


def page(folder, language="ja", **records):
    """The page's HTML without tags, in a book with these records."""
    (folder / "records").mkdir()
    for name, record in records.items():
        (folder / "records" / f"{name}.json").write_text(json.dumps(record), "utf-8")
    site = build(folder, {"index": PAGE}, extensions=EXTENSIONS, language=language)
    return site, " ".join(re.sub(r"<[^>]+>", " ", site.html()).split())


def record(**other):
    days = datetime.timedelta(days=12)
    return {
        "device": "NVIDIA H200",
        "versions": {"triton": "3.9.0"},
        "date": (datetime.datetime.now(datetime.UTC).date() - days).isoformat(),
        "command": "attnbook bench --device cuda",
        "sources": {SOURCE: DIGEST},
        "values": {"forward": {"value": 353.5, "unit": "TFLOP/s"}, "ratio": {"value": 1.25, "unit": "ratio"}},
    } | other


@pytest.mark.parametrize("language", ["ja", "ko", "en"])
def test_without_a_record_the_page_says_so(tmp_path, language):
    """In the page's language."""
    _, text = page(tmp_path, language)
    assert WORDS[language]["none"].format(room="kernels") in text


def test_a_record_stands_with_its_device_age_and_values(tmp_path):
    """All of it is read from the record; fresh as long as its sources say the same."""
    site, text = page(tmp_path, gpu=record())
    assert "NVIDIA H200" in text
    assert "(12 日前)" in text
    assert "attnbook bench --device cuda" in text
    assert "353.5 TFLOP/s" in text
    assert "1.25 ×" in text
    assert "いまのコードの値" in text
    assert "古い" not in text
    assert "まだ一つもありません" not in text
    assert '<th scope="row">' in site.html()


def test_a_record_whose_sources_changed_is_called_stale(tmp_path):
    """The files that changed are named."""
    _, text = page(tmp_path, gpu=record(sources={SOURCE: "another"}, missing={"moe": "out of memory"}))
    assert f"古い。測ったあとで変わったファイル：{SOURCE}" in text
    assert "moe (out of memory)" in text


def test_records_of_other_rooms_and_unfinished_ones_are_none(tmp_path):
    """A CPU's record says nothing about the kernels, nor does a run that was killed."""
    cpu = record(device="CPU", sources={"attnbook/tiled/forward.py": DIGEST})
    _, text = page(tmp_path, **{"cpu": cpu, "gpu.unfinished": record()})
    assert "まだ一つもありません" in text


def test_a_record_that_cannot_be_read_is_a_failure(tmp_path):
    """With its file and the place in it."""
    site, _ = page(tmp_path, gpu=record(date="yesterday"))
    ((_, status, message),) = site.problems()
    assert status == "record"
    assert message.endswith("gpu.json: date: expected a date such as 2025-06-30, got 'yesterday'")


def test_an_age_is_counted_in_days():
    """The same day is today."""
    today = datetime.date(2026, 3, 1)
    assert age("2026-02-27", WORDS["en"], today) == "2 days ago"
    assert age("2026-03-01", WORDS["ja"], today) == "今日"
