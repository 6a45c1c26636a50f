"""The KV cache of one request, for published models and several contexts, in 16 bits: the table that one looks up."""

from __future__ import annotations

from typing import Any

from attnbook.costs import kv_cache_bytes, model, weight_bytes
from attnbook.costs.sizes import size_in_bytes
from attnbook.measure import experiment, measure

MODELS = {
    "Llama-2-7B": "llama2_7b",
    "Llama-3.1-8B": "llama3_8b",
    "Llama-3.1-70B": "llama3_70b",
    "Qwen3-8B": "qwen3_8b",
    "Gemma-3-27B": "gemma3_27b",
    "gpt-oss-120b": "gpt_oss",
    "DeepSeek-V3": "deepseek_v3",
}
"""Names in `attnbook.costs.names()`, and how they are called in ids."""


@experiment
def run(contexts: tuple[int, ...] = (4096, 32768, 131072)) -> Any:
    """Contexts beyond what a model was made for are counted all the same. Data: `table`, bytes by model and context."""
    table: dict[str, dict[Any, int]] = {}
    for name, key in MODELS.items():
        sizes = [kv_cache_bytes(name, tokens=context) for context in contexts]
        for context, held in zip(contexts, sizes, strict=True):
            measure(f"practice.cache_{key}_{context // 1024}", held, unit="B")
        table[name] = {"weights": weight_bytes(name), **dict(zip(contexts, sizes, strict=True))}
    for name in ("Llama-2-7B", "Qwen3-8B"):
        measure(f"practice.context_{MODELS[name]}", model(name).context, unit="token")
    longest, shorter = contexts[-1], contexts[-2]
    gemma = table["Gemma-3-27B"]
    measure("practice.cache_gemma_growth", gemma[longest] / gemma[shorter], unit="ratio")
    for which, tokens, requests in (("_token", 1, 1), ("_request", 8192, 1), ("", 8192, 20)):
        exercise = kv_cache_bytes("Llama-3.1-8B", tokens=tokens, requests=requests)
        measure(f"practice.cache_exercise{which}", exercise, unit="B")
    measure("practice.gigabytes", size_in_bytes("80GB"), unit="B")
    return {"table": table}
