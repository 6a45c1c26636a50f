"""The chapter beyond the trained length broken: how RoPE's turns are slowed, how a config is read, what is tested."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROPE = "attnbook/reference/rope.py"
SCALING = "attnbook/reference/rope_scaling.py"
STRETCHED = "attnbook/experiments/longer_stretched.py"

LONGER = (
    Mutation(
        "linear: turned faster, not slower",
        SCALING,
        "return [f / self.factor for f in plain_frequencies(theta, rotary_dim)]",
        "return [f * self.factor for f in plain_frequencies(theta, rotary_dim)]",
        "longer.linear_slowest",
    ),
    Mutation(
        "NTK: the exponent without the last pair",
        SCALING,
        "self.factor ** (rotary_dim / (rotary_dim - 2))",
        "self.factor",
        "longer.ntk_slowest",
    ),
    Mutation(
        "NTK: the exponent turned over",
        SCALING,
        "self.factor ** (rotary_dim / (rotary_dim - 2))",
        "self.factor ** ((rotary_dim - 2) / rotary_dim)",
        "longer.ntk_slowest",
    ),
    Mutation(
        "YaRN: the ramp the other way round",
        SCALING,
        "f * (1 - share) + f / self.factor * share",
        "f * share + f / self.factor * (1 - share)",
        "longer.yarn_fastest",
    ),
    Mutation(
        "YaRN: ends rounded inwards",
        SCALING,
        "low, high = math.floor(low), math.ceil(high)",
        "low, high = math.ceil(low), math.floor(high)",
        "longer.yarn_kept",
    ),
    Mutation(
        "YaRN: no attention factor",
        SCALING,
        "return 0.1 * mscale * math.log(self.factor) + 1 if self.factor > 1 else 1.0",
        "return 1.0",
        "longer.yarn_attention",
    ),
    Mutation(
        "RoPE leaves the attention factor out",
        ROPE,
        "xp.astype(xp.cos(angle) * factor, dtype), xp.astype(xp.sin(angle) * factor, dtype)",
        "xp.astype(xp.cos(angle), dtype), xp.astype(xp.sin(angle), dtype)",
        "longer.unsharpened_is_better_here",
    ),
    Mutation(
        "the length after stretching is taken for the trained one",
        SCALING,
        "length = given.get(_LENGTH, max_position_embeddings)",
        "length = max_position_embeddings or given.get(_LENGTH)",
        "longer.config_right_kept",
    ),
    Mutation(
        "long texts are as long as in training",
        STRETCHED,
        "models, tested, n * TRAINED)",
        "models, tested, TRAINED)",
        "longer.long_plain",
    ),
)
