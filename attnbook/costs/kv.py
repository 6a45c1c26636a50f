"""What the KV cache of a model weighs: keys and values of every token that a later one may still need.

    layer            kept for a request of n tokens           numbers a token
    full             n                                        2 · n_kv_heads · head_dim
    window w         min(n, w)                                the same
    latent (MLA)     n                                        kv_lora_rank + qk_rope_head_dim
    shared           none: an earlier layer's are read        0

GQA: Ainslie et al. 2023 (arXiv:2305.13245). MLA: DeepSeek-AI 2024 (arXiv:2405.04434). Numbers are counted, then turned
into bytes once for each layer, so that 4-bit numbers round up at most once a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from attnbook.costs.dtypes import bytes_of
from attnbook.costs.flops import check_size
from attnbook.costs.models import find_shape
from attnbook.costs.shape import ModelShape


@dataclass(frozen=True)
class LayerCache:
    """The cache of one layer for all requests together: tokens kept, numbers and bytes.

    `kind` is `"full"`, `"window"`, `"chunk"`, `"latent"` or `"shared"` (an earlier layer's cache is read; all counts
    are 0).
    """

    layer: int
    kind: Literal["full", "window", "chunk", "latent", "shared"]
    tokens: int
    elements: int
    bytes: int


def kv_cache_bytes(
    model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape,
    *,
    tokens: int | Sequence[int],
    requests: int = 1,
    dtype: object = "bfloat16",
) -> int:
    """The bytes of a KV cache.

    - `model_or_config`: a name of the table (`names()`), a `ModelShape`, or a Hugging Face config: its path, its
      dictionary, or an object with `to_dict()`.
    - `tokens`: tokens held for each request, prompt and answer together; or a sequence with one length a request.
    - `requests`: how many requests of that length; with a sequence it must stay 1.
    - `dtype`: the type of the cached numbers (`dtype_bits`). Types of 4 bits are packed; their scales are not counted.

    A window of w keeps min(tokens, w) tokens: what a ring buffer holds (the caches of transformers 5.24.0 keep w − 1
    between two calls, and the new token's beside them). A chunk (Llama-4) is counted in the same way,
    which is the room that it needs, though just after a chunk ends less of it is in use. Space that an allocator
    reserves beyond the tokens, pages half filled for example, is not counted.

    Raises ValueError for a count that is no whole number of at least 0, an unknown model (with near names), dtype or
    kind of layer.
    """
    return sum(layer.bytes for layer in kv_cache_layers(model_or_config, tokens=tokens, requests=requests, dtype=dtype))


def kv_cache_layers(
    model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape,
    *,
    tokens: int | Sequence[int],
    requests: int = 1,
    dtype: object = "bfloat16",
) -> tuple[LayerCache, ...]:
    """The same count layer by layer; arguments and errors are those of `kv_cache_bytes`, whose sum it is."""
    shape = find_shape(model_or_config)
    lengths = _lengths(tokens, requests)
    owners = shape.layers - shape.shared_kv_layers
    found = []
    for layer, window in enumerate(shape.windows):
        kind = _kind(shape, layer)
        kept = 0
        if layer < owners:
            kept = sum(count * (length if window is None else min(length, window)) for length, count in lengths)
        elements = kept * shape.kv_elements
        found.append(LayerCache(layer, kind, kept, elements, bytes_of(elements, dtype)))
    return tuple(found)


def _kind(shape: ModelShape, layer: int) -> Literal["full", "window", "chunk", "latent", "shared"]:
    if layer >= shape.layers - shape.shared_kv_layers:
        return "shared"
    if shape.latent is not None:
        return "latent"
    if shape.windows[layer] is None:
        return "full"
    return "chunk" if shape.chunked and shape.chunked[layer] else "window"


def _lengths(tokens: int | Sequence[int], requests: int) -> list[tuple[int, int]]:
    """Pairs of a length and how many requests have it."""
    check_size("requests", requests)
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        check_size("tokens", tokens)
        return [(int(tokens), int(requests))]
    lengths = list(tokens)
    if requests != 1:
        raise ValueError(
            f"requests: expected 1, because tokens has one length for each of {len(lengths)} requests, got {requests}"
        )
    for i, length in enumerate(lengths):
        check_size(f"tokens[{i}]", length)
    return [(int(length), 1) for length in lengths]
