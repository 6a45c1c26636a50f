"""Mixtures of experts broken, each by the claim of chapter 9c that must notice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROUTER = "attnbook/reference/router.py"
BALANCE = "attnbook/reference/balance.py"
MOE = "attnbook/reference/moe.py"
SORTED = "attnbook/tiled/experts.py"
PARAMETERS = "attnbook/costs/parameters.py"
TABLE = "attnbook/costs/models.csv"

EXPERTS = (
    Mutation(
        "top-k first is ignored",
        ROUTER,
        'if top_k_before_scoring and scoring == "softmax":',
        "if False:",
        "experts.order_error",
    ),
    Mutation(
        "weights are always renormalised",
        ROUTER,
        "if renormalize else chosen.exp()",
        "if True else chosen.exp()",
        "experts.raw_sum",
    ),
    Mutation(
        "weights are never renormalised",
        ROUTER,
        "torch.softmax(chosen, -1) if renormalize else chosen.exp()",
        "chosen.exp()",
        "experts.hand_first_renormalised",
    ),
    Mutation(
        "the scores are renormalised by a softmax of scores, not of their logarithms",
        ROUTER,
        "torch.softmax(chosen, -1) if",
        "torch.softmax(chosen.exp(), -1) if",
        "experts.hand_first_renormalised",
    ),
    Mutation(
        "the smallest scores are chosen",
        ROUTER,
        "descending=True",
        "descending=False",
        "experts.loss_few",
    ),
    Mutation(
        "a sigmoid is a softmax",
        ROUTER,
        "F.logsigmoid(logits)",
        "F.log_softmax(logits, -1)",
        "experts.sigmoid_sum",
    ),
    Mutation(
        "the bias is in the weights",
        ROUTER,
        "    chosen = log_score.gather(1, experts)  # (t, k)\n",
        "    chosen = (log_score if selection_bias is None else wanted.log()).gather(1, experts)\n",
        "experts.bias_weight_error",
    ),
    Mutation(
        "the bias does not choose",
        ROUTER,
        "+ selection_bias.to(working)",
        "+ 0 * selection_bias.to(working)",
        "experts.bias_gains",
    ),
    Mutation(
        "loads counted for each token, not each assignment",
        BALANCE,
        "share = loads / max(experts.numel(), 1)",
        "share = loads / max(t, 1)",
        "experts.loss_uniform",
    ),
    Mutation(
        "the balance loss without its number of experts",
        BALANCE,
        "return n_experts * (share",
        "return (share",
        "experts.loss_few",
    ),
    Mutation(
        "the bias moves towards the crowd",
        BALANCE,
        "torch.sign(counts.mean() - counts)",
        "torch.sign(counts - counts.mean())",
        "experts.crowded_after_bias",
    ),
    Mutation(
        "capacity without k",
        ROUTER,
        "-(-t * k * exact.numerator",
        "-(-t * exact.numerator",
        "experts.capacity_tight",
    ),
    Mutation(
        "capacity rounded down",
        ROUTER,
        "return -(-t * k * exact.numerator //",
        "return (t * k * exact.numerator //",
        "experts.capacity_rounded",
    ),
    Mutation(
        "the first tokens are dropped, not the last",
        ROUTER,
        "earlier = chose.cumsum(0) - chose",
        "earlier = chose.flip(0).cumsum(0).flip(0) - chose",
        "experts.dropped_late",
    ),
    Mutation(
        "each expert of the loop gets its neighbour's tokens",
        MOE,
        "torch.where((info.experts == e) & ~info.dropped)",
        "torch.where(info.experts == (e + 1) % sizes.e)",
        "experts.sorted_error",
    ),
    Mutation(
        "the sorted products forget the weights",
        SORTED,
        "out.to(y.dtype) * weights[row, slot, None])",
        "out.to(y.dtype))",
        "experts.sorted_error",
    ),
    Mutation(
        "gate and up swapped",
        SORTED,
        "F.silu(rows @ _multiplied(w_gate[e])).mul_(rows @ _multiplied(w_up[e]))",
        "F.silu(rows @ _multiplied(w_up[e])).mul_(rows @ _multiplied(w_gate[e]))",
        "experts.sorted_error",
    ),
    Mutation(
        "an expert without tokens is given all of them",
        SORTED,
        "        if len(rows):\n            yield e, rows, slots",
        "        if len(rows):\n            yield e, rows, slots\n        else:\n"
        "            yield e, row[:1], slot[:1]",
        "experts.unused_gradient",
    ),
    Mutation(
        "shared experts are not added",
        MOE,
        "                y = y + swiglu(token, gate, up, down)",
        "                y = y + 0 * swiglu(token, gate, up, down)",
        "experts.shared_error",
    ),
    Mutation(
        "active weights without the experts that are visited",
        PARAMETERS,
        "(experts.n - experts.active) * one",
        "experts.n * one",
        "experts.active_mixtral",
    ),
    Mutation(
        "the shared expert is not counted",
        PARAMETERS,
        "feed_forward += sparse * (experts.n * one + shared)",
        "feed_forward += sparse * experts.n * one",
        "experts.total_deepseek",
    ),
    Mutation(
        "one visited expert too many in the table",
        TABLE,
        "128,4,2880,,",
        "128,5,2880,,",
        "experts.active_gpt_oss",
    ),
)
