"""The worked example is the one that a reader works out on paper."""

import math

import pytest

from attnbook.experiments import hand_example


def test_every_step_by_hand():
    """Dot products 4, 2, 0; halved; weights e² : e : 1; the average 14.2."""
    found = hand_example.run()
    total = math.e**2 + math.e + 1
    assert [found[f"oneline.hand_dot_{x}"] for x in ("first", "second", "third")] == [4, 2, 0]
    assert found["oneline.hand_score_first"] == pytest.approx(2, rel=1e-12)
    assert found["oneline.hand_score_second"] == pytest.approx(1, rel=1e-12)
    assert found["oneline.hand_weight_first"] == pytest.approx(math.e**2 / total, rel=1e-12)
    assert found["oneline.hand_weight_third"] == pytest.approx(1 / total, rel=1e-12)
    assert found["oneline.hand_out"] == pytest.approx((10 * math.e**2 + 20 * math.e + 30) / total, rel=1e-12)
    assert found["oneline.numpy_too"] is True
    assert found["oneline.hand_shift"] == pytest.approx(100, rel=1e-12)
    assert found["oneline.hand_shift_wrong_axis"] == pytest.approx(300, rel=1e-12)


def test_three_statements_are_counted_and_not_assumed(monkeypatch):
    """The count is read from the function: a fourth statement would be seen."""
    assert hand_example.run()["oneline.statements"] == 3
    source = "def attention(q):\n    'doc'\n    a = 1\n    if a:\n        b = 2\n    c = 3\n    return c\n"
    monkeypatch.setattr(hand_example.inspect, "getsource", lambda function: source)
    assert hand_example._statements() == 4


def test_the_turned_query_mirrors_the_output():
    """−q gives the mirror image about the mean, because scores and values are evenly spaced."""
    found = hand_example.run()
    assert found["oneline.hand_turned_symmetric"] is True
    assert found["oneline.hand_turned_out"] + found["oneline.hand_out"] == pytest.approx(40, rel=1e-12)


def test_a_wrong_scale_would_be_seen(monkeypatch):
    """Without √d the scores read back are the dot products themselves."""
    right = hand_example.three_lines.attention
    monkeypatch.setattr(hand_example.three_lines, "attention", lambda q, k, v: right(2 * q, k, v))
    monkeypatch.setattr(hand_example, "_statements", lambda: 3)
    assert hand_example.run()["oneline.hand_score_first"] == pytest.approx(4, rel=1e-12)
