"""In the wrong layout no other position is seen, and nothing says so."""

import torch

from attnbook.experiments import layout_trap
from attnbook.reference import attention


def test_the_wrong_layout_is_silent_and_blind():
    """Ours and torch's alike; the right layout does see the others."""
    found = layout_trap.run()
    for name in ("no_error", "right_seen", "wrong_unseen", "wrong_unseen_torch"):
        assert found[f"names.layout_{name}"] is True


def test_others_move_is_about_the_others():
    """A change that only the changed position itself can see does not count."""
    x = torch.randn(1, 2, 5, 3, generator=torch.Generator().manual_seed(1))
    assert layout_trap._others_move(attention, x, x, x, axis=2)
    assert not layout_trap._others_move(lambda q, k, v: v, x, x, x, axis=2)
