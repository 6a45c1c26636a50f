"""The capstone of the lab: the door for another attention, the mistakes that are put into the model, their measure."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

CAPSTONE = "attnbook/experiments/lab_capstone.py"
MODEL = "attnbook/models/smollm2.py"
WRITES = "attnbook/models/generate.py"

LAB_CAPSTONE = (
    Mutation("lab: the model keeps its own", MODEL, "if self.attention is not None:", "if False:",
             "lab.capstone_no_mask_same"),
    Mutation("lab: written with its own", WRITES, "if model.attention is not None:", "if False:",
             "lab.capstone_top_left_same"),
    Mutation("lab: sees the future", CAPSTONE, "is_causal=True", "is_causal=False", "lab.capstone_same"),
    Mutation("lab: neighbours share", CAPSTONE, "% len(k) if", "// shared_by if",
             "lab.capstone_groups_in_turn_surprise"),
    Mutation("lab: all is scaled", CAPSTONE, '(1 if mistake == "no_scale" else np.sqrt(q.shape[-1]))',
             "np.sqrt(q.shape[-1])", "lab.capstone_no_scale_same"),
    Mutation("lab: at the bottom right", CAPSTONE, '0 if mistake == "top_left" else t_kv - t_q', "t_kv - t_q",
             "lab.capstone_top_left_surprise"),
    Mutation("lab: masked after all", CAPSTONE, 'mistake == "no_mask" or', "False or", "lab.capstone_no_mask_surprise"),
    Mutation("lab: unmasked while reading", CAPSTONE, "and t_q == 1", "and t_q > 1", "lab.capstone_no_mask_needed"),
    Mutation("lab: surprised by the prompt", CAPSTONE, "tokens, len(read))", "tokens, 1)", "lab.capstone_surprise"),
)  # fmt: skip
