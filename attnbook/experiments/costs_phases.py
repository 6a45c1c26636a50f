"""Reading a prompt and writing the next token: how many operations for each byte that must be read?

A model's weights are read once for all tokens that are calculated together. bfloat16, one request. Read are all
weights but the input's embedding, of which only the tokens' own rows are looked up, and the KV cache; what is written
and what passes between layers is left out, as it is little against the weights.
"""

from __future__ import annotations

from attnbook.costs import bytes_of, count_parameters, kv_cache_bytes, model_flops
from attnbook.measure import experiment, measure

DATA_SHEET = "NVIDIA H100 Tensor Core GPU data sheet (SXM; BF16 without sparsity)"


@experiment
def run(name: str = "Llama-3.1-8B", context: int = 4096) -> None:
    """A prompt of `context` tokens at once, and the last token of that context alone."""
    weights = count_parameters(name)
    read = bytes_of(weights.total - weights.embedding, "bfloat16")
    cache = kv_cache_bytes(name, tokens=context)
    prompt = model_flops(name, context, is_causal=True).total
    token = model_flops(name, 1, context, is_causal=True).total
    measure("costs.weights_read", read, unit="B")
    measure("costs.cache_read", cache, unit="B")
    measure("costs.prompt_over_token", prompt / token, unit="ratio")
    measure("costs.token_intensity", token / (read + cache))
    measure("costs.prompt_intensity", prompt / (read + cache))
    speed = measure("costs.gpu_operations", 989e12, kind="cited", source=DATA_SHEET)
    width = measure("costs.gpu_bytes", 3.35e12, unit="B", kind="cited", source=DATA_SHEET)
    measure("costs.gpu_intensity", 989e12 / 3.35e12, derived_from=(speed, width))
