"""Partial results merged: the same whole, however the keys are cut and however often parts are merged."""

import pytest
import torch

from attnbook.tiled import parts
from attnbook.tiled.parts import Parts
from attnbook.tiled.prepare import Scratch

LANES, ROWS, KEYS, D_V = 2, 5, 37, 3


def whole(score, v, sink=None, columns=7, hidden=()):
    """The average and lse of parts of so many columns; keys of `hidden` parts are hidden from every second row."""
    cuts = range(0, KEYS, columns)
    made = Parts(Scratch(score), (LANES, ROWS, D_V), sink, len(cuts))
    for n, start in enumerate(cuts):
        part = score[..., start : start + columns].clone()
        if n in hidden:
            part[:, ::2] = -torch.inf
        made.add(part, v[:, start : start + columns], certain=n not in hidden)
    return [x.clone() for x in made.whole()]


@pytest.fixture
def inputs(normal):
    """Scores with a wide range, values, and a sink for each row."""
    return 9 * normal(LANES, ROWS, KEYS), normal(LANES, KEYS, D_V), 9 * normal(LANES, ROWS, 1)


@pytest.mark.parametrize("room", [1, 3 * LANES * ROWS * D_V, 1 << 19])
@pytest.mark.parametrize("columns", [1, 7, 36, 37])
@pytest.mark.parametrize("with_sink", [False, True])
def test_the_whole_is_one_softmax(inputs, room, columns, with_sink, monkeypatch):
    """Merged two by two, three by three or all together, with a sink or without."""
    monkeypatch.setattr(parts, "NUMBERS", room)
    score, v, sink = inputs
    average, lse = whole(score, v, sink if with_sink else None, columns)
    scores = torch.cat([score, sink], -1) if with_sink else score
    torch.testing.assert_close(average, torch.softmax(scores, -1)[..., :KEYS] @ v, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, scores.logsumexp(-1, keepdim=True), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("room", [1, 1 << 19])
@pytest.mark.parametrize("hidden", [(0,), (5,), (0, 1, 2, 3, 4, 5)])
def test_a_part_may_hold_nothing_for_some_rows(inputs, room, hidden, monkeypatch):
    """It counts for nothing; where all parts are such, average 0 and lse −inf."""
    monkeypatch.setattr(parts, "NUMBERS", room)
    score, v, _ = inputs
    average, lse = whole(score, v, hidden=hidden)
    for n in hidden:
        score[:, ::2, 7 * n : 7 * n + 7] = -torch.inf
    expected = torch.softmax(score, -1).nan_to_num(0.0) @ v
    torch.testing.assert_close(average, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, score.logsumexp(-1, keepdim=True), rtol=1e-13, atol=1e-13)


def test_no_part_at_all(inputs):
    """Average 0 and lse −inf, or the sink; memory that was used before does not show."""
    _, _, sink = inputs
    scratch = Scratch(sink)
    for name in ("tops", "totals", "averages"):
        scratch.take(name, (99,)).fill_(torch.nan)
    for given in (None, sink):
        average, lse = Parts(scratch, (LANES, ROWS, D_V), given, 0).whole()
        assert (average == 0).all()
        assert torch.equal(lse, torch.full_like(sink, -torch.inf) if given is None else sink)
