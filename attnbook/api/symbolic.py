"""The checks of shapes, for shapes of which some lengths are symbols.

torch.export traces our Python with symbols in place of numbers. `attnbook.shapes` turns lengths into ints, which would
make the exported program good for one length only. Here they are compared and kept; where they don't fit, the checks of
`attnbook.shapes` say why.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.shapes import AttentionSizes, VarlenSizes, check_attention, check_mask, check_varlen


def sizes_of(q: Tensor, k: Tensor, v: Tensor) -> AttentionSizes:
    """The sizes of an attention call, as `check_attention` gives them, symbols kept."""
    if not _symbols(q, k, v):
        return check_attention(q, k, v)
    if len(q.shape) == len(k.shape) == len(v.shape) == 4:
        b, n_heads, t_q, head_dim = q.shape
        _, n_kv_heads, t_kv, d_v = v.shape
        if k.shape == (b, n_kv_heads, t_kv, head_dim) and v.shape[0] == b and n_heads % n_kv_heads == 0:
            return AttentionSizes(b, n_heads, n_kv_heads, t_q, t_kv, head_dim, d_v)
    return check_attention(q, k, v)


def packed_sizes_of(q: Tensor, k: Tensor, v: Tensor) -> VarlenSizes:
    """The sizes of a call on packed sequences, as `check_varlen` gives them, symbols kept."""
    if not _symbols(q, k, v):
        return check_varlen(q, k, v)
    if len(q.shape) == len(k.shape) == len(v.shape) == 3:
        t_q, n_heads, head_dim = q.shape
        t_kv, n_kv_heads, d_v = v.shape
        if k.shape == (t_kv, n_kv_heads, head_dim) and n_heads % n_kv_heads == 0:
            return VarlenSizes(t_q, t_kv, n_heads, n_kv_heads, head_dim, d_v)
    return check_varlen(q, k, v)


def check_mask_of(mask: Tensor, sizes: AttentionSizes) -> None:
    """Raises what `check_mask` raises."""
    if _symbols(mask) and len(mask.shape) <= 4:
        pairs = zip(mask.shape[::-1], sizes.scores[::-1], strict=False)
        if all(size == expected or size == 1 for size, expected in pairs):
            return
    check_mask(mask, sizes)


def _symbols(*tensors: Tensor) -> bool:
    if torch.compiler.is_dynamo_compiling():  # there, int() of a symbol is the symbol
        return False
    return torch.compiler.is_compiling() and any(isinstance(n, torch.SymInt) for x in tensors for n in x.shape)
