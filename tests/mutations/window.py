"""Windows broken, one line at a time: off by one, a ring overwritten early, a sink counted twice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MASKS = "attnbook/reference/masks.py"
FLOPS = "attnbook/costs/flops.py"
KV = "attnbook/costs/kv.py"
IO = "attnbook/costs/io.py"
PLAN = "attnbook/tiled/plan.py"
SCORES = "attnbook/tiled/scores.py"
PARTS = "attnbook/tiled/parts.py"
RING = "attnbook/reference/kv_cache/ring.py"
ATTEND = "attnbook/reference/kv_cache/attend.py"
ATTENTION = "attnbook/reference/attention.py"
ONLINE = "attnbook/reference/online.py"
HEADS = "attnbook/reference/heads.py"
SMOLLM2 = "attnbook/models/smollm2.py"
REACH = "attnbook/experiments/window_reach.py"
TEXT = "attnbook/experiments/_window_text.py"
LOSSES = "attnbook/experiments/window_smollm2.py"
PULLS = "attnbook/experiments/window_influence.py"
GLOBAL = "attnbook/experiments/window_global.py"
RECORD = "book/records/bench-cpu.json"
SEEN = "(behind < self.options.window)"
BAND = "j > i + (t_kv - t_q) - window)"

MASKED = (
    Mutation("one key too many", MASKS, BAND, BAND.replace(">", ">="), "window.keys_ours"),
    Mutation("one key too few", MASKS, BAND, BAND.replace("window)", "window + 1)"), "window.band_is_ours"),
    Mutation("one key too many, layer by layer", SCORES, SEEN, SEEN.replace("<", "<="), "window.reach_6"),
    Mutation("one key too few, layer by layer", SCORES, SEEN, SEEN.replace("window)", "window - 1)"), "window.reach_2"),
    Mutation(
        "the call's window is ignored", ATTENTION, "    if window is not None:", "    if False:", "window.keys_ours"
    ),
    Mutation(
        "a layer does not hand its window on", HEADS, '"window": self.window', '"window": None', "window.reach_formula"
    ),
    Mutation(
        "the layers needed, a layer's own key counted", REACH, "// (window - 1))", "// window)", "window.layers_needed"
    ),
)

COUNTED = (
    Mutation(
        "pairs of a window one key longer",
        FLOPS,
        "(ends - window, t_q",
        "(ends - window - 1, t_q",
        "window.pairs_as_counted",
    ),
    Mutation(
        "pairs without the window", FLOPS, "seen if window is None else", "seen if True else", "window.work_over_needed"
    ),
    Mutation(
        "tiles from the first key on",
        PLAN,
        "first = max(start + ahead - window + 1, 0) if window is not None else 0",
        "first = 0",
        "window.tiles_growth",
    ),
    Mutation(
        "tiles begin one key late",
        PLAN,
        "first = max(start + ahead - window + 1, 0)",
        "first = max(start + ahead - window + 2, 0)",
        "window.tiled_error",
    ),
    Mutation(
        "no edges on the left of a window",
        PLAN,
        "first = max(stop + ahead - window, 0) if window is not None else 0",
        "first = 0",
        "window.tiled_error",
    ),
    Mutation(
        "the two memories without a window",
        IO,
        "low = max(first + t_kv - t_q - window + 1, 0) if window is not None else 0",
        "low = 0",
        "window.tiles_as_told",
    ),
    Mutation(
        "a window's layer keeps everything",
        KV,
        "(length if window is None else min(length, window))",
        "length",
        "window.gemma_window",
    ),
    Mutation(
        "every layer keeps a window",
        KV,
        "(length if window is None else min(length, window))",
        "min(length, window or 1024)",
        "window.gpt_oss_bytes",
    ),
)

RINGS = (
    Mutation(
        "a slot too few",
        RING,
        "t_new, n_slots = k.shape[2], self.window - 1 + max(k.shape[2], 1)",
        "t_new, n_slots = k.shape[2], self.window - 2 + max(k.shape[2], 1)",
        "window.ring_error",
    ),
    Mutation(
        "kept keys one slot off",
        RING,
        "at = self._positions(first, self._length, self._slots[0].shape[2]",
        "at = self._positions(first + 1, self._length + 1, self._slots[0].shape[2]",
        "window.ring_error",
    ),
    Mutation(
        "a ring serves any window", ATTEND, "if window > cache.window:", "if False:", "window.ring_too_small_refused"
    ),
    Mutation(
        "positions counted by what is kept",
        HEADS,
        "lengths[:, None] + following",
        "lengths.clamp(max=7)[:, None] + following",
        "window.ring_error",
    ),
)

SINKS = (
    Mutation("no sink", ATTENTION, "    if sink is not None:", "    if False:", "window.sink_as_a_key"),
    Mutation(
        "the sink is scaled with the scores",
        ATTENTION,
        "xp.broadcast_to(sink,",
        "xp.broadcast_to(sink * scale,",
        "window.sink_as_a_key",
    ),
    Mutation("tiles forget the sink", PARTS, "if sink is not None:", "if False:", "window.sink_in_tiles"),
    Mutation(
        "tiles count the sink twice",
        PARTS,
        "(sink != -torch.inf).to(sink.dtype)",
        "2 * (sink != -torch.inf).to(sink.dtype)",
        "window.sink_in_tiles",
    ),
    Mutation(
        "lse leaves the sink out",
        ATTENTION,
        "logsumexp(score)  # the",
        "logsumexp(score[..., : k.shape[-2]])  # the",
        "window.sink_merged",
    ),
    Mutation(
        "halves merged half and half",
        ONLINE,
        "xp.astype(softmax(lse), lse.dtype)",
        "xp.astype(softmax(0 * lse), lse.dtype)",
        "window.sink_merged",
    ),
    Mutation(
        "the model drops its mask",
        SMOLLM2,
        '"mask": mask, "sinks": None if',
        '"mask": None, "sinks": None if',
        "window.again_window",
    ),
    Mutation("the model drops its sinks", SMOLLM2, "None if sinks is None else sinks[i]", "None", "window.loss_sinks"),
    Mutation(
        "the second token is kept for the first",
        TEXT,
        "seen[:, list(kept)]",
        "seen[:, [i + 1 for i in kept]]",
        "window.loss_first",
    ),
    Mutation("the loss of the wrong token", LOSSES, "text[0, 1:, None]", "text[0, :-1, None]", "window.loss_full"),
    Mutation("near and far turned over", PULLS, ".flip(0)[: places[-1]]", "[: places[-1]]", "window.pull_window_far"),
)

GLOBALS = (
    Mutation("nobody sees the global token", GLOBAL, "    mask[:, list(tokens)] = True\n", "", "window.global_2"),
    Mutation("the global token sees nobody", GLOBAL, "    mask[list(tokens)] = True\n", "", "window.global_2"),
    Mutation("one side is a token wider", GLOBAL, ".abs() <= side", ".abs() <= side + 1", "window.local_1"),
)

RECORDED = (
    Mutation(
        "a record is edited by hand",
        RECORD,
        '"window-forward": {\n   "value": ',
        '"window-forward": {\n   "value": 9',
        "window.time_forward",
    ),
    Mutation(
        "what a record measured is another program now",
        "attnbook/tiled/prepare.py",
        "SCORES = 1 << 20",
        "SCORES = 1 << 19",
        "window.time_forward",
        by=("stale",),
    ),
)

WINDOW = (*MASKED, *COUNTED, *RINGS, *SINKS, *GLOBALS, *RECORDED)
