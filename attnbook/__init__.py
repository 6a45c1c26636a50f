"""Attention is a weighted average: reference code, its measurements, and the tools of the book.

The public names below are loaded when they are first used (PEP 562): `import attnbook` itself needs only the standard
library and loads neither torch, numpy, triton, matplotlib nor sphinx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Loaded at once, because a function named like its module must be bound after the module is; standard library only.
from attnbook.errors import BackendUnavailable, DTypeError, ShapeError
from attnbook.measure import Findings, Measurement, experiment, measure, measure_mean

if TYPE_CHECKING:
    from attnbook import api, costs, experiments, integrations, kernels, probes, reference, tiled
    from attnbook.api import KVCache, MultiHeadAttention, PagedKVCache, RingKVCache, TransformerBlock, attend
    from attnbook.api.attention import attention
    from attnbook.api.explain import explain
    from attnbook.api.moe import moe
    from attnbook.api.varlen import attention_varlen
    from attnbook.reference import LearnedPositions, alibi_slopes, rope, sinusoidal_positions, softmax

__all__ = [
    "BackendUnavailable",
    "DTypeError",
    "Findings",
    "KVCache",
    "LearnedPositions",
    "Measurement",
    "MultiHeadAttention",
    "PagedKVCache",
    "RingKVCache",
    "ShapeError",
    "TransformerBlock",
    "alibi_slopes",
    "api",
    "attend",
    "attention",
    "attention_varlen",
    "costs",
    "experiment",
    "experiments",
    "explain",
    "integrations",
    "kernels",
    "measure",
    "measure_mean",
    "moe",
    "probes",
    "reference",
    "rope",
    "sinusoidal_positions",
    "softmax",
    "tiled",
]

_API = (
    *("KVCache", "MultiHeadAttention", "PagedKVCache", "RingKVCache", "TransformerBlock"),
    *("attend", "attention", "attention_varlen", "explain", "moe"),
)
_REFERENCE = ("LearnedPositions", "alibi_slopes", "rope", "sinusoidal_positions", "softmax")
_HOME = dict.fromkeys(_API, "attnbook.api") | dict.fromkeys(_REFERENCE, "attnbook.reference")
"""Where each name that is loaded on first use lives; a name that is missing here is a room of the package."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'attnbook' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        if name in _HOME:
            found: object = getattr(importlib.import_module(_HOME[name]), name)
        else:
            found = importlib.import_module(f"attnbook.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "attnbook":
            raise
        raise ModuleNotFoundError(
            f"attnbook.{name} needs {error.name}, which is not installed: pip install 'attnbook[torch]'",
            name=error.name,
        ) from error
    globals()[name] = found  # next time without this function
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
