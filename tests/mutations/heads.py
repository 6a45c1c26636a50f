"""Heads broken, one line at a time: cut, joined, shared and read out wrongly."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

HEADS_LAYER = "attnbook/reference/heads.py"
ATTENTION = "attnbook/reference/attention.py"
FLOPS = "attnbook/costs/flops.py"
TASKS = "attnbook/models/tasks.py"
TRAPS = "attnbook/experiments/heads_traps.py"
TWO_PLACES = "attnbook/experiments/heads_two_places.py"

CUT = "xp.permute_dims(xp.reshape(x, (b, t, n_heads, width // n_heads)), (0, 2, 1, 3))"
JOINED = "xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (b, t, n_heads * d))"
OUT = "        y = self.o_proj(merge_heads(out))\n"

SHAPES = (
    Mutation(
        "cut without a transpose",
        HEADS_LAYER,
        CUT,
        "xp.reshape(x, (b, n_heads, t, width // n_heads))",
        "heads.torch_error",
    ),
    Mutation(
        "components dealt out to heads in turn",
        HEADS_LAYER,
        CUT,
        "xp.permute_dims(xp.reshape(x, (b, t, width // n_heads, n_heads)), (0, 3, 1, 2))",
        "heads.loop_error",
    ),
    Mutation(
        "joined without a transpose", HEADS_LAYER, JOINED, "xp.reshape(x, (b, t, n_heads * d))", "heads.torch_error"
    ),
    Mutation(
        "joined without a transpose, seen by the round trip",
        HEADS_LAYER,
        JOINED,
        "xp.reshape(x, (b, t, n_heads * d))",
        "heads.merge_undoes_split",
    ),
    Mutation(
        "joined component by component",
        HEADS_LAYER,
        JOINED,
        "xp.reshape(xp.permute_dims(x, (0, 2, 3, 1)), (b, t, n_heads * d))",
        "heads.first_head_error",
    ),
    Mutation(
        "head indices shifted by one",
        HEADS_LAYER,
        JOINED,
        "xp.reshape(xp.roll(xp.permute_dims(x, (0, 2, 1, 3)), 1, axis=2), (b, t, n_heads * d))",
        "heads.first_head_error",
    ),
    Mutation(
        "the wrong cut of the trap is the right one",
        TRAPS,
        "    return x.view(b, n_heads, t, width // n_heads)\n",
        "    return split_heads(x, n_heads)\n",
        "heads.seen_cut",
    ),
)

LAYER = (
    Mutation("w_o is left out", HEADS_LAYER, OUT, "        y = merge_heads(out)\n", "heads.torch_error"),
    Mutation(
        "x is added to the layer's output",
        HEADS_LAYER,
        OUT,
        "        y = x + self.o_proj(merge_heads(out))\n",
        "heads.loop_error",
    ),
    Mutation(
        "divided by √d_model",
        HEADS_LAYER,
        '"scale": self.scale,',
        '"scale": self.d_model**-0.5,',
        "heads.torch_error",
    ),
    Mutation(
        "divided by √d_model, seen in the weights",
        HEADS_LAYER,
        '"scale": self.scale,',
        '"scale": self.d_model**-0.5,',
        "heads.torch_weights_error",
    ),
    Mutation(
        "keys and queries change places",
        HEADS_LAYER,
        "        return q, k, v\n",
        "        return k, q, v\n",
        "heads.torch_weights_error",
    ),
    Mutation(
        "values made by the keys' map",
        HEADS_LAYER,
        "v = split_heads(self.v_proj(source), self.n_kv_heads)",
        "v = split_heads(self.k_proj(source), self.n_kv_heads)",
        "heads.loop_error",
    ),
    Mutation(
        "a head has d_model components",
        HEADS_LAYER,
        "    return d_model // n_heads\n",
        "    return d_model\n",
        "heads.parameters_eight",
    ),
    Mutation(
        "keys for every query head, groups or not",
        HEADS_LAYER,
        "self.k_proj = nn.Linear(self.d_context, self.n_kv_heads * self.head_dim",
        "self.k_proj = nn.Linear(self.d_context, self.n_heads * self.head_dim",
        "heads.parameters_grouped",
    ),
    Mutation(
        "the products of a score are not counted", FLOPS, "scores=2 * pairs", "scores=pairs", "heads.flops_as_counted"
    ),
)

GROUPS = (
    Mutation(
        "groups tiled instead of repeated",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return head % n_kv_heads",
        "heads.repeated_error",
    ),
    Mutation(
        "groups tiled, seen by torch",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return head % n_kv_heads",
        "heads.groups_torch_error",
    ),
    Mutation(
        "the groups' borders shifted by one",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return (head + 1) // (n_heads // n_kv_heads) % n_kv_heads",
        "heads.reads_before_border",
    ),
    Mutation(
        "the first key head serves all",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return head * 0",
        "heads.reads_after_border",
    ),
)

PLACES = (
    Mutation(
        "powers of two in place of e",
        "attnbook/reference/softmax.py",
        "e = xp.exp(z - finite_max(z, axis))",
        "e = 2 ** (z - finite_max(z, axis))",
        "heads.ratio_error",
    ),
    Mutation(
        "the sum is asked for as the difference",
        TASKS,
        'one + other if answer == "sum" else one - other + symbols - 1',
        "one + other",
        "heads.right_one",
    ),
    Mutation(
        "two heads see the same", TWO_PLACES, "merge_heads(attend(q, k, v, is_causal=True))",
        "merge_heads(attend(q[:, :1].expand_as(q), k[:, :1].expand_as(k), v, is_causal=True))", "heads.right_two",
    ),
)  # fmt: skip

HEADS = (*SHAPES, *LAYER, *GROUPS, *PLACES)
