"""The options broken, one line at a time: window, cap, slopes, sinks, what is not finite, packed sequences, RoPE."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ATTENTION = "attnbook/reference/attention.py"
MASKS = "attnbook/reference/masks.py"
VARLEN = "attnbook/reference/varlen.py"
ROPE = "attnbook/reference/rope.py"
POSITIONS = "attnbook/reference/positions.py"
TILES = "attnbook/tiled/scores.py"

CAPPED = """\
    if softcap is not None:
        score = softcap * xp.tanh(score / softcap)
"""
HIDDEN = "    score = xp.where(allowed, score + added, -xp.inf)\n"

WINDOWS = (
    Mutation(
        "the window is one longer", MASKS, "(j > i + (t_kv - t_q) - w", "(j >= i + (t_kv - t_q) - w", "notation.window"
    ),
    Mutation(
        "the window is one shorter", MASKS, "(t_kv - t_q) - window)", "(t_kv - t_q) - window + 1)", "notation.window"
    ),
    Mutation(
        "the window leaves out the query itself",
        MASKS,
        "return causal_mask(t_q, t_kv, like=like) & (j > i + (t_kv - t_q) - window)",
        "return (j < i + (t_kv - t_q)) & (j >= i + (t_kv - t_q) - window)",
        "notation.window_of_one",
    ),
    Mutation(
        "the window is aligned top-left", MASKS, "i + (t_kv - t_q) - window)", "i - window)", "notation.window_aligned"
    ),
    Mutation(
        "the window looks ahead too",
        MASKS,
        "return causal_mask(t_q, t_kv, like=like) & (",
        "return (",
        "notation.window",
    ),
    Mutation("the window is ignored", ATTENTION, "    if window is not None:", "    if False:", "notation.window"),
    Mutation(
        "the window forgets the mask",
        ATTENTION,
        "allowed = allowed & window_mask",
        "allowed = window_mask",
        "notation.window_and_mask",
    ),
)

CAPS = (
    Mutation(
        "capped after what is added",
        ATTENTION,
        CAPPED + HIDDEN,
        "    score = score + added\n" + CAPPED + HIDDEN.replace(" + added", ""),
        "notation.cap_then_bias",
    ),
    Mutation("capped after hiding", ATTENTION, CAPPED + HIDDEN, HIDDEN + CAPPED, "notation.cap_then_mask"),
    Mutation(
        "capped before the scale",
        ATTENTION,
        "score = softcap * xp.tanh(score / softcap)",
        "score = softcap * xp.tanh(score / scale / softcap) * scale",
        "notation.scale_then_cap",
    ),
    Mutation("the cap is not multiplied back", ATTENTION, "softcap * xp.tanh(", "xp.tanh(", "notation.cap"),
    Mutation("the cap does not divide", ATTENTION, "xp.tanh(score / softcap)", "xp.tanh(score)", "notation.cap"),
    Mutation(
        "a clamp in place of tanh",
        ATTENTION,
        "softcap * xp.tanh(score / softcap)",
        "xp.clip(score, -softcap, softcap)",
        "notation.scale_then_cap",
    ),
    Mutation("the cap is ignored", ATTENTION, "    if softcap is not None:", "    if False:", "notation.cap"),
)

SLOPES = (
    Mutation("distant keys are favoured", ATTENTION, "added - slope *", "added + slope *", "notation.slopes"),
    Mutation(
        "the slopes of the heads turned round",
        ATTENTION,
        "slope = xp.astype(alibi_slopes, working)",
        "slope = xp.flip(xp.astype(alibi_slopes, working), axis=-1)",
        "notation.slopes_of_heads",
    ),
    Mutation("slopes are ignored", ATTENTION, "if alibi_slopes is not None:", "if False:", "notation.slopes"),
    Mutation("slopes are scaled", MASKS, "xp.abs(i + (t_kv - t_q) - j)", "2 * xp.abs(i - j)", "notation.slopes"),
    Mutation(
        "later keys are favoured",
        MASKS,
        "xp.abs(i + (t_kv - t_q) - j)",
        "i + (t_kv - t_q) - j",
        "notation.slopes_both_sides",
    ),
    Mutation("distance from the start", MASKS, "xp.abs(i + (t_kv - t_q) - j)", "xp.abs(i - j)", "notation.slopes"),
    Mutation(
        "the slopes begin at 1",
        POSITIONS,
        "for i in range(1, below + 1)]",
        "for i in range(below)]",
        "notation.slopes_of_eight",
    ),
)

SINKS = (
    Mutation(
        "the sink is left out of lse",
        ATTENTION,
        "@ v, logsumexp(score)",
        "@ v, logsumexp(score[..., : k.shape[-2]])",
        "notation.sinks_in_lse",
    ),
    Mutation(
        "the sink is scaled",
        ATTENTION,
        "xp.astype(sinks, working)[:, None, None]",
        "xp.astype(sinks, working)[:, None, None] * scale",
        "notation.sinks_as_they_are",
    ),
    Mutation(
        "the sink is capped",
        ATTENTION,
        "xp.broadcast_to(sink, (",
        "xp.broadcast_to(sink if softcap is None else softcap * xp.tanh(sink / softcap), (",
        "notation.sinks_as_they_are",
    ),
    Mutation(
        "the sink is counted twice", ATTENTION, "(*score.shape[:-1], 1))", "(*score.shape[:-1], 2))", "notation.sinks"
    ),
    Mutation("the sink is ignored", ATTENTION, "None if sinks is None else", "None if True else", "notation.sinks"),
    Mutation(
        "the sink of another head",
        ATTENTION,
        "xp.astype(sinks, working)[:, None, None]",
        "xp.flip(xp.astype(sinks, working), axis=0)[:, None, None]",
        "notation.sinks_alone",
    ),
    Mutation(
        "the sink's gradient is cut",
        ATTENTION,
        "xp.astype(sinks, working)[:, None, None]",
        "xp.asarray([float(x) for x in sinks], dtype=working)[:, None, None]",
        "notation.sinks_alone_gradient",
    ),
)

CONTAINMENT = (
    Mutation(
        "0 · NaN everywhere",
        ATTENTION,
        "if all(bool(xp.all(xp.isfinite(x))) for x in (q, k, v, added)):",
        "if True:",
        "notation.nan_in_value",
    ),
    Mutation("0 · NaN in the padding's values", ATTENTION, "xp.where(seen, v, 0.0)", "v", "mask.nan_in_filling_error"),
    Mutation("0 · NaN in the gradient", ATTENTION, "xp.where(seen, k, 0.0)", "k", "notation.nan_in_padding"),
    Mutation(
        "NaN in the keys is not looked for",
        ATTENTION,
        "xp.isfinite(x))) for x in (q, k, v, added)",
        "xp.isfinite(x))) for x in (q, v, added)",
        "notation.nan_in_padding",
    ),
    Mutation(
        "NaN in the queries is not looked for",
        ATTENTION,
        "xp.isfinite(x))) for x in (q, k, v, added)",
        "xp.isfinite(x))) for x in (k, v, added)",
        "notation.nan_in_query_gradient",
    ),
    Mutation(
        "NaN is quietly replaced",
        ATTENTION,
        "q, k, v = (xp.astype(x, working) for x in (q, k, v))",
        "q, k, v = (xp.astype(xp.where(xp.isfinite(x), x, 0.0), working) for x in (q, k, v))",
        "notation.nan_in_query",
    ),
)

PACKED = (
    Mutation(
        "a sequence sees the next one's first key",
        VARLEN,
        "slice(k_start, k_end)",
        "slice(k_start, k_end + 1)",
        "notation.packed_own",
    ),
    Mutation(
        "a sequence sees all before it", VARLEN, "slice(k_start, k_end)", "slice(0, k_end)", "notation.packed_own"
    ),
    Mutation(
        "packed sequences are never causal",
        VARLEN,
        "is_causal=is_causal,\n                w",
        "w",
        "notation.packed_causal",
    ),
    Mutation("the rows left over see keys", VARLEN, "k[:0], v[:0])", "k, v)", "notation.packed_rest"),
    Mutation(
        "packed results stay heads first",
        VARLEN,
        "out = xp.permute_dims(xp.concat(outs, axis=2)[0], (1, 0, 2))",
        "out = xp.concat(outs, axis=2)[0]",
        "notation.packed",
    ),
)

TURNS = (
    Mutation(
        "the other layout by default",
        ROPE,
        'layout: Layout = "half"',
        'layout: Layout = "interleaved"',
        "notation.rope_half",
    ),
    Mutation(
        "turned the other way",
        ROPE,
        "first * cos - second * sin, first * sin + second * cos",
        "first * cos + second * sin, second * cos - first * sin",
        "notation.rope_half",
    ),
    Mutation("stretched, not turned", ROPE, "first * cos - second", "first * cos + second", "notation.rope_difference"),
    Mutation(
        "angles in float32",
        ROPE,
        "xp.astype(positions, xp.float64)[..., None] * speed",
        "xp.astype(positions, xp.float32)[..., None] * xp.astype(speed, xp.float32)",
        "notation.rope_angle",
    ),
    Mutation(
        "positions in the dtype of x",
        ROPE,
        "positions = _check_positions(positions, x, t)",
        "positions = xp.astype(xp.astype(_check_positions(positions, x, t), x.dtype), xp.float64)",
        "notation.rope_half_precision",
    ),
)

TILED = (
    Mutation(
        "tiled alone: the window is one longer",
        TILES,
        "(behind < self.options.window)",
        "(behind <= self.options.window)",
        "notation.window",
    ),
    Mutation("tiled alone: strictly causal", TILES, "seen = behind >= 0", "seen = behind > 0", "notation.causal"),
    Mutation("tiled alone: the cap is not multiplied back", TILES, ".tanh_().mul_(cap)", ".tanh_()", "notation.cap"),
    Mutation(
        "tiled alone: distant keys are favoured",
        TILES,
        "self.distance(q_tile, k_tile), value=-1",
        "self.distance(q_tile, k_tile), value=1",
        "notation.slopes",
    ),
    Mutation(
        "tiled alone: the lowest finite number hides nothing",
        TILES,
        "mask <= self.options.hidden",
        "mask == -torch.inf",
        "notation.lowest_hides",
    ),
)

OPTIONS = (*WINDOWS, *CAPS, *SLOPES, *SINKS, *CONTAINMENT, *PACKED, *TURNS, *TILED)
