"""Positions broken: waves, tables, turns, layouts, angles, slopes, and where counting begins."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROPE = "attnbook/reference/rope.py"
SCALING = "attnbook/reference/rope_scaling.py"
PLACES = "attnbook/reference/positions.py"
HEADS = "attnbook/reference/heads.py"
MODEL = "attnbook/models/transformer.py"

WAVES = (
    Mutation(
        "sines and cosines swapped",
        PLACES,
        "wave = (xp.sin(angle), xp.cos(angle))",
        "wave = (xp.cos(angle), xp.sin(angle))",
        "position.wave_order",
    ),
    Mutation(
        "the waves' exponent lacks its 2",
        PLACES,
        "theta ** (-2 * i / d_model)",
        "theta ** (-i / d_model)",
        "position.wave_longest",
    ),
    Mutation(
        "waves faster and faster",
        PLACES,
        "theta ** (-2 * i / d_model)",
        "theta ** (2 * i / d_model)",
        "position.wave_growth",
    ),
    Mutation(
        "all sines before all cosines",
        PLACES,
        'if layout == "half" else xp.reshape',
        'if layout == "interleaved" else xp.reshape',
        "position.wave_first_row",
    ),
    Mutation(
        "the table is read from its second row on",
        PLACES,
        "return self.weight[:positions]",
        "return self.weight[1 : positions + 1]",
        "position.learned_first_row",
    ),
    Mutation(
        "one position past the table is let through",
        PLACES,
        "if not 0 <= positions <= size:",
        "if not 0 <= positions <= size + 1:",
        "position.learned_ends",
    ),
    Mutation(
        "positions asked for by number are one behind",
        PLACES,
        "return self.weight[positions.long()]",
        "return self.weight[positions.long() - 1]",
        "position.learned_last",
    ),
)

TURNED = (
    Mutation(
        "RoPE turns the other way",
        ROPE,
        "xp.astype(xp.sin(angle) * factor, dtype)",
        "xp.astype(-xp.sin(angle) * factor, dtype)",
        "position.rope_turn",
    ),
    Mutation(
        "RoPE mirrors", ROPE, "first * sin + second * cos", "first * sin - second * cos", "position.rope_shift_error"
    ),
    Mutation(
        "RoPE's exponent lacks its 2",
        SCALING,
        "[theta ** (-2 * i / rotary_dim) for",
        "[theta ** (-i / rotary_dim) for",
        "position.rope_slowest",
    ),
    Mutation(
        "both layouts pair halves",
        ROPE,
        'x[..., half:]) if layout == "half" else',
        "x[..., half:]) if layout else",
        "position.layout_converted_error",
    ),
    Mutation(
        "rows reordered by the inverse",
        ROPE,
        'if to == "half":\n        order',
        'if to != "half":\n        order',
        "position.layout_converted_error",
    ),
    Mutation(
        "RoPE's angles in half precision",
        ROPE,
        "angle = xp.astype(positions, xp.float64)[..., None] * speed",
        "angle = xp.astype(positions[..., None] * speed, xp.float16)",
        "position.ours_error",
    ),
    Mutation(
        "q is turned and k is not",
        HEADS,
        "q, k = self.rope(q, positions), self.rope(k, positions)",
        "q, k = self.rope(q, positions), k",
        "position.rope_moved",
    ),
)

SLOPES = (
    Mutation(
        "slopes of any number of heads by one formula",
        PLACES,
        "below = 2 ** (n_heads.bit_length() - 1)",
        "below = n_heads",
        "position.alibi_twelve_begin",
    ),
    Mutation(
        "every slope of the longer series",
        PLACES,
        "for i in range(1, 2 * (n_heads - below), 2)]",
        "for i in range(1, n_heads - below + 1)]",
        "position.alibi_twelve_between",
    ),
    Mutation("slopes end at 2^−4", PLACES, "2 ** (-8 * i / below)", "2 ** (-4 * i / below)", "position.alibi_last"),
    Mutation(
        "the keys' positions the wrong way round",
        PLACES,
        "        per_slope = j\n",
        "        per_slope = -j\n",
        "position.alibi_causal_difference",
    ),
)

COUNTING = (
    Mutation(
        "positions begin again at each call",
        HEADS,
        "return lengths[:, None] + following if len(lengths) else following",
        "return following",
        "position.rope_cached",
    ),
    Mutation(
        "the cache's positions are one ahead",
        HEADS,
        "return lengths[:, None] + following if len(lengths) else following",
        "return lengths[:, None] + following + 1 if len(lengths) else following",
        "position.learned_cached",
    ),
    Mutation(
        "the model's embeddings ignore positions",
        MODEL,
        "where = tokens.shape[1] if positions is None else positions",
        "where = tokens.shape[1]",
        "position.sinusoidal_cached",
    ),
    Mutation(
        "filling is counted",
        PLACES,
        "xp.cumulative_sum(xp.astype(mask != 0, xp.int64), axis=1)",
        "xp.cumulative_sum(xp.ones_like(xp.astype(mask, xp.int64)), axis=1)",
        "position.learned_padded",
    ),
)

POSITIONS = (*WAVES, *TURNED, *SLOPES, *COUNTING)
