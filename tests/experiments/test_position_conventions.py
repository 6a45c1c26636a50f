"""The conventions of RoPE and of ALiBi's slopes hold, and the ways in which others differ are seen."""

import torch

from attnbook.experiments import position_conventions
from attnbook.reference import rope, rope_cos_sin


def broken(monkeypatch, **changes):
    """The ids that no longer hold when functions that the experiment calls are replaced."""
    for name, function in changes.items():
        monkeypatch.setattr(position_conventions, name, function)
    return {measured.id.removeprefix("notation.") for measured in position_conventions.run() if not measured.value}


def test_all_conventions_hold():
    """Each measurement is a boolean, and true."""
    assert all(measured.value is True for measured in position_conventions.run())


def test_the_other_layout_is_seen(monkeypatch):
    """By all measurements of single components; scores do not notice."""
    other = {"half": "interleaved", "interleaved": "half"}

    def turned(x, positions, layout="half"):
        return rope(x, positions, layout=other[layout])

    assert broken(monkeypatch, rope=turned) == {"rope_half", "rope_interleaved", "rope_half_precision"}


def test_turning_the_other_way_is_seen(monkeypatch):
    """Scores do not notice, single vectors do."""
    found = broken(monkeypatch, rope=lambda x, positions, **options: rope(x, -positions, **options))
    assert found == {"rope_half", "rope_interleaved"}


def test_angles_of_less_precision_are_seen(monkeypatch):
    """Positions rounded as float32 angles round them, or as bfloat16 does."""

    def rough(positions, *rest, **options):
        angle = torch.tensor(0.01) * positions.float()  # that of the second pair, in float32
        return rope_cos_sin(angle.double() * 100, *rest, **options)

    assert broken(monkeypatch, rope_cos_sin=rough) == {"rope_angle"}
    monkeypatch.undo()

    def half(x, positions, **options):
        return rope(x, positions.to(torch.bfloat16).double(), **options)

    assert "rope_half_precision" in broken(monkeypatch, rope=half)


def test_other_slopes_are_seen(monkeypatch):
    """Slopes that begin at 1."""
    assert broken(monkeypatch, alibi_slopes=lambda n: 2.0 ** -torch.arange(n)) == {"slopes_of_eight"}
