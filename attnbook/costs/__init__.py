"""What attention costs, counted and not timed: operations, bytes, traffic between two memories, the KV cache.

Standard library only; nothing here imports torch. Shapes come from the table of published models (`names`, `model`)
or from any Hugging Face config (`read_config`). Counts are whole numbers and exact: of our conventions for causal masks
and windows, and of tensors as they are stored.
"""

from __future__ import annotations

from attnbook.costs.budget import Budget, Change, budget, changes
from attnbook.costs.config import read_config
from attnbook.costs.dtypes import bytes_of, dtype_bits
from attnbook.costs.flops import AttentionFlops, attention_flops, count_pairs
from attnbook.costs.io import AttentionIO, attention_io, tile_lengths
from attnbook.costs.kv import LayerCache, kv_cache_bytes, kv_cache_layers
from attnbook.costs.memory import AttentionMemory, attention_memory, weight_bytes
from attnbook.costs.model_flops import LayerFlops, ModelFlops, model_flops
from attnbook.costs.models import model, names
from attnbook.costs.parameters import Parameters, count_parameters
from attnbook.costs.shape import Experts, Latent, ModelShape

__all__ = [
    "AttentionFlops",
    "AttentionIO",
    "AttentionMemory",
    "Budget",
    "Change",
    "Experts",
    "Latent",
    "LayerCache",
    "LayerFlops",
    "ModelFlops",
    "ModelShape",
    "Parameters",
    "attention_flops",
    "attention_io",
    "attention_memory",
    "budget",
    "bytes_of",
    "changes",
    "count_pairs",
    "count_parameters",
    "dtype_bits",
    "kv_cache_bytes",
    "kv_cache_layers",
    "model",
    "model_flops",
    "names",
    "read_config",
    "tile_lengths",
    "weight_bytes",
]
