"""Scores of a model that divides by √d start with standard deviation 1 and grow while it learns."""

import pytest

from attnbook.experiments import score_growth


def test_scores_grow_past_where_they_would_have_started_without_the_division():
    """At a bold learning rate, d = 64: from 1 past 8, until nearly every row is saturated."""
    found = score_growth.run(models=3, steps=150)
    assert found["scaling.grown_sd_start"] == pytest.approx(1, rel=0.2)
    assert found["scaling.grown_saturated_start"] == 0
    assert 1.5 < found["scaling.grown_sd_quiet"] < 8 < found["scaling.grown_sd_bold"]
    assert found["scaling.grown_saturated_quiet"] < 0.5 < found["scaling.grown_saturated_bold"]
    assert len(found.data["step"]) == len(found.data["score_sd"]) == len(found.data["saturated"])
