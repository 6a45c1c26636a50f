"""Steps 4 and 5 of the lab: their experiments broken, and the functions that they take where no reader gives others."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

LOOKS = "attnbook/experiments/lab_mask.py"
WORDS = "attnbook/experiments/lab_positions.py"

LAB_ATTENTION = (
    Mutation("lab: no mask", LOOKS, "is_causal=True)[0, 0]", "is_causal=False)[0, 0]", "lab.mask_nothing_found"),
    Mutation("lab: no look at the future", LOOKS, "not weights[~keep].any()", "True", "lab.mask_every_mistake_found"),
    Mutation("lab: sums of columns", LOOKS, "weights.sum(-1)", "weights.sum(0)", "lab.mask_found_by_sums"),
    Mutation("lab: minus one hides", LOOKS, "_masked(0, -10.0)", "_masked(0, -1.0)", "lab.mask_weak_share"),
    Mutation("lab: scores are not loud", LOOKS, "[[-200], [0]]", "[[-20], [0]]", "lab.mask_loud_weak"),
    Mutation("lab: no positions", WORDS, "placed = x + p", "placed = x", "lab.gap_with"),
    Mutation("lab: one side permuted", WORDS, "fn(x)[order]).max())", "fn(x)).max())", "lab.gap_without"),
    Mutation("lab: a swap is a circle", WORDS, "np.array([2, 1, 0, 3, 4])", "np.array([1, 2, 0, 3, 4])",
             "lab.gap_opposed_swap"),
    Mutation("lab: not the same place", WORDS, "np.repeat(p[2:3], 5, axis=0)", "p[::-1]", "lab.gap_same"),
    Mutation("lab: no twins", WORDS, "x[TWINS[1]] = x[TWINS[0]]", "pass", "lab.twins_without"),
    Mutation("lab: a circle is a swap", WORDS, "np.array([4, 1, 0, 3, 2])", "np.array([4, 1, 2, 3, 0])",
             "lab.gap_opposed_circle"),
)  # fmt: skip
