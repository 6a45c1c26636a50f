"""The one line holds on random input, and what measures it would see a fault."""

import torch

from attnbook.experiments import weighted_average
from attnbook.reference import softmax, three_lines


def test_what_is_measured():
    """Sums of 1, nothing outside the hull, torch's own numbers."""
    found = weighted_average.run(repeats=6)
    assert found["oneline.rows"] == 6 * 61
    assert found["oneline.row_sum_error"] < 1e-6
    assert found["oneline.all_positive"] is True
    assert found["oneline.beyond_hull"] < 1e-6
    assert found["oneline.torch_error32"] < 1e-5
    assert found["oneline.torch_error64"] < 1e-12
    assert found["oneline.reference_error64"] < 1e-12
    assert found["oneline.tiled_error64"] < 1e-12


def test_leaving_the_hull_is_seen():
    """An average stays inside; weights that sum to more than 1, or one negative weight, leave it."""
    generator = torch.Generator().manual_seed(0)
    v, directions = torch.randn(5, 3, generator=generator), torch.randn(500, 3, generator=generator)
    weight = softmax(torch.randn(7, 5, generator=generator))
    assert weighted_average._beyond(weight @ v, v, directions) <= 1e-6
    assert weighted_average._beyond(v, v, directions) <= 1e-6  # the corners themselves
    assert weighted_average._beyond(3 * v, v, directions) > 0.5
    assert weighted_average._beyond((v[:1] * 2 - v[1:2]), v, directions) > 0.5


def test_a_fault_in_attention_is_seen(monkeypatch):
    """Softmax over the wrong axis moves every measurement that the chapter quotes."""
    monkeypatch.setattr(
        weighted_average.three_lines, "attention", lambda q, k, v: softmax(q @ k.mT / q.shape[-1] ** 0.5, axis=-2) @ v
    )
    found = weighted_average.run(repeats=6)
    assert found["oneline.row_sum_error"] > 0.1
    assert found["oneline.torch_error64"] > 0.1
    assert found["oneline.beyond_hull"] > 0.1


def test_the_picture_can_be_understood():
    """A query on a key favours it, one between two shares, one of length 0 averages."""
    data = weighted_average.run(repeats=6).data
    assert data["weight"].argmax(-1)[:2].tolist() == [0, 1]
    assert torch.equal(data["out"], three_lines.attention(data["q"], data["k"], data["v"]))
    torch.testing.assert_close(data["weight"][3], torch.full((6,), 1 / 6))
