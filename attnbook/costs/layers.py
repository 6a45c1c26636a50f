"""Which keys each layer of a config keeps, and which layers are no attention and are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from attnbook.costs import families

if TYPE_CHECKING:
    from attnbook.costs.config import Reader


def refuse_foreign(read: Reader) -> None:
    """Raises ValueError, naming what it found, for a config whose cache is not keys and values of a decoder."""
    config = read.config
    if read.outer.get("is_encoder_decoder") or config.get("is_encoder_decoder"):
        _refuse(read, "is_encoder_decoder", "a decoder", "an encoder-decoder, which keeps a second cache")
    for key in ("decoder_layers", "num_decoder_layers", "d_kv"):
        if config.get(key) is not None:
            _refuse(read, key, "a decoder", "an encoder-decoder, which keeps a second cache")
    if read.model_type in families.ENCODERS and not config.get("is_decoder"):
        _refuse(read, "model_type", "a decoder", f"{read.model_type}, an encoder, which keeps no cache")
    for key, kind in families.FOREIGN.items():
        if config.get(key) is not None:
            _refuse(read, key, "layers of attention only", f"layers of another kind ({kind or _others(config[key])})")
    for word in ("mamba", "rwkv", "xlstm", "recurrent"):
        if word in read.model_type:
            _refuse(read, "model_type", "layers of attention only", f"{read.model_type}, with layers of another kind")
    for key, what in families.UNCOUNTED.items():
        if config.get(key):
            _refuse(read, key, "layers that all keep the same", f"{what}, which is not counted here")
    if read.model_type in families.CACHE_UNKNOWN:
        what = families.CACHE_UNKNOWN[read.model_type]
        _refuse(read, "model_type", "layers that all keep the same", f"{what}, which is not counted here")
    length = config.get("v_head_dim")
    latent = config.get("kv_lora_rank") or read.asks_for_latent()
    if length and not latent and length != config.get("head_dim"):
        _refuse(
            read, "v_head_dim", f"head_dim {config.get('head_dim')}", f"{length}: values of another length than keys"
        )


def _others(pattern: object) -> str:
    """The kinds in a list of layers that are no attention; a pattern in letters as it is."""
    if isinstance(pattern, list):
        return ", ".join(sorted({str(kind) for kind in pattern} - set(families.ATTENTION_LAYERS)))
    return repr(pattern)


def _refuse(read: Reader, key: str, expected: str, got: str) -> NoReturn:
    raise ValueError(f"{read.name}: {key}: expected {expected}, got {got}")


def read_windows(read: Reader, layers: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """How many keys a query of each layer sees (None: all), and which of those numbers are chunks."""
    window = read.number("sliding_window") or None
    if read.get("use_sliding_window") is False:
        window = None
    kinds = _kinds(read, layers, window)
    chunk = read.number("attention_chunk_size") or None
    windows = tuple({"full": None, "window": window, "chunk": chunk}[kind] for kind in kinds)
    for kind, key, size in (("window", "sliding_window", window), ("chunk", "attention_chunk_size", chunk)):
        if kind in kinds and size is None:
            raise ValueError(f"{read.name}: {key}: expected a size for layers of that kind, got nothing")
    chunked = tuple(kind == "chunk" for kind in kinds)
    return windows, chunked if any(chunked) else ()


def _kinds(read: Reader, layers: int, window: int | None) -> list[str]:
    """`full`, `window` or `chunk` for each layer: from the most exact key that is there."""
    types = read.get("layer_types")
    if types is not None:
        if len(types) != layers:
            raise ValueError(f"{read.name}: layer_types: expected {layers} entries, one a layer, got {len(types)}")
        for layer, kind in enumerate(types):
            if kind not in families.ATTENTION_LAYERS:
                known = ", ".join(families.ATTENTION_LAYERS)
                raise ValueError(f"{read.name}: layer_types: expected one of {known}, got {kind!r} in layer {layer}")
        return [families.ATTENTION_LAYERS[kind] for kind in types]
    if read.model_type == "llama4_text":
        return _llama4(read, layers)
    if read.model_type == "gpt_neo":
        _refuse(read, "attention_types", "layer_types or sliding_window", "GPT-Neo's own pattern, which is not read")
    if window is None:
        return ["full"] * layers
    pattern = read.number("sliding_window_pattern")
    if pattern:
        return ["window" if (layer + 1) % pattern else "full" for layer in range(layers)]
    first = read.number("max_window_layers")
    if first is not None:
        return ["full" if layer < first else "window" for layer in range(layers)]
    return ["window"] * layers


def _llama4(read: Reader, layers: int) -> list[str]:
    """Layers with RoPE see their own chunk, the others everything; `no_rope_layers` has 1 for a layer with RoPE."""
    if read.number("attention_chunk_size") is None:
        return ["full"] * layers
    interval = read.needed("no_rope_layer_interval")
    with_rope = read.get("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(layers)]
    if len(with_rope) < layers:
        raise ValueError(f"{read.name}: no_rope_layers: expected {layers} entries, got {len(with_rope)}")
    return ["chunk" if with_rope[layer] else "full" for layer in range(layers)]
