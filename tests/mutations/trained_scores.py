"""The trained model broken, and what chapters 3 to 5 read off it: its scores, its types, its mask."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MODEL = "attnbook/models/smollm2.py"
SCORES = "attnbook/experiments/smollm2_scores.py"
OVERFLOW = "attnbook/experiments/smollm2_overflow.py"

TRAINED_SCORES = (
    Mutation(
        "the trained model sees its future",
        MODEL,
        "attention(q, k, v, is_causal=True, **also)",
        "attention(q, k, v, **also)",
        "mask.trained_probe_passes",
    ),
    Mutation("divided by d", SCORES, "divided = plain / d**0.5", "divided = plain / d", "scaling.trained_sd_divided"),
    Mutation(
        "rows are judged before the division",
        SCORES,
        '("divided", d**0.5)',
        '("divided", 1.0)',
        "scaling.trained_saturated_divided",
    ),
    Mutation(
        "the future counts",
        SCORES,
        "return score[..., visible(score)]",
        "return score.flatten(-2)",
        "scaling.trained_sd_plain",
    ),
    Mutation(
        "groups are interleaved",
        SCORES,
        "k.repeat_interleave(groups, dim=1)",
        "k.repeat(1, groups, 1, 1)",
        "scaling.trained_saturated_divided",
    ),
    Mutation(
        "float16 of what was not divided",
        OVERFLOW,
        "score.half() for score in scores",
        "score.half() for score in products",
        "softmax.trained_broken_float16",
    ),
    Mutation("float16 for bfloat16", OVERFLOW, "score.bfloat16()", "score.half()", "softmax.trained_broken_bfloat16"),
)
