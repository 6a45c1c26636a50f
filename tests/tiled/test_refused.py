"""Bad input: one clear error, from forward, backward and the public function alike, before anything is calculated."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.tiled import attention, attention_forward


def good():
    """Two heads of three queries."""
    return {name: torch.ones(1, 2, 3, 5) for name in "qkv"}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"q": torch.ones(2, 3, 5)}, ShapeError, "q has 3 axes (2, 3, 5): expected 4, (b, h, t, d)"),
        ({"k": torch.ones(1, 2, 3, 4)}, ShapeError, "k has head_dim 4 (axis d) but q has 5: they must be equal"),
        ({"k": torch.ones(1, 3, 3, 5), "v": torch.ones(1, 3, 3, 5)}, ShapeError, "k has 3 heads (axis h) but q has 2"),
        ({"v": torch.ones(1, 2, 4, 5)}, ShapeError, "v has length 4 (axis t) but k has 3: they must be equal"),
        ({"mask": torch.ones(4) > 0}, ShapeError, "mask has length 4 along axis t_kv but the scores have 3"),
        ({"sinks": torch.ones(3)}, ShapeError, "sinks has shape (3,): expected (h,) = (2,)"),
        ({"alibi_slopes": torch.ones(3)}, ShapeError, "alibi_slopes has shape (3,): expected (h,) = (2,) or (b, h)"),
        ({name: torch.ones(1, 2, 3, 0) for name in "qk"}, ShapeError, "q has head_dim 0 (axis d): expected at least 1"),
        ({"window": 2}, ValueError, "window is 2 but is_causal is False"),
        ({"window": 0, "is_causal": True}, ValueError, "window is 0: expected"),
        ({"softcap": -1.0}, ValueError, "softcap is -1.0: expected"),
        ({"scale": float("nan")}, ValueError, "scale is nan: expected"),
        ({"tile_q": 0}, ValueError, "tile_q is 0: expected at least 1"),
        ({"tile_k": -1}, ValueError, "tile_k is -1: expected at least 1"),
        ({"v": torch.ones(1, 2, 3, 5).double()}, DTypeError, "v has dtype torch.float64 but q has torch.float32"),
        ({x: torch.ones(1, 2, 3, 5).long() for x in "qkv"}, DTypeError, "q has dtype torch.int64: expected a floating"),
        ({"mask": torch.ones(3).long()}, DTypeError, "mask has dtype torch.int64: expected booleans"),
        ({"sinks": torch.ones(2).long()}, DTypeError, "sinks has dtype torch.int64: expected a floating"),
        ({"alibi_slopes": torch.ones(2).bool()}, DTypeError, "alibi_slopes has dtype torch.bool: expected a floating"),
        ({"k": np.ones((1, 2, 3, 5))}, TypeError, "k is a numpy.ndarray: expected a torch.Tensor"),
        ({"mask": [True]}, TypeError, "mask is a builtins.list: expected a torch.Tensor"),
    ],
)
def test_the_error_names_what_came(changes, error, text):
    """The input or option, what was expected, and its value."""
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        attention(**good() | changes)
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        attention_forward(**good() | changes)


@pytest.mark.parametrize("name", ["k", "v", "mask", "alibi_slopes", "sinks"])
def test_another_device_is_refused(name):
    """Whichever input it is."""
    given = good() | {"mask": torch.ones(3, 3), "alibi_slopes": torch.ones(2), "sinks": torch.ones(2)}
    attention(**given)
    with pytest.raises(ValueError, match=f"^{name} is on device meta but q on cpu: they must be on one device$"):
        attention(**given | {name: given[name].to("meta")})
