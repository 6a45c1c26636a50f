"""Steps 1 to 3 of the lab: their experiments broken, and the functions that they take where no reader gives others.

What the pages say of the solutions and of the check is measured in their own cells, which every build runs.
"""

from __future__ import annotations

from tests.mutations.mutation import Mutation

LINES = "attnbook/experiments/lab_three_lines.py"
THREE = "attnbook/reference/three_lines.py"
ROOT_D = "attnbook/experiments/lab_root_d.py"
STABLE = "attnbook/experiments/lab_softmax.py"
SOFTMAX = "attnbook/reference/softmax.py"

LAB_MEASURED = (
    Mutation("lab: softmax over the queries", THREE, "softmax(score)", "softmax(score, axis=-2)", "lab.lines_ones"),
    Mutation("lab: a sum of values", THREE, "weight @ v", "weight @ v * k.shape[-2]", "lab.lines_inside"),
    Mutation("lab: divided all the same", LINES, '("undivided", d**0.5)', '("undivided", 1.0)',
             "lab.lines_top_undivided"),
    Mutation("lab: not divided at all", LINES, '("divided", 1.0)', '("divided", d**0.5)', "lab.lines_top_divided"),
    Mutation("lab: another function to compare with", LINES, "three_lines.attention(q, k, v))", "v[:11])",
             "lab.lines_gap"),
    Mutation("lab: the variance", ROOT_D, "sum(axis=-1).std()", "sum(axis=-1).var()", "lab.sd_plain_64"),
    Mutation("lab: no scale", ROOT_D, "softmax(q @ k.T * scale)", "softmax(q @ k.T)", "lab.weight_divided_64"),
    Mutation("lab: over the queries", ROOT_D, "weights.max(axis=-1)", "weights.max(axis=0)", "lab.weight_divided_64"),
    Mutation("lab: divided by d", ROOT_D, "q / d**0.5, k", "q / d, k", "lab.sd_divided_64"),
    Mutation("lab: the scale is 1/d", ROOT_D, "weight(d**-0.5)", "weight(1 / d)", "lab.weight_divided_64"),
    Mutation("lab: spread by d", ROOT_D, "weight(wanted / d**0.5)", "weight(wanted / d)", "lab.weight_at_8_differs"),
    Mutation("lab: no maximum", SOFTMAX, "xp.exp(z - finite_max(z, axis))", "xp.exp(z)", "lab.softmax_holds"),
    Mutation("lab: half the mean", STABLE, "x.mean(axis=-1, keepdims=True)", "x.mean() / 2", "lab.mean_breaks"),
    Mutation("lab: one score alone", STABLE, "[s] * MANY", "[s]", "lab.naive_many_silent"),
)  # fmt: skip
