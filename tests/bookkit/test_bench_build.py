"""What the benchmark concludes from its times; the times themselves are no test."""

from attnbook.bookkit.bench_build import Findings, report


def test_all_that_is_asked_is_met():
    """Medians, not means: one slow repeat changes nothing."""
    found = Findings([60, 61, 600], [40, 41, 400], [2, 2, 9], [3, 3, 9], [11, 12, 13])
    lines, met = report(found)
    assert met
    assert lines[0] == "ok      cold: stock 61.0 s, ours 41.0 s, 1.49 times as fast (asked: at least 1.3)"
    assert all(line.startswith("ok") for line in lines)


def test_each_thing_missed_is_named_and_fails():
    """Too slow, or something executed that should not have been."""
    good = {"stock": [13.0], "cold": [10.0], "unchanged": [2.9], "prose": [3.9], "experiment": [1.0]}
    assert report(Findings(**good))[1]
    for bad in ({"cold": [10.1]}, {"unchanged": [3.0]}, {"prose": [4.0]}, {"wrong": ["prose edited: got 03"]}):
        lines, met = report(Findings(**good | bad))
        assert not met
        assert sum(line.startswith("MISSED") for line in lines) == 1
    assert lines[-1] == "prose edited: got 03"
