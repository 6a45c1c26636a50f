"""Steps 6 and 7 of the lab: their experiments broken, and the functions that they take where no reader gives others."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

HEADS = "attnbook/experiments/lab_heads.py"
CUT = "attnbook/reference/heads.py"
GROUPS = "attnbook/reference/attention.py"
TILES = "attnbook/experiments/lab_tiles.py"
HELD = "attnbook/experiments/_held.py"

LAB_HEADS = (
    Mutation("lab: heads of a stretch of text", CUT, "(b, t, n_heads, width // n_heads)), (0, 2, 1, 3))",
             "(b, n_heads, t, width // n_heads)), (0, 1, 2, 3))", "lab.heads_moved_there"),
    Mutation("lab: joined without a swap", CUT, "xp.permute_dims(x, (0, 2, 1, 3)), (b, t, n_heads * d)",
             "x, (b, t, n_heads * d)", "lab.heads_moved_there"),
    Mutation("lab: groups in turn", GROUPS, "return head // (n_heads // n_kv_heads)", "return head % n_kv_heads",
             "lab.groups_reads_as_formula"),
    Mutation("lab: the wrong order is the right one", HEADS, "np.argsort(np.arange(n_heads) % n_kv_heads",
             "np.argsort(np.arange(n_heads) * n_kv_heads", "lab.groups_reads_in_turn_noticed"),
    Mutation("lab: the right order beside the wrong one", HEADS, "np.argsort(np.arange(n_heads) % n_kv_heads",
             "np.argsort(np.arange(n_heads) * n_kv_heads", "lab.groups_in_turn_off"),
    Mutation("lab: keys are not moved with values", HEADS, "wrong(q, k[order], v[order]", "wrong(q, k, v[order]",
             "lab.groups_order_of_keys"),
    Mutation("lab: one key shakes all", HEADS, "n_kv_heads, axis=1)[g][:] += 1.0", "1, axis=1)[0][:] += 1.0",
             "lab.groups_still_right"),
    Mutation("lab: tiles of the wrong maximum", TILES, "np.exp(largest - new)", "np.exp(largest - 2 * new)",
             "lab.tiles_gap"),
    Mutation("lab: tiles without a rescale of the sum", TILES, "total * shrink +", "total +", "lab.tiles_order_gap"),
    Mutation("lab: tiles that are not divided", TILES, "np.asarray(out / total)", "np.asarray(out)", "lab.tiles_gap"),
    Mutation("lab: a walk in float64", TILES, "/ q.shape[1] ** 0.5", "/ np.sqrt(q.shape[1])",
             "lab.tiles_error_ratio_one"),
    Mutation("lab: a root of Python's", TILES, "root = short[0][0], np.sqrt(short[0][0].shape[1])",
             "root = short[0][0], short[0][0].shape[1] ** 0.5", "lab.tiles_root_widens"),
    Mutation("lab: rises over the tile before", TILES, "np.maximum.accumulate(tops, 1)", "tops", "lab.tiles_rises"),
    Mutation("lab: the first tile does not count", TILES, "np.asarray(1 + (", "np.asarray(0 + (",
             "lab.tiles_rises_falling"),
    Mutation("lab: nothing is sorted", TILES, "score.sort(axis=1)", "score.copy()", "lab.tiles_rises_rising"),
    Mutation("lab: falling is rising", TILES, "np.argsort(-score)", "np.argsort(score)", "lab.tiles_needed_falling"),
    Mutation("lab: the walk holds a table", TILES, "for start in range(0, len(k), block):\n        tile",
             "table = q @ k.T\n    for start in range(0, len(k), block):\n        tile", "lab.tiles_held_tiles"),
    Mutation("lab: what is held at the end", HELD, "get_traced_memory()[1]", "get_traced_memory()[0]",
             "lab.tiles_held_plain"),
    Mutation("lab: the peak of another length", TILES, "length, d) for length in", "t_kv, d) for length in",
             "lab.tiles_doubled_plain"),
)  # fmt: skip
