"""How many weights do published mixtures of experts have, how many of them does a token use, and how many a batch?

Weights are counted from the table of published shapes. How many experts of one layer a batch visits together is
counted by routing random tokens: what stays idle for one token is busy for many.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from attnbook.costs import count_parameters, model, weight_bytes
from attnbook.experiments._experts import routed
from attnbook.measure import experiment, measure, measure_mean

MODELS = {
    "mixtral": "Mixtral-8x7B",
    "qwen": "Qwen3-30B-A3B",
    "qwen_large": "Qwen3-235B-A22B",
    "gpt_oss": "gpt-oss-120b",
    "deepseek": "DeepSeek-V3",
}
STATED_ACTIVE = {
    "gpt_oss": (5_130_000_000, "gpt-oss-120b & gpt-oss-20b Model Card (arXiv:2508.10925), table 1"),
    "deepseek": (37_000_000_000, "README.md of deepseek-ai/DeepSeek-V3"),
}
"""Active weights as the makers state them who leave the input's embedding out."""
BATCHES = (1, 16, 256)


@experiment
def run(repeats: int = 20, seed: int = 0) -> None:
    """Weights in all and for one token; of Qwen3-30B-A3B, the experts of one layer that a batch of tokens visits."""
    for key, name in MODELS.items():
        shape, found = model(name), count_parameters(name)
        assert shape.experts is not None
        measure(f"experts.n_{key}", shape.experts.n)
        measure(f"experts.top_k_{key}", shape.experts.active)
        measure(f"experts.total_{key}", found.total)
        measure(f"experts.active_{key}", found.active)
        if key in STATED_ACTIVE:
            stated, source = STATED_ACTIVE[key]
            measure(f"experts.active_less_{key}", found.active - found.embedding)
            measure(f"experts.stated_active_{key}", stated, kind="cited", source=source)
    mixtral = count_parameters("Mixtral-8x7B")
    measure("experts.outside_mixtral", mixtral.total - mixtral.feed_forward)
    measure("experts.router_mixtral", mixtral.router / mixtral.total, unit="ratio")
    measure("experts.weights_mixtral", weight_bytes("Mixtral-8x7B", dtype="bfloat16"), unit="B")
    shape = model("Mixtral-8x7B")
    assert shape.experts is not None
    twice = replace(shape, experts=replace(shape.experts, active=2 * shape.experts.active))
    measure("experts.exercise_active", count_parameters(twice).active)
    _measure_visited(repeats, torch.Generator().manual_seed(seed))


def _measure_visited(repeats: int, generator: torch.Generator) -> None:
    qwen = model("Qwen3-30B-A3B").experts
    assert qwen is not None
    for b in BATCHES:
        visited = [
            int((routed(torch.randn(b, qwen.n, generator=generator), qwen.active).loads > 0).sum())
            for _ in range(repeats)
        ]
        measure_mean(f"experts.visited_{b}", visited)
