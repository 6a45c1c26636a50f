"""Steps 2 and 3 of the lab: their experiments broken, and the functions that they take where no reader gives others.

What the pages say of the solutions and of the check is measured in their own cells, which every build runs.
"""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROOT_D = "attnbook/experiments/lab_root_d.py"
STABLE = "attnbook/experiments/lab_softmax.py"
SOFTMAX = "attnbook/reference/softmax.py"

LAB_MEASURED = (
    Mutation("lab: the variance", ROOT_D, "sum(axis=-1).std()", "sum(axis=-1).var()", "lab.sd_plain_64"),
    Mutation("lab: no scale", ROOT_D, "softmax(q @ k.T * scale)", "softmax(q @ k.T)", "lab.weight_divided_64"),
    Mutation("lab: over the queries", ROOT_D, "weights.max(axis=-1)", "weights.max(axis=0)", "lab.weight_divided_64"),
    Mutation("lab: divided by d", ROOT_D, "q / d**0.5, k", "q / d, k", "lab.sd_divided_64"),
    Mutation("lab: the scale is 1/d", ROOT_D, "weight(d**-0.5)", "weight(1 / d)", "lab.weight_divided_64"),
    Mutation("lab: spread by d", ROOT_D, "weight(wanted / d**0.5)", "weight(wanted / d)", "lab.weight_at_8_differs"),
    Mutation("lab: no maximum", SOFTMAX, "xp.exp(z - finite_max(z, axis))", "xp.exp(z)", "lab.softmax_holds"),
    Mutation("lab: half the mean", STABLE, "x.mean(axis=-1, keepdims=True)", "x.mean() / 2", "lab.mean_breaks"),
    Mutation("lab: one score alone", STABLE, "[s] * MANY", "[s]", "lab.naive_many_silent"),
)
