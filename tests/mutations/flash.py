"""Attention in tiles broken, one line at a time: in plain torch, in the kernel, in the counts."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PARTS = "attnbook/tiled/parts.py"
PLAN = "attnbook/tiled/plan.py"
SCORES = "attnbook/tiled/scores.py"
BACKWARD = "attnbook/tiled/backward.py"
FORWARD = "attnbook/tiled/attention.py"
IO = "attnbook/costs/io.py"
MEMORY = "attnbook/costs/memory.py"
KERNEL = "attnbook/kernels/flash/forward_kernel.py"
KEYS = "attnbook/kernels/flash/backward_keys.py"
PEAK = "attnbook/experiments/_peak.py"
TRAPS = "attnbook/experiments/flash_traps.py"
EXACT, CAUSAL = "flash.float64_error", "flash.causal_error"
GRADIENT = "flash.gradient_error64"
CUT = "min(stop + ahead, t_kv)"
VISIT = "reads = t_q * head_dim + sum"
LOG = "self.totals[0].log_().add_(self.tops[0])  # log 0"

TILES = (
    Mutation("tiles: the rescale is forgotten", PARTS, "share = tops.sub_(top).exp_().mul_(totals)",
             "share = totals.clone()", EXACT),
    Mutation("tiles: rescaled the wrong way", PARTS, "tops.sub_(top).exp_()", "tops.sub_(top).neg_().exp_()", EXACT),
    Mutation("tiles: averages are not rescaled", PARTS, "averages.mul_(share).sum(0)",
             "averages.mul_(totals).sum(0)", EXACT),
    Mutation("tiles: a sum, not an average", PARTS, ".sum(0).div_(total.masked_fill(total == 0, 1.0))", ".sum(0)",
             EXACT),
    Mutation("tiles: no scale", SCORES, "beta=0, alpha=self.options.scale", "beta=0, alpha=1.0", EXACT),
    Mutation("tiles: the end of the keys is left out", PLAN, "in range(first, last, tile_k)",
             "in range(first, last - tile_k + 1, tile_k)", EXACT),
    Mutation("causal: one key too few", PLAN, CUT, "min(stop + ahead - 1, t_kv)", CAUSAL),
    Mutation("causal: tiles of the future are visited", PLAN, CUT, "t_kv", "flash.tiles_visited"),
    Mutation("causal: one tile too many, seen by the products", PLAN, CUT, "min(stop + ahead + 1, t_kv)",
             "flash.tiles_as_products"),
    Mutation("causal: one tile too many, seen by the model", PLAN, CUT, "min(stop + ahead + 1, t_kv)",
             "flash.tiles_as_model"),
    Mutation("causal: the edge begins a key too late", PLAN, "start + 1 + ahead if is_causal",
             "start + 2 + ahead if is_causal", CAUSAL),
    Mutation("causal: every tile is an edge", PLAN, "    parts = ((start, min(stop, free[0]))",
             "    return (tile,)\n    parts = ((start, min(stop, free[0]))", "flash.tiles_at_edge"),
    Mutation("a row that saw nothing: −inf − −inf", PARTS, "            total.masked_fill_(nothing, 0.0)\n", "",
             "flash.hidden_tile_error"),
)  # fmt: skip

BACK = (
    Mutation("lse in base 2", PARTS, LOG, LOG.replace("  #", ".div_(0.6931471805599453)  #"),
             "flash.weights_again_error"),
    Mutation("lse without the maximum", PARTS, LOG, "self.totals[0].log_()  # log 0", GRADIENT),
    Mutation("no delta", BACKWARD, ".sub_(delta).mul_(weight)", ".mul_(weight)", GRADIENT),
    Mutation("delta is added", BACKWARD, ".sub_(delta).mul_(weight)", ".add_(delta).mul_(weight)", GRADIENT),
    Mutation("the weights are left out", BACKWARD, ".sub_(delta).mul_(weight)", ".sub_(delta)", GRADIENT),
    Mutation("d_k is not scaled", BACKWARD, "product(d_score.mT, q_rows, by_key).mul_(scores.options.scale)",
             "product(d_score.mT, q_rows, by_key)", GRADIENT),
    Mutation("the last tile's gradient replaces the sum", BACKWARD, "into.v[:, some_keys] += product",
             "into.v[:, some_keys] = product", GRADIENT),
    Mutation("a table is made on the way", FORWARD, "            out, lse = attention_forward(*tensors, **options)\n",
             "            table = q @ k.mT\n            out, lse = attention_forward(*tensors, **options)\n",
             "flash.doubled_tiled"),
)  # fmt: skip

COUNTS = (
    Mutation("IO: keys and values are read once for all", IO, "sum(last - first for _, first, last in visits) * (",
             "max(last - first for _, first, last in visits) * (", "flash.io_usual"),
    Mutation("IO: a re-read is missing, seen by doing it", IO, "sum(last - first for _, first, last in visits) * (",
             "max(last - first for _, first, last in visits) * (", "flash.io_as_counted"),
    Mutation("IO: the queries are not read", IO, VISIT, "reads = sum", "flash.io_as_counted"),
    Mutation("IO: lse is not written", IO, "writes = t_q * (d_v + 1)", "writes = t_q * d_v", "flash.io_single"),
    Mutation("IO: the weights are not read again", IO, "head_dim + 2 * scores + t_kv * d_v)",
             "head_dim + scores + t_kv * d_v)", "flash.io_plain"),
    Mutation("IO: the scores are not written", IO, "heads * (2 * scores + t_q * d_v)", "heads * (scores + t_q * d_v)",
             "flash.io_ratio"),
    Mutation("IO: skipped tiles are counted", IO, "high = max(last + t_kv - t_q, 0)", "high = t_kv",
             "flash.io_causal"),
    Mutation("IO: out is read once in the first paper's order", IO,
             "query_rows * (head_dim + d_v + 2)", "query_rows * head_dim", "flash.io_keys_first"),
    Mutation("IO: fast memory without the scores", IO, " + tile_q * tile_k\n", "\n", "flash.io_usual_fast"),
    Mutation("memory: scores of two bytes", MEMORY, "t_q * t_kv, scores_dtype)", 't_q * t_kv, "bfloat16")',
             "flash.tables_8192"),
    Mutation("memory: lse of every component", MEMORY, 'lse=bytes_of(b * n_heads * t_q, "float32")',
             'lse=bytes_of(b * n_heads * t_q * d_v, "float32")', "flash.results_8192"),
    Mutation("memory: what is released is not noticed", PEAK, "            held += event.nbytes()\n",
             "            held += max(event.nbytes(), 0)\n", "flash.peak_plain_8192"),
    Mutation("the broken loop is not broken", TRAPS, 'if mistake == "no rescale":', "if False:",
             "flash.no_rescale_off"),
    Mutation("the careless loop is careful", TRAPS, 'new if mistake == "no care" else new.masked_fill',
             "new.masked_fill", "flash.hidden_tile_nan"),
)  # fmt: skip

IN_KERNEL = (
    Mutation("kernel: the rescale is forgotten", KERNEL, "total = total * shrink +", "total = total +",
             "flash.kernel_error"),
    Mutation("kernel: the average is not rescaled", KERNEL, "                average = average * shrink[:, None]\n", "",
             "flash.kernel_error"),
    Mutation("kernel: lse in base 2", KERNEL, "(top + tl.log2(some)) * LN2", "top + tl.log2(some)",
             "flash.kernel_lse_error"),
    Mutation("kernel: the diagonal is skipped", KERNEL, "end = tl.maximum(tl.minimum(t_kv, latest + 1), 0)",
             "end = whole_end", "flash.kernel_error"),
    Mutation("kernel: a hidden pair is taken for seen", KERNEL, "tl.minimum(t_kv, earliest + 1)",
             "tl.minimum(t_kv, earliest + 32)", "flash.kernel_error"),
    Mutation("kernel: delta is left out", KEYS, "d_weight, delta[None, :], seen", "d_weight, 0.0, seen",
             "flash.kernel_gradient_error"),
)  # fmt: skip

FLASH = (*TILES, *BACK, *COUNTS, *IN_KERNEL)
