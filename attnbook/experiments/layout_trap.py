"""What happens when (b, t, h, d) is handed to attention that expects (b, h, t, d)?

Nothing is raised: heads and positions change places, and every position attends over its own heads. Other positions are
not seen at all, which is how it is found: move one, and nothing else moves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.measure import experiment, measure
from attnbook.reference import attention


@experiment
def run(seed: int = 0, b: int = 2, t: int = 11, n_heads: int = 3, head_dim: int = 8) -> dict[str, Any]:
    """Normal q, k, v in both layouts, through ours and torch's own attention."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, b, n_heads, t, head_dim, generator=generator)
    wrong = [x.transpose(1, 2) for x in (q, k, v)]  # (b, t, h, d)

    measure("names.layout_no_error", attention(*wrong).shape == wrong[0].shape)
    measure("names.layout_right_seen", _others_move(attention, q, k, v, axis=2))
    measure("names.layout_wrong_unseen", not _others_move(attention, *wrong, axis=1))
    measure("names.layout_wrong_unseen_torch", not _others_move(scaled_dot_product_attention, *wrong, axis=1))
    return {}


def _others_move(fn: Any, q: Tensor, k: Tensor, v: Tensor, *, axis: int) -> bool:
    """Does changing the key and value of the last position move the output of any other position?"""
    k2, v2 = k.clone(), v.clone()
    last = [slice(None)] * 4
    last[axis] = slice(-1, None)
    k2[tuple(last)] += 1
    v2[tuple(last)] += 1
    moved = (fn(q, k2, v2) - fn(q, k, v)).abs().movedim(axis, 0).flatten(1).amax(1)
    return bool((moved[:-1] > 0).any())
