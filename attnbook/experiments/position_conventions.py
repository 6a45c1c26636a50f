"""RoPE and the slopes of ALiBi: does the package keep the conventions of the notation page?

As in `conventions`, one small case each whose answer is worked out by hand, and booleans.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from attnbook.experiments.conventions import EXACT, near
from attnbook.measure import experiment, measure
from attnbook.reference import rope, rope_cos_sin
from attnbook.reference.positions import alibi_slopes

FAR = 2**20 - 3
"""A position that bfloat16 rounds by thousands; the angle of the second pair of four components is a hundredth of it,
where float32 numbers are a thousandth apart."""


@experiment
def run() -> dict[str, Any]:
    """Pairs, angles, differences, slopes."""
    first = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=EXACT)  # component 0 turned by one radian at position 1
    one = torch.tensor([1])
    c, s = math.cos(1), math.sin(1)
    measure("notation.rope_half", near(rope(first, one), [c, 0, s, 0]))
    measure("notation.rope_interleaved", near(rope(first, one, layout="interleaved"), [c, s, 0, 0]))

    second, far = torch.tensor([[0.0, 1.0, 0.0, 0.0]]), torch.tensor([FAR])
    cosine = rope_cos_sin(far, 4, dtype=torch.float32)[0][0, 1].item()
    turned = rope(second.bfloat16(), far)[0, 1].item()
    measure("notation.rope_angle", abs(cosine - math.cos(FAR / 100)) < 1e-7)
    measure("notation.rope_half_precision", abs(turned - math.cos(FAR / 100)) < 2**-8)

    q, k = torch.arange(12.0, dtype=EXACT).sin().reshape(2, 1, 6)

    def score(i: int, j: int) -> float:
        return float((rope(q, torch.tensor([i])) @ rope(k, torch.tensor([j])).mT).item())

    measure("notation.rope_difference", math.isclose(score(5, 3), score(1005, 1003), rel_tol=1e-9))
    measure("notation.slopes_of_eight", alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)])
    return {}
