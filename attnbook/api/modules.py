"""The reference's layers with the door's attention: same parameters, same names, same results, faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnbook import reference
from attnbook.api.attention import attention


class MultiHeadAttention(reference.MultiHeadAttention):
    """`attnbook.reference.MultiHeadAttention`, with `attnbook.attention` and its choice of implementation.

    Options, shapes and errors are those of the reference, and weights load from one into the other.
    """

    attend: Callable[..., Any] = staticmethod(attention)


class TransformerBlock(reference.TransformerBlock):
    """`attnbook.reference.TransformerBlock`, with `attnbook.attention` and its choice of implementation.

    Options, shapes and errors are those of the reference, and weights load from one into the other.
    """

    attend: Callable[..., Any] = staticmethod(attention)
