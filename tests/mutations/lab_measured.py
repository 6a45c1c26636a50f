"""Steps 2 and 3 of the lab broken: their solutions, the mistakes that they know, what their experiments measure."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROOT_D = "attnbook/lab/solutions/step2_root_d.py"
STABLE = "attnbook/lab/solutions/step3_stable_softmax.py"
FIND_ROOT_D = "attnbook/experiments/lab_root_d.py"
FIND_STABLE = "attnbook/experiments/lab_softmax.py"

LAB_MEASURED = (
    Mutation("step 2: the variance", ROOT_D, "return np.sqrt((", "return ((", "lab.root_d_passes"),
    Mutation("step 2: no scale", ROOT_D, "q @ k.T * scale", "q @ k.T", "lab.weight_divided_64"),
    Mutation("step 2: over the queries", ROOT_D, "weights.max(axis=-1)", "weights.max(axis=0)", "lab.root_d_passes"),
    Mutation(
        "step 2: the mean is subtracted from the imitation",
        "attnbook/lab/steps/root_d.py",
        'dots if "no_mean" in flaws else dots - dots.mean()',
        "dots - dots.mean()",
        "lab.root_d_named",
    ),
    Mutation("divided by d", FIND_ROOT_D, "q / d**0.5, k", "q / d, k", "lab.sd_divided_64"),
    Mutation("the scale is 1/d", FIND_ROOT_D, "weight(d**-0.5)", "weight(1 / d)", "lab.weight_divided_64"),
    Mutation(
        "the spread is d", FIND_ROOT_D, "weight(wanted / d**0.5)", "weight(wanted / d)", "lab.weight_at_8_differs"
    ),
    Mutation(
        "step 3: no maximum", STABLE, "np.exp(x - x.max(axis=-1, keepdims=True))", "np.exp(x)", "lab.softmax_holds"
    ),
    Mutation("step 3: the whole maximum", STABLE, "x.max(axis=-1, keepdims=True)", "x.max()", "lab.softmax_passes"),
    Mutation(
        "step 3: the imitation subtracts the maximum",
        "attnbook/lab/steps/stable_softmax.py",
        'if "no_maximum" in flaws:',
        'if "no maximum" in flaws:',
        "lab.softmax_named",
    ),
    Mutation("half the mean", FIND_STABLE, "x.mean(axis=-1, keepdims=True)", "x.mean() / 2", "lab.mean_breaks"),
    Mutation("one score alone", FIND_STABLE, "[s] * MANY", "[s]", "lab.naive_many_silent"),
)
