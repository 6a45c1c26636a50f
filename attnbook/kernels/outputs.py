"""Where kernels get the memory that they write: one function, so that a test can fill it with NaN first.

Fresh memory holds whatever was there before, often the right answer of the call before. A test replaces `empty` by one
that fills with NaN, and an element that no kernel wrote shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def empty(shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialised memory of this shape, contiguous, on the device of `like`, in its dtype unless another is given.

    Call it as `outputs.empty(…)`: a name imported from here would not be replaced in tests.
    """
    return torch.empty(tuple(shape), dtype=like.dtype if dtype is None else dtype, device=like.device)
