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
    raise ValueError(f"no implementation {implementation!r}")
