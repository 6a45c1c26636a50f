"""Greedy generation: the most probable token, again and again, each step reading one token against a KV cache.

A step is one row through 30 layers, so every weight is read once for two operations: memory decides, not arithmetic.
What stands out: the row meets fused projections (one product for q, k and v, one for gate and up) whose weights lie
input first, which a product of a single row reads nearly twice as fast as (out, in), except in `down_proj`, where the
other way round is faster; RoPE is one multiplication of complex numbers for q and k together, by angles looked up; and
the last product is taken of one row only. `SmolLM2.forward` is the same calculation, readable and for many rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from attnbook.api.cache import KVCache
from attnbook.models.smollm2 import SmolLM2
from attnbook.models.weights import Layer
from attnbook.reference.rope import rope_cos_sin


def generate(
    model: SmolLM2, tokens: Sequence[int] | Tensor, *, max_new_tokens: int, stop: Collection[int] | None = None
) -> list[int]:
    """What the model says after `tokens` (t,): at most `max_new_tokens` new ones, the most probable each time.

    Ends after a token of `stop` (where not given, the one with which the model ends its answers), which is the last
    of the result then. `stop=()` never ends early. Raises ValueError for no tokens or a number below 0.
    """
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is {max_new_tokens}: expected at least 0")
    if stop is None:
        stop = () if model.config.end is None else (model.config.end,)
    found: list[int] = []
    if max_new_tokens:
        for token in stream(model, tokens, room=max_new_tokens):
            found.append(token)
            if token in stop or len(found) == max_new_tokens:
                break
    return found


def stream(model: SmolLM2, tokens: Sequence[int] | Tensor, *, room: int) -> Iterator[int]:
    """The same one by one, as they are found: at most `room` tokens. Raises ValueError for no tokens."""
    read = torch.as_tensor(tokens, device=model.norm.device)
    if read.ndim != 1 or not len(read):
        raise ValueError(f"tokens has shape {tuple(read.shape)}: expected (t,), at least one token to go on from")
    with torch.inference_mode():
        cache = model.new_cache(len(read) + room)
        last = model.hidden(read[None], cache=cache)[:, -1]
        turns = _turns(model, len(read) + room)
        for i in range(len(read), len(read) + room):
            token = int((last @ model.head).argmax())
            yield token
            if i + 1 < len(read) + room:
                last = step(model, token, turns[i], cache)


def step(model: SmolLM2, token: int, turn: Tensor, cache: Sequence[KVCache]) -> Tensor:
    """Read one token at the position that `turn` (head_dim / 2,) belongs to -> the head's input (1, d_model)."""
    width, eps = (model.config.d_model,), model.config.eps
    x = model.embedding[token][None].contiguous()  # (1, d_model)
    for layer, past in zip(model.layers, cache, strict=True):
        x = torch.addmm(x, _heads(model, layer, rms_norm(x, width, layer.attention_norm, eps), turn, past), layer.out)
        gate, up = (rms_norm(x, width, layer.mlp_norm, eps) @ layer.gate_up).chunk(2, dim=-1)
        x = x + linear(silu(gate) * up, layer.down_proj)
    return rms_norm(x, width, model.norm, eps)


def _heads(model: SmolLM2, layer: Layer, x: Tensor, turn: Tensor, past: KVCache) -> Tensor:
    """All heads' outputs side by side, (1, n_heads · head_dim), for the normed row x (1, d_model)."""
    c = model.config
    qk, v = (x @ layer.qkv).tensor_split((layer.ends[1],), dim=-1)
    pairs = torch.view_as_complex(qk.to(turn.real.dtype).view(-1, c.head_dim // 2, 2))  # neighbours are pairs
    qk = torch.view_as_real(pairs * turn).view(1, -1, 1, c.head_dim).to(x.dtype)
    past.append(qk[:, c.n_heads :], v.view(1, c.n_kv_heads, 1, c.head_dim))
    if model.attention is not None:
        return model.attention(qk[:, : c.n_heads], past.k, past.v).reshape(1, -1)
    # One query sees every key: nothing to decide, and the door's questions would take as long as the answer here.
    return scaled_dot_product_attention(qk[:, : c.n_heads], past.k, past.v, enable_gqa=True).view(1, -1)


def _turns(model: SmolLM2, length: int) -> Tensor:
    """The turn of each position and pair as a complex number of length 1: (length, head_dim / 2)."""
    positions = torch.arange(length, device=model.norm.device)
    dtype = torch.float64 if model.norm.dtype == torch.float64 else torch.float32
    cos, sin = rope_cos_sin(positions, model.config.head_dim, theta=model.config.theta, dtype=dtype)
    return torch.complex(cos, sin)
