"""The package's arithmetic broken: softmax, log-sum-exp, merging, dtypes, and what an empty row gives."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

SOFTMAX = "attnbook/reference/softmax.py"
ONLINE = "attnbook/reference/online.py"
MASKS = "attnbook/reference/masks.py"
ARRAYS = "attnbook/reference/arrays.py"
SHAPES = "attnbook/shapes.py"
SATURATION = "attnbook/experiments/saturation.py"

SOFTMAXES = (
    Mutation("no maximum", SOFTMAX, "xp.exp(z - finite_max(z, axis))", "xp.exp(z)", "softmax.stable_at_1000"),
    Mutation("not normalised", SOFTMAX, "e / xp.where(total == 0, 1.0, total)", "e", "softmax.stable_sum_at_1000"),
    Mutation(
        "0/0 in a row of −inf",
        SOFTMAX,
        "e / xp.where(total == 0, 1.0, total)",
        "e / total",
        "softmax.empty_query_output",
    ),
    Mutation(
        "−inf − −inf in a row of −inf",
        SOFTMAX,
        "return xp.where(top == -xp.inf, 0.0, top)",
        "return top",
        "softmax.empty_query_output",
    ),
    Mutation(
        "powers of two",
        SOFTMAX,
        "e = xp.exp(z - finite_max(z, axis))",
        "e = 2 ** (z - finite_max(z, axis))",
        "scaling.score_ratio",
    ),
    Mutation("lse in base 2", SOFTMAX, "top + xp.log(", "top + xp.log2(", "softmax.weights_from_lse_error"),
    Mutation("lse forgets the maximum", SOFTMAX, "top + xp.log(", "xp.log(", "softmax.lse_at_1000"),
    Mutation(
        "lse of a row of −inf is 0",
        SOFTMAX,
        "xp.where(total == 0, -xp.inf, top",
        "xp.where(total == 0, 0.0, top",
        "softmax.empty_row_lse",
    ),
    Mutation(
        "the naive softmax is not naive",
        SOFTMAX,
        "    e = xp.exp(x)\n",
        "    e = xp.exp(x - finite_max(x, axis))\n",
        "softmax.naive_at_1000",
    ),
    Mutation(
        "online: the sum is not rescaled", ONLINE, "total * xp.exp(top - base) +", "total +", "softmax.online_error"
    ),
    Mutation(
        "online: rescaled the wrong way",
        ONLINE,
        "total * xp.exp(top - base)",
        "total * xp.exp(base - top)",
        "softmax.online_error",
    ),
    Mutation(
        "online: the last block is left out",
        ONLINE,
        "return range(0, length, block)",
        "return range(0, length - block + 1, block)",
        "softmax.online_error",
    ),
    Mutation(
        "merge: halves weighted alike",
        ONLINE,
        "weight = xp.astype(softmax(lse), lse.dtype)",
        "weight = xp.ones_like(lse) / 2",
        "softmax.merge_error",
    ),
    Mutation(
        "merge: the lse are added",
        ONLINE,
        "out_a.dtype), logsumexp(lse)",
        "out_a.dtype), lse_a + lse_b",
        "softmax.merge_error",
    ),
)

CONVENTIONS = (
    Mutation(
        "everything is calculated in float64",
        ARRAYS,
        "return xp.float64 if x.dtype == xp.float64 else xp.float32",
        "return xp.float64",
        "notation.lse_dtype",
    ),
    Mutation(
        "float64 is calculated in float32",
        ARRAYS,
        "return xp.float64 if x.dtype == xp.float64 else xp.float32",
        "return xp.float32",
        "notation.lse_dtype",
    ),
    Mutation(
        "the error does not say what was expected",
        SHAPES,
        'n_heads must be a multiple of n_kv_heads"',
        'heads do not fit"',
        "notation.error_text",
    ),
    Mutation(
        "lse of a row of −inf has a NaN gradient",
        SOFTMAX,
        "xp.log(xp.where(total == 0, 1.0, total))",
        "xp.log(total)",
        "notation.empty_softmax_gradient",
    ),
    Mutation(
        "only the mask's own lowest number hides",
        MASKS,
        "max(lowest(mask), lowest(like))",
        "lowest(mask)",
        "notation.lowest_hides",
    ),
    Mutation(
        "online: −inf − −inf before the first finite score",
        ONLINE,
        "base = xp.where(new == -xp.inf, 0.0, new)",
        "base = new",
        "notation.empty_softmax",
    ),
    Mutation(
        "online: −inf − −inf in a row of −inf",
        ONLINE,
        "z - xp.where(top == -xp.inf, 0.0, top)",
        "z - top",
        "notation.empty_softmax",
    ),
    Mutation(
        "online average: a block merges with the lse so far",
        ONLINE,
        "softmax(part) @ v[..., start : start + block, :], logsumexp(part))",
        "softmax(part) @ v[..., start : start + block, :], lse)",
        "softmax.online_average_error",
    ),
    Mutation(
        "merge: −inf − −inf for two empty sides",
        ONLINE,
        "weight = xp.astype(softmax(lse), lse.dtype)",
        "weight = xp.exp(lse - logsumexp(lse)[..., None])",
        "notation.empty_merge",
    ),
    Mutation(
        "the norm of the Jacobian misses a factor",
        SATURATION,
        "two - 2 * three + two**2",
        "two - three + two**2",
        "scaling.jacobian_plain_n16_d64",
    ),
)

NUMERICS = (*SOFTMAXES, *CONVENTIONS)
