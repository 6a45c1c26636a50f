"""Probes on models without a fault: does one of them cry wolf?

Every choice of `Transformer` that a language model may make, torch's own layer, and the trained model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.experiments._smollm2 import FIRST_ORDINARY, model
from attnbook.measure import experiment, measure
from attnbook.models import Transformer
from attnbook.probes import Report, batch_dependence, causal_leak, overflow

VOCAB = 17
OPTIONS: dict[str, dict[str, Any]] = {
    "rope": {},
    "sinusoidal, post-norm": {"positions": "sinusoidal", "norm": "post"},
    "learned, rms": {"positions": "learned", "max_positions": 64, "norm_type": "rms"},
    "alibi, grouped": {"positions": "alibi", "n_kv_heads": 2},
    "none, window": {"positions": "none", "window": 4},
    "experts": {"mlp": "experts", "n_experts": 4, "top_k": 2, "d_ff": 32},
    "batch norm, evaluated": {"norm_type": "batch"},
}


class TorchLayer(nn.Module):
    """The encoder layer of torch with its causal mask, on embedded tokens."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(VOCAB, 32)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) -> (b, t, 32)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        out: Tensor = self.layer(self.embedding(tokens), src_mask=mask, is_causal=True)
        return out


@experiment
def run(b: int = 2, t: int = 8, seed: int = 0) -> Any:
    """Three probes each. Data: `reports` by model and probe."""
    models: dict[str, Callable[[Tensor], Any]] = {
        name: Transformer(VOCAB, d_model=32, **options).eval() for name, options in OPTIONS.items()
    }
    models["torch"] = TorchLayer().eval()
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(VOCAB, (b, t), generator=generator)
    reports = {name: probed(fn, x, range(t)) for name, fn in models.items()}
    words = torch.randint(FIRST_ORDINARY, model().config.vocab, (2, 4), generator=generator)
    reports["SmolLM2"] = probed(model(), words, [2])  # a few tokens and one place: each call reads all its weights
    every = [report for found in reports.values() for report in found]
    measure("practice.healthy_models", len(reports))
    measure("practice.healthy_runs", len(every))
    measure("practice.healthy_false_alarms", sum(not report.ok for report in every))
    return {"reports": reports}


def probed(fn: Callable[[Tensor], Any], x: Tensor, positions: Any) -> tuple[Report, ...]:
    """What a language model should pass."""
    return causal_leak(fn, x, positions=positions, draws=1), batch_dependence(fn, x), overflow(fn, x)
