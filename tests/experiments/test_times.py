"""What the chapters say of time comes from a record, with its device and date, and from nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbook.experiments import flash_times, window_times
from attnbook.records import RecordError

RECORD = Path(__file__).parents[2] / "book" / "records" / "bench-cpu.json"


@pytest.mark.parametrize(("chapter", "count"), [(window_times, 2), (flash_times, 1)])
def test_a_time_is_recorded(chapter, count):
    """Each value says where and when it was measured."""
    found = list(chapter.run(record=str(RECORD)))
    assert len(found) == count
    for measurement in found:
        assert measurement.kind == "recorded"
        assert measurement.device
        assert measurement.date
        assert measurement.value > 0


def test_without_a_record_nothing_is_said(tmp_path):
    """No record, no claim."""
    with pytest.raises(RecordError, match=r"none\.json"):
        window_times.run(record=str(tmp_path / "none.json"))
