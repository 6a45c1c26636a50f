"""Bytes that attention and a model's weights occupy: tensors that exist at once, not traffic (that is `io`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from attnbook.costs.dtypes import bytes_of
from attnbook.costs.flops import check_sizes
from attnbook.costs.models import find_shape
from attnbook.costs.parameters import count_parameters
from attnbook.costs.shape import ModelShape


@dataclass(frozen=True)
class AttentionMemory:
    """Bytes of the tensors of one attention call: q, k, v, out; the scores; the log-sum-exp (lse).

    `scores` is one matrix, (b, n_heads, t_q, t_kv): what attention without tiles holds, and twice that while the
    weights are made beside it. With tiles none of it is stored.
    """

    q: int
    k: int
    v: int
    out: int
    scores: int
    lse: int

    @property
    def inputs_and_output(self) -> int:
        """q, k, v and out: linear in the lengths."""
        return self.q + self.k + self.v + self.out


def attention_memory(
    t_q: int,
    t_kv: int | None = None,
    *,
    n_heads: int,
    head_dim: int,
    n_kv_heads: int | None = None,
    d_v: int | None = None,
    b: int = 1,
    dtype: object = "bfloat16",
    scores_dtype: object = "float32",
) -> AttentionMemory:
    """The bytes of q (b, n_heads, t_q, head_dim), k, v, out, of the scores and of lse (float32).

    The defaults of sizes are those of `attention_flops`. `scores_dtype` is float32 because our implementations
    accumulate in it. Raises ValueError for sizes below 0 and unknown dtypes.
    """
    t_kv = t_q if t_kv is None else t_kv
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    d_v = head_dim if d_v is None else d_v
    check_sizes(b=b, n_heads=n_heads, n_kv_heads=n_kv_heads, t_q=t_q, t_kv=t_kv, head_dim=head_dim, d_v=d_v)
    return AttentionMemory(
        q=bytes_of(b * n_heads * t_q * head_dim, dtype),
        k=bytes_of(b * n_kv_heads * t_kv * head_dim, dtype),
        v=bytes_of(b * n_kv_heads * t_kv * d_v, dtype),
        out=bytes_of(b * n_heads * t_q * d_v, dtype),
        scores=bytes_of(b * n_heads * t_q * t_kv, scores_dtype),
        lse=bytes_of(b * n_heads * t_q, "float32"),
    )


def weight_bytes(
    model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape, *, dtype: object = "bfloat16"
) -> int:
    """The bytes of all the weights of a model, as `count_parameters` counts them, in one dtype.

    Raises ValueError as `count_parameters` does. The scales of quantised weights are not counted.
    """
    return bytes_of(count_parameters(find_shape(model_or_config)).total, dtype)
