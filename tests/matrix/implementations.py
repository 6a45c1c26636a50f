"""How each implementation of the matrix is called: the same arguments, and (out, lse or None) back."""

from __future__ import annotations

from typing import Any


def run(implementation: str, tensors: dict[str, Any], settings: dict[str, Any]) -> tuple[Any, Any]:
    """Attention by one implementation. torch's own function has no lse."""
    match implementation:
        case "reference" | "reference in NumPy":
            from attnbook.reference import attention

            return attention(**tensors, **settings, return_lse=True)
        case "tiled":
            from attnbook.tiled import attention

            return attention(**tensors, **settings, return_lse=True)
        case "door: auto":
            from attnbook.api import attention

            return attention(**tensors, **settings, return_lse=True)
        case "door: sdpa":
            from attnbook.api import attention

            return attention(**tensors, **settings, impl="sdpa"), None
        case "operator":
            from attnbook.api import operators

            named = {name: tensors.get(name) for name in ("mask", "alibi_slopes", "sinks")}
            numbers = {name: settings.get(name) for name in ("is_causal", "window", "softcap", "scale")}
            return operators.attention(*(tensors[name] for name in "qkv"), **named, **numbers)
    raise ValueError(f"no implementation {implementation!r}")
