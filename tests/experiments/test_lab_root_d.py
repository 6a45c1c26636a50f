"""The lab's step 2: what the reader's functions find, and that wrong ones find something else."""

import numpy as np
import pytest

from attnbook.experiments import lab_root_d
from attnbook.experiments.lab_root_d import reference_largest_weight, reference_score_sd

SMALL = {"pairs": 211, "queries": 13, "repeats": 5}


@pytest.fixture(scope="module")
def found():
    return lab_root_d.run(**SMALL)


def test_what_the_reference_finds(found):
    """Scores spread by √d, and by 1 once divided; then d no longer says how much weight one key takes."""
    for d in lab_root_d.DIMS:
        assert found[f"lab.sd_plain_{d}"] == pytest.approx(d**0.5, rel=0.1)
        assert found[f"lab.sd_divided_{d}"] == pytest.approx(1, rel=0.1)
        assert found[f"lab.weight_divided_{d}"] == pytest.approx(0.24, abs=0.04)
    plain = [found[f"lab.weight_plain_{d}"] for d in lab_root_d.DIMS]
    assert plain == sorted(plain)
    assert found["lab.weight_at_8_differs"] < 0.06


def test_the_marks_lie_on_the_curves(found):
    """What is measured with and without the division is what the curve has at that spread."""
    for d in lab_root_d.DIMS:
        (plain_sd, plain), (divided_sd, divided) = found.data["marks"][d]
        curve = dict(zip(found.data["spreads"], found.data["largest"][d], strict=True))
        assert (plain, divided) == pytest.approx((curve[d**0.5], curve[1.0]), abs=1e-6)
        assert (plain_sd, divided_sd) == pytest.approx((d**0.5, 1), rel=0.1)


def test_the_readers_functions_are_called():
    """One that returns the variance, and one that forgets the scale, change what is found."""
    variance = lab_root_d.run(lambda q, k: reference_score_sd(q, k) ** 2, **SMALL)
    assert variance["lab.sd_plain_64"] == pytest.approx(64, rel=0.2)
    unscaled = lab_root_d.run(reference_score_sd, lambda q, k, scale: reference_largest_weight(q, k, 1.0), **SMALL)
    assert unscaled["lab.weight_divided_64"] == unscaled["lab.weight_plain_64"]


def test_lookalikes_are_told_by_small_inputs():
    """The two mistakes that the experiment can hardly see are far off in the lab's smallest case."""
    q, k = np.array([[1.0], [2.0]]), np.array([[6.0], [1.0]])
    assert reference_score_sd(q, k) == 2
    assert (q @ k.T).std() > 4
    assert np.sqrt(((q * k).sum(-1) ** 2).mean()) > 4
