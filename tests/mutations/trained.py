"""The trained model read wrongly, watched wrongly, switched off wrongly: each killed by a number of its page."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MODEL = "attnbook/models/smollm2.py"
WEIGHTS = "attnbook/models/weights.py"
NORMS = "attnbook/reference/norms.py"
OPENED = "attnbook/experiments/smollm2_opened.py"
HEADS = "attnbook/experiments/smollm2_heads.py"
GROUPS = "attnbook/experiments/smollm2_groups.py"
APART = "smollm2.logits_apart"
BLOCKS, INDUCTION, GROUP = "smollm2.blocks_agree", "smollm2.induction_score", "smollm2.group_found"
ROOT = "z = z / xp.sqrt(xp.mean(z * z, axis=-1, keepdims=True) + eps)\n    if weight"
ROOT_APART = "z = z / (xp.sqrt(xp.mean(z * z, axis=-1, keepdims=True)) + eps)\n    if weight"
CENTRED = "z = z - xp.mean(z, axis=-1, keepdims=True)"
ADDED = "x = x + self._mlp(i"

TRAINED = (
    Mutation("q and k turned in halves", MODEL, 'layout="interleaved", scaling', 'layout="half", scaling', APART),
    Mutation("gate and up swapped", MODEL, "(silu(gate) * up)", "(silu(up) * gate)", APART),
    Mutation("the gate passes no SiLU", MODEL, "(silu(gate) * up)", "(gate * up)", APART),
    Mutation("the MLP's half dropped", MODEL, ADDED, "self._mlp(i", APART),
    Mutation("the MLP replaces x", MODEL, ADDED, "x = self._mlp(i", APART),
    Mutation("k and v swapped", WEIGHTS, 'part("attn_k"), part("attn_v")', 'part("attn_v"), part("attn_k")', APART),
    Mutation("ε outside the root in the model's norms", NORMS, ROOT, ROOT_APART, APART),
    Mutation("the model's norms subtract the mean", NORMS, ROOT, f"{CENTRED}\n    {ROOT}", APART),
    Mutation("no mask", MODEL, "attention(q, k, v, is_causal=True, **also)", "attention(q, k, v, **also)", APART),
    Mutation("steps of 4 bits not multiplied", OPENED, "(step * number", "(number", BLOCKS),
    Mutation("the least of 4 bits forgotten", OPENED, " + least).reshape", ").reshape", BLOCKS),
    Mutation("halves of bytes swapped", OPENED, 'block["nibbles"] & 15, block["nibbles"] >> 4',
             'block["nibbles"] >> 4, block["nibbles"] & 15', BLOCKS),
    Mutation("rows stay in the file's order", OPENED, "if in_halves:", "if not in_halves:", APART),
    Mutation("the token after the next one", HEADS, "place - half + 1]", "place - half + 2]", INDUCTION),
    Mutation("the same token, not the one after", HEADS, "place - half + 1]", "place - half]", INDUCTION),
    Mutation("two places back", HEADS, "diagonal(-1, ", "diagonal(-2, ", "smollm2.previous_score"),
    Mutation("the other bracket", HEADS, "return own, inner, word", "return inner, inner, word",
             "smollm2.bracket_prefers_its_own"),
    Mutation("both quotations of one kind", HEADS, "((DOUBLE, SINGLE), (CURLY, CURLY_SINGLE))",
             "((DOUBLE, DOUBLE), (CURLY, CURLY))", "smollm2.quote_score"),
    Mutation("a drawn word is the opening mark", HEADS, "return own, inner, word", "return own, inner, own",
             "smollm2.quote_shuffled"),
    Mutation("the second token counts as first", HEADS, "maps[..., 1:, 0]", "maps[..., 2:, 1]", "smollm2.first_mean"),
    Mutation("heads counted from one", "attnbook/experiments/_smollm2.py", "divmod(int(i), scores.shape[1])",
             "divmod((int(i) + 1) % scores.numel(), scores.shape[1])", "smollm2.previous_head"),
    Mutation("the head beside it is switched off", MODEL, "off[0, layer, head] = True",
             "off[0, layer, (head + 1) % sizes[1]] = True", "smollm2.group_previous"),
    Mutation("nothing is switched off", MODEL, "if off is not None and off.any():", "if False:", GROUP),
    Mutation("all heads of a layer are off", MODEL, "off[0, layer, head] = True", "off[0, layer] = True",
             "smollm2.group_random"),
    Mutation("random choices are the found ones", GROUPS, "if head not in taken]", "if head in taken]",
             "smollm2.group_found_beats_all_random"),
)  # fmt: skip
