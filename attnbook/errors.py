"""The errors that attnbook raises on purpose; their texts name the place, what was expected and what came."""

from __future__ import annotations


class ShapeError(ValueError):
    """An array has an axis of the wrong length, or the wrong number of axes."""


class DTypeError(TypeError):
    """An array holds another kind of number than the operation is defined for."""


class BackendUnavailable(RuntimeError):
    """An implementation was asked for by name and cannot run this call here; the text says what is missing."""
