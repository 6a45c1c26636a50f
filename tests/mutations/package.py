"""The package broken, one line at a time: the classic bugs of attention, each killed by a number of the book.

Only the experiment that measures the named claim runs again.
"""

from __future__ import annotations

from tests.mutations.costs import COSTS
from tests.mutations.experts import EXPERTS
from tests.mutations.flash import FLASH
from tests.mutations.groups import GROUPED
from tests.mutations.heads import HEADS
from tests.mutations.kernels import KERNELS
from tests.mutations.lab_attention import LAB_ATTENTION
from tests.mutations.lab_capstone import LAB_CAPSTONE
from tests.mutations.lab_heads import LAB_HEADS
from tests.mutations.lab_measured import LAB_MEASURED
from tests.mutations.longer import LONGER
from tests.mutations.mutation import Mutation
from tests.mutations.norms import NORMS
from tests.mutations.numerics import NUMERICS
from tests.mutations.options import OPTIONS
from tests.mutations.positions import POSITIONS
from tests.mutations.practice import PRACTICE
from tests.mutations.trained import TRAINED
from tests.mutations.trained_scores import TRAINED_SCORES
from tests.mutations.window import WINDOW

THREE = "attnbook/reference/three_lines.py"
MASKS = "attnbook/reference/masks.py"
ATTENTION = "attnbook/reference/attention.py"
PROBE = "attnbook/probes/causal_leak.py"

THREE_LINES = (
    Mutation("no division by √d", THREE, " / q.shape[-1] ** 0.5", "", "oneline.hand_score_first"),
    Mutation("divided by d", THREE, "q.shape[-1] ** 0.5", "q.shape[-1]", "oneline.hand_out"),
    Mutation("multiplied by √d", THREE, "/ q.shape[-1] ** 0.5", "* q.shape[-1] ** 0.5", "oneline.torch_error32"),
    Mutation("√ of the number of keys", THREE, "q.shape[-1] ** 0.5", "k.shape[-2] ** 0.5", "oneline.torch_error64"),
    Mutation("softmax over the queries", THREE, "softmax(score)", "softmax(score, axis=-2)", "oneline.row_sum_error"),
    Mutation("no softmax", THREE, "softmax(score)", "score", "oneline.row_sum_error"),
    Mutation("a sum, not an average", THREE, "weight @ v", "weight @ v * k.shape[-2]", "oneline.beyond_hull"),
    Mutation("the sign of the score is turned", THREE, "score = q @", "score = -q @", "oneline.hand_weight_first"),
    Mutation("a fourth statement", THREE, "    return out", "    out = out + 0\n    return out", "oneline.statements"),
)

ATTENDING = (
    Mutation(
        "what a mask adds is dropped",
        ATTENTION,
        "allowed, score + added,",
        "allowed, score,",
        "notation.scale_then_mask",
    ),
    Mutation(
        "the mask is scaled too",
        ATTENTION,
        "allowed, score + added,",
        "allowed, score + added * scale,",
        "notation.scale_then_mask",
    ),
    Mutation(
        "groups are interleaved",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return head % n_kv_heads",
        "notation.groups",
    ),
    Mutation(
        "one key head serves all",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return head // n_heads",
        "notation.groups",
    ),
    Mutation(
        "the output stays in the working dtype",
        ATTENTION,
        "    out = xp.astype(out, dtype)\n",
        "",
        "notation.out_dtype",
    ),
    Mutation("no division by √d", ATTENTION, "1 / sizes.head_dim**0.5 if", "1.0 if", "scaling.divided_variance_64"),
    Mutation(
        "divided by d", ATTENTION, "1 / sizes.head_dim**0.5 if", "1 / sizes.head_dim if", "scaling.divided_variance_64"
    ),
    Mutation(
        "a given scale is ignored",
        ATTENTION,
        "**0.5 if scale is None else float(scale)",
        "**0.5",
        "scaling.score_sd_64",
    ),
    Mutation("scaled twice", ATTENTION, "q @ k.mT * scale", "q @ k.mT * scale * scale", "scaling.max_weight_right"),
    Mutation(
        "softmax over the queries",
        ATTENTION,
        "weight = softmax(score)",
        "weight = softmax(score, axis=-2)",
        "oneline.reference_error64",
    ),
    Mutation("−1e9 for −inf", ATTENTION, "added, -xp.inf)", "added, -1e9)", "mask.dead_output"),
    Mutation("hidden keys get score 0", ATTENTION, "added, -xp.inf)", "added, 0.0)", "mask.future_weight"),
    Mutation(
        "masked after softmax",
        ATTENTION,
        "return weight[..., : k.shape[-2]] @ v, logsumexp(score)",
        "return softmax(q @ k.mT * scale) * xp.astype(allowed, q.dtype) @ v, logsumexp(score)",
        "mask.row_sum_error",
    ),
    Mutation("causal is ignored", ATTENTION, "    elif is_causal:", "    elif False:", "mask.first_row_is_v0"),
    Mutation("one mask is enough", ATTENTION, "allowed & causal_mask", "allowed | causal_mask", "mask.padded_error"),
    Mutation(
        "causal forgets the mask",
        ATTENTION,
        "allowed = allowed & causal_mask",
        "allowed = causal_mask",
        "mask.padded_error",
    ),
    Mutation(
        "calculated in the input's dtype",
        ATTENTION,
        'namespace(q), working_dtype("q", q)',
        "namespace(q), q.dtype",
        "softmax.float32_scores_save_it",
    ),
    Mutation(
        "lse of other scores",
        ATTENTION,
        "@ v, logsumexp(score)",
        "@ v, logsumexp(score * scale)",
        "scaling.divided_variance_64",
    ),
)

MASKING = (
    Mutation(
        "strict instead of inclusive",
        MASKS,
        "return j <= i + (t_kv - t_q)",
        "return j < i + (t_kv - t_q)",
        "mask.visible_pairs",
    ),
    Mutation(
        "one key of the future",
        MASKS,
        "return j <= i + (t_kv - t_q)",
        "return j <= i + (t_kv - t_q) + 1",
        "mask.visible_pairs",
    ),
    Mutation("top-left alignment", MASKS, "return j <= i + (t_kv - t_q)", "return j <= i", "mask.one_query_sees"),
    Mutation(
        "aligned the other way",
        MASKS,
        "return j <= i + (t_kv - t_q)",
        "return j <= i + (t_q - t_kv)",
        "mask.decode_error",
    ),
    Mutation(
        "the lower triangle is hidden",
        MASKS,
        "return j <= i + (t_kv - t_q)",
        "return j >= i + (t_kv - t_q)",
        "mask.probe_passes_right",
    ),
    Mutation(
        "True means drop",
        MASKS,
        "        return mask, xp.asarray(0.0, dtype=like.dtype, device=where)\n    if not",
        "        return ~mask, xp.asarray(0.0, dtype=like.dtype, device=where)\n    if not",
        "mask.sdpa_error",
    ),
    Mutation(
        "filling on the other side", MASKS, 'if side == "right" else', 'if side == "left" else', "mask.left_empty_rows"
    ),
    Mutation("one place of filling is seen", MASKS, "return j < size if", "return j <= size if", "mask.padded_error"),
    Mutation("one token is taken for filling", MASKS, "j >= t_kv - size", "j > t_kv - size", "mask.padded_error"),
    Mutation(
        "the lowest finite number hides nothing",
        MASKS,
        "hidden = mask <= max(lowest(mask), lowest(like))",
        "hidden = mask == -xp.inf",
        "mask.lowest_hidden_by_ours",
    ),
)

PROBES = (
    Mutation(
        "the probe looks at the past",
        PROBE,
        "torch.nonzero(moved[:j] >",
        "torch.nonzero(moved[j + 1 :] >",
        "mask.probe_passes_right",
    ),
    Mutation(
        "the probe changes nothing", PROBE, "y[:, j] += (size", "y[:, j] += (0 * size", "mask.probe_reports_leaky_only"
    ),
    Mutation(
        "the probe tolerates everything",
        PROBE,
        "moved[:j] > (tolerance or 0.0)",
        "moved[:j] > 1e9",
        "mask.probe_finds_leak",
    ),
)

PACKAGE = (
    *THREE_LINES, *ATTENDING, *MASKING, *OPTIONS, *PROBES, *NUMERICS, *HEADS, *KERNELS, *TRAINED_SCORES, *LONGER,
    *NORMS, *TRAINED, *POSITIONS, *COSTS, *FLASH, *WINDOW, *GROUPED,
    *EXPERTS, *PRACTICE, *LAB_MEASURED, *LAB_ATTENTION, *LAB_HEADS, *LAB_CAPSTONE,
)  # fmt: skip
