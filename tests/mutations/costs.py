"""Costs counted wrongly: tables, operations, weights, names, and how a peak is measured; each killed by its number."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MEMORY = "attnbook/costs/memory.py"
FLOPS = "attnbook/costs/flops.py"
MODEL_FLOPS = "attnbook/costs/model_flops.py"
PARAMETERS = "attnbook/costs/parameters.py"
TABLE = "attnbook/costs/models.csv"
PUBLISHED = "attnbook/costs/published.csv"
NAMES = "attnbook/costs/published.py"
PEAK = "attnbook/experiments/_peak.py"
WITH_FLOPS = "attnbook/experiments/costs_flops.py"
PHASES = "attnbook/experiments/costs_phases.py"
COUNTED, BLOCKS = "costs.small_as_counted", "costs.blocks_as_counted"
LLAMA = "Llama-3.1-8B,32,4096,32,8,128,14336,128256,"
MIXTRAL = "Mixtral-8x7B,32,4096,32,8,128,,32000,32768,1000000,,,,,8,2,"

TABLES = (
    Mutation("a table has one row", MEMORY, "bytes_of(b * n_heads * t_q * t_kv,", "bytes_of(b * n_heads * t_kv,",
             "costs.scores_growth"),
    Mutation("one table for all heads", MEMORY, "bytes_of(b * n_heads * t_q * t_kv,", "bytes_of(b * t_q * t_kv,",
             "costs.layer_tables_context"),
    Mutation("scores in half precision", MEMORY, 'scores_dtype: object = "float32"', 'scores_dtype: object = "float16"',
             "costs.scores_long"),
    Mutation("values are not counted", MEMORY, "return self.q + self.k + self.v + self.out",
             "return self.q + self.k + self.out", "costs.inputs_long"),
    Mutation("what is released still counts", PEAK, "held += event.nbytes()", "held += max(event.nbytes(), 0)",
             "costs.tables_lines"),
    Mutation("the last bytes are taken for the most", PEAK, "most = max(most, held)", "most = held",
             "costs.tables_torch"),
    Mutation("what is returned is let go at once", PEAK, "            returned = call()\n",
             "            call()\n            returned = None\n", "costs.tables_kept"),
    Mutation("torch may choose tiles", "attnbook/experiments/costs_memory.py", "with sdpa_kernel(SDPBackend.MATH):",
             "with sdpa_kernel(SDPBackend.FLASH_ATTENTION):", "costs.peak_growth"),
)  # fmt: skip

OPERATIONS = (
    Mutation("a product counts one", FLOPS, "scores=2 * pairs * head_dim", "scores=pairs * head_dim", COUNTED),
    Mutation("averages are not counted", MODEL_FLOPS, "attention=found.scores + found.values",
             "attention=found.scores", COUNTED),
    Mutation("the output's map is forgotten", MODEL_FLOPS, "projected = 2 * (shape.n_heads + shape.n_kv_heads)",
             "projected = (shape.n_heads + 2 * shape.n_kv_heads)", COUNTED),
    Mutation("keys for every query head", MODEL_FLOPS, "2 * (shape.n_heads + shape.n_kv_heads)",
             "2 * (shape.n_heads + shape.n_heads)", BLOCKS),
    Mutation("head_dim taken for d_model / n_heads", MODEL_FLOPS, "* shape.head_dim * shape.d_model\n",
             "* (shape.d_model // shape.n_heads) * shape.d_model\n", BLOCKS),
    Mutation("a gate is no matrix", MODEL_FLOPS, "matrices = 3 if shape.gated else 2", "matrices = 2", BLOCKS),
    Mutation("every feed-forward part has a gate", MODEL_FLOPS, "matrices = 3 if shape.gated else 2", "matrices = 3",
             COUNTED),
    Mutation("pairs of causal attention are all pairs", FLOPS, "    if not is_causal:\n        return t_q * t_kv\n",
             "    return t_q * t_kv\n", "costs.overtakes_llama_causal"),
    Mutation("the projections left out of the formula", WITH_FLOPS, "(0 if alone else 2 * d * (a + g))", "0",
             "costs.formula_exact"),
    Mutation("divided by the model's width", WITH_FLOPS, "2 * d * (a + g)), 2 * a)", "2 * d * (a + g)), 2 * d)",
             "costs.formula_exact"),
    Mutation("more than, not as much as", WITH_FLOPS, "flops.projections) >= flops.feed_forward",
             "flops.projections) > flops.feed_forward", "costs.overtakes_small"),
    Mutation("logits are not counted", MODEL_FLOPS, "unembedding=2 * b * t_q", "unembedding=0 * b * t_q",
             "costs.token_intensity"),
    Mutation("a token projects the whole past again", MODEL_FLOPS, "projections=2 * b * t_q * projected",
             "projections=2 * b * t_kv * projected", "costs.prompt_over_token"),
    Mutation("the input's embedding is read whole", PHASES, "weights.total - weights.embedding", "weights.total",
             "costs.weights_read"),
)  # fmt: skip

WEIGHTS = (
    Mutation("a wrong width in the table of models", TABLE, LLAMA, LLAMA.replace("14336", "11336"),
             "costs.published_agree"),
    Mutation("a wrong width, seen in operations", TABLE, LLAMA, LLAMA.replace("14336", "14436"),
             "costs.overtakes_llama"),
    Mutation("a layer too few in the table of models", TABLE, LLAMA, LLAMA.replace(",32,4096", ",31,4096"),
             "costs.total_llama"),
    Mutation("a wrong vocabulary in the table of models", TABLE, "Qwen2.5-7B,28,3584,28,4,128,18944,152064,",
             "Qwen2.5-7B,28,3584,28,4,128,18944,32064,", "costs.total_qwen"),
    Mutation("a wrong statement of who made it", PUBLISHED, "DeepSeek-V3,671,37,", "DeepSeek-V3,617,37,",
             "costs.published_agree"),
    Mutation("three experts a token instead of two", TABLE, MIXTRAL, MIXTRAL.replace(",8,2,", ",8,3,"),
             "costs.active_agree"),
    Mutation("every expert is active", PARAMETERS, "idle = sparse * (experts.n - experts.active) * one",
             "idle = sparse * (experts.n - experts.n) * one", "costs.active_agree"),
    Mutation("the embedding counted once", PARAMETERS, "unembedding=0 if shape.tied else embedding",
             "unembedding=0", "costs.total_qwen"),
    Mutation("biases of q, k and v forgotten", PARAMETERS, "biases = (q + 2 * kv) * shape.qkv_bias",
             "biases = 0 * shape.qkv_bias", "costs.exact_agree"),
    Mutation("latents unfolded to keys alone", PARAMETERS, "(mla.qk_nope_head_dim + mla.v_head_dim)\n",
             "mla.qk_nope_head_dim\n", "costs.total_deepseek"),
    Mutation("names round only", NAMES, "for way in (ROUND_HALF_UP, ROUND_DOWN)", "for way in (ROUND_HALF_UP,)",
             "costs.names_apart"),
)  # fmt: skip

COSTS = (*TABLES, *OPERATIONS, *WEIGHTS)
