"""What `measure` takes, what it refuses, and what it makes of a value."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from attnbook.measure import Findings, Measurement, experiment, measure, measure_mean

seven = len("seven..")
TYPED = 4


@pytest.mark.parametrize(
    "value", [True, False, 3, -(2**70), 0.1, 1.0, math.pi, math.inf, -math.inf, Fraction(1, 3), 5e-324, 1e308]
)
def test_json_gives_back_an_equal_measurement(value: object):
    """Type and value survive: 1 is not 1.0, true is not 1, infinities and rationals are no trouble."""
    made = Measurement("a.b", value, unit="B", spread=0.5, settings={"n": "3"}, sources=("a.c",), stale=("x.py",))
    again = Measurement.from_json(made.as_json())
    assert again == made
    assert type(again.value) is type(value)


def test_nan_survives_json():
    """NaN comes back as NaN."""
    assert math.isnan(Measurement.from_json(Measurement("a.b", math.nan).as_json()).value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(seven), 7),
        (np.bool_(seven == 7), True),
        (torch.tensor(2.5), 2.5),
        (torch.tensor(seven), 7),
        (torch.tensor([[True]]), True),
    ],
)
def test_array_scalars_become_python_scalars(value: object, plain: object):
    """A NumPy or torch scalar is measured as the Python value that it holds, booleans as booleans."""
    made = measure("a.b", value)
    assert made.value == plain
    assert type(made.value) is type(plain)


@pytest.mark.parametrize("value", ["3", None, 1j, [1], torch.ones(2), np.ones(3)])
def test_what_is_not_one_number_is_refused(value: object):
    """Texts, nothing, complex numbers and arrays of several elements are no measurement."""
    with pytest.raises(TypeError, match="a measurement is one number or boolean"):
        measure("a.b", value)


@pytest.mark.parametrize("ident", ["", "a..b", "a b", "1a", "a.", "a-b"])
def test_an_id_is_dotted_words(ident: str):
    """Anything else could not stand in a role."""
    with pytest.raises(ValueError, match="expected dotted words"):
        measure(ident, math.pi)


@pytest.mark.parametrize("spread", [-0.1, math.nan, math.inf])
def test_a_spread_is_finite_and_not_negative(spread: float):
    """A spread that could hide anything is refused."""
    with pytest.raises(ValueError, match="spread must be finite"):
        measure("a.b", math.pi, spread=spread)


def test_a_typed_number_is_a_parameter():
    """Literals, arithmetic on them, and literals in a conversion are parameters whatever kind is claimed."""
    assert measure("a.b", 8).kind == "parameter"
    assert measure("a.b", value=-(2**3)).kind == "parameter"
    assert measure("a.b", float(3), kind="measured").kind == "parameter"
    assert measure("a.b", 1 < 2).kind == "parameter"
    made = measure(
        "a.b",
        3 * 0.5,
    )
    assert made.kind == "parameter"


def test_a_typed_number_stays_one_under_a_name_or_converted():
    """A constant of the module, a variable given once, a scalar of a library: nobody measured it."""
    typed_here = 8886110.5
    assert measure("a.b", typed_here).kind == "parameter"
    assert measure("a.b", TYPED + 1).kind == "parameter"
    assert measure("a.b", np.float64(0.87)).kind == "parameter"
    assert measure("a.b", torch.tensor(0.87, dtype=torch.float64)).kind == "parameter"
    assert measure("a.b", round(0.8712, 2)).kind == "parameter"


def test_a_setting_of_an_experiment_is_a_parameter():
    """As it was called; what was made of it is measured."""

    @experiment
    def run(size=3):
        measure("a.setting", size)
        measure("a.made", size * seven)

    assert [made.kind for made in run(size=5)] == ["parameter", "measured"]


def test_what_was_chosen_or_counted_is_measured():
    """A variable given in two places, counted up, or unpacked says what happened."""
    refused = False
    try:
        int("x")
    except ValueError:
        refused = True
    assert measure("a.b", refused).kind == "measured"
    count = 0
    count += 1
    assert measure("a.b", count).kind == "measured"
    for turn in (1, 2):
        assert measure("a.b", turn).kind == "measured"
    assert measure("a.b", max(1, 2)).kind == "measured"
    assert measure("a.b", math.pi).kind == "measured"


def test_a_computed_number_is_measured():
    """A name for what was computed, a call, an expression with either."""
    assert measure("a.b", seven).kind == "measured"
    assert measure("a.b", math.sqrt(4)).kind == "measured"
    assert measure("あ.い", seven + 1).kind == "measured"  # columns count bytes


def test_cited_and_recorded_need_a_source():
    """A fact without its source is refused."""
    for kind in ("cited", "recorded"):
        with pytest.raises(ValueError, match="needs its source"):
            measure("a.b", seven, kind=kind)
    assert measure("a.b", seven, kind="cited", source="models.csv").source == "models.csv"


def test_derived_names_what_it_comes_from():
    """A derived value carries the ids of its parents; without any it is refused."""
    parent = measure("a.b", seven)
    assert measure("a.c", parent.value * 2, derived_from=[parent, "a.d"]).sources == ("a.b", "a.d")
    with pytest.raises(ValueError, match="needs derived_from"):
        measure("a.c", seven, kind="derived")


def test_only_parameters_may_stay_unquoted_by_default():
    """A measurement is made to be quoted unless it says otherwise; a parameter is not."""
    assert measure("a.b", seven).quote
    assert not measure("a.b", seven, quote=False).quote
    assert not measure("a.b", seven, kind="parameter").quote
    assert measure("a.b", seven, kind="parameter", quote=True).quote


def test_the_spread_of_a_mean():
    """Of 1, 2, 3, 6 the mean is 3 and its standard deviation sqrt(14/3)/2."""
    made = measure_mean("a.b", [1, 2, 3, 6])
    assert made.value == 3.0
    assert made.spread == pytest.approx(math.sqrt(14 / 3) / 2)
    with pytest.raises(ValueError, match="at least 2 repeats"):
        measure_mean("a.b", [1])


def test_a_mean_over_nan_is_nan():
    """One NaN among the repeats makes a NaN that a claim will refuse, not a crash."""
    made = measure_mean("a.b", [1.0, math.nan, 2.0])
    assert math.isnan(made.value)
    assert made.spread is None
    assert measure_mean("a.b", [1.0, math.inf]).value == math.inf


@experiment
def sample(n: int = 3, *, name: str = "x") -> dict[str, int]:
    measure("exp.n", n, kind="parameter")
    measure("exp.double", 2 * n)
    return {name: n}


def test_an_experiment_carries_its_name_and_settings():
    """Whatever it measures knows who measured and with which settings, defaults included."""
    found = sample(5)
    assert isinstance(found, Findings)
    assert found["exp.double"] == 10
    assert found.data == {"x": 5}
    assert [m.id for m in found] == ["exp.n", "exp.double"]
    assert found.measurements[1].experiment == __name__
    assert found.measurements[1].settings == {"n": "5", "name": "'x'"}
    with pytest.raises(KeyError, match=r"no measurement 'exp\.half'; this experiment made: exp\.n, exp\.double"):
        found["exp.half"]


def test_outside_an_experiment_nobody_is_named():
    """A failing experiment does not leave its name behind."""

    @experiment
    def failing() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        failing()
    assert measure("a.b", seven).experiment == ""
