"""Does the trained model on attnbook's attention calculate what it should, and what if its rows are read wrongly?

The other side is written out here, from the file's bytes on: its own reading of 4-bit blocks, torch's
`scaled_dot_product_attention`, RMSNorm and SiLU of torch, and RoPE in halves (Su et al. 2021; Touvron et al. 2023), for
which the rows of q and k have to be put into another order than the file's. Left in the file's order, they show what
that mistake costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from attnbook.experiments._smollm2 import TEXT, loss, model, text_tokens
from attnbook.measure import experiment, measure
from attnbook.models import GGUFFile

FOUR_BIT = 3
"""The kind of number that ggml calls Q4_1."""
PER_BLOCK, BLOCK = 32, np.dtype([("step", "<f2"), ("least", "<f2"), ("nibbles", "u1", 16)])
"""Of Q4_1: 32 weights are a step, the least of them, and 32 numbers from 0 to 15."""


@experiment
def run(text: str = TEXT) -> dict[str, Any]:
    """Read the file twice and the text thrice. Data: `block`, the first weights of the first 4-bit matrix."""
    file, c = GGUFFile.open(), model().config
    for name, value in (("layers", c.n_layers), ("heads", c.n_heads), ("kv_heads", c.n_kv_heads)):
        measure(f"smollm2.{name}", value)
    measure("smollm2.all_heads", c.n_layers * c.n_heads)
    measure("smollm2.d_model", c.d_model)
    weights = {name: four_bits(file, name) for name, entry in file.entries.items() if entry.kind == FOUR_BIT}
    _measure_numbers(file, weights)

    tokens = text_tokens(text)
    measure("smollm2.text_tokens", tokens.shape[1])
    ours = model()(tokens)
    theirs = plain_logits(tokens, weights, file, in_halves=True)
    measure("smollm2.logits_apart", (ours - theirs).abs().max())
    measure("smollm2.largest_logit", ours.abs().max())
    measure("smollm2.same_best", bool((ours.argmax(-1) == theirs.argmax(-1)).all()))
    measure("smollm2.text_loss", loss(tokens))
    wrong = plain_logits(tokens, weights, file, in_halves=False)
    measure("smollm2.text_loss_wrong_rows", functional.cross_entropy(wrong[0, :-1], tokens[0, 1:]))
    measure("smollm2.guess_loss", math.log(c.vocab))
    return {"block": next(iter(weights.values())).flatten()[:PER_BLOCK]}


def _measure_numbers(file: GGUFFile, weights: dict[str, NDArray[np.float32]]) -> None:
    """How many numbers, in how many bits."""
    stored = sum(w.size for w in weights.values())
    measure("smollm2.weights", sum(math.prod(entry.shape) for entry in file.entries.values()))
    blocks = stored // PER_BLOCK
    measure("smollm2.four_bit_bits", 8 * blocks * BLOCK.itemsize / stored, unit="bit")
    first = next(iter(weights.values())).reshape(-1, PER_BLOCK)
    measure("smollm2.most_in_a_block", max(len(np.unique(block)) for block in first[:4096]))
    measure("smollm2.blocks_agree", all(np.array_equal(w, file.tensor(name)) for name, w in weights.items()))


def four_bits(file: GGUFFile, name: str) -> NDArray[np.float32]:
    """A Q4_1 matrix from its bytes: step · number + least. The low halves of the 16 bytes come first."""
    shape, _, offset = file.entries[name]
    block = np.frombuffer(file.data, BLOCK, math.prod(shape) // PER_BLOCK, offset)
    number = np.concatenate([block["nibbles"] & 15, block["nibbles"] >> 4], axis=1)
    step, least = (block[part].astype(np.float32)[:, None] for part in ("step", "least"))
    weight: NDArray[np.float32] = (step * number.astype(np.float32) + least).reshape(shape)
    return weight


def plain_logits(tokens: Tensor, weights: dict[str, NDArray[np.float32]], file: GGUFFile, *, in_halves: bool) -> Tensor:
    """The model written out with torch's parts: (1, t) -> (1, t, vocab). RoPE turns dimension i with i + head_dim/2.

    `in_halves=False` leaves the rows of q and k in the file's order, in which those two dimensions are neighbours.
    """
    c = model().config

    def weight(name: str) -> Tensor:
        name = f"{name}.weight"
        return torch.from_numpy(weights[name] if name in weights else file.tensor(name))

    def heads(y: Tensor, rows: Tensor, n: int) -> Tensor:
        if in_halves:
            rows = rows.view(n, -1, 2, rows.shape[1]).transpose(1, 2).flatten(0, 2)
        return _turned(_split(y @ rows.mT, n), c.theta)

    table = weight("token_embd")
    x = table[tokens]
    for i in range(c.n_layers):
        y = functional.rms_norm(x, (c.d_model,), weight(f"blk.{i}.attn_norm"), c.eps)
        q, k = (heads(y, weight(f"blk.{i}.attn_{p}"), n) for p, n in (("q", c.n_heads), ("k", c.n_kv_heads)))
        v = _split(y @ weight(f"blk.{i}.attn_v").mT, c.n_kv_heads)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + out.transpose(1, 2).flatten(-2) @ weight(f"blk.{i}.attn_output").mT
        y = functional.rms_norm(x, (c.d_model,), weight(f"blk.{i}.ffn_norm"), c.eps)
        gate, up = (y @ weight(f"blk.{i}.ffn_{part}").mT for part in ("gate", "up"))
        x = x + (functional.silu(gate) * up) @ weight(f"blk.{i}.ffn_down").mT
    return functional.rms_norm(x, (c.d_model,), weight("output_norm"), c.eps) @ table.mT


def _split(y: Tensor, n: int) -> Tensor:
    """(b, t, n · d) -> (b, n, t, d)."""
    return y.view(*y.shape[:2], n, -1).transpose(1, 2)


def _turned(x: Tensor, theta: float) -> Tensor:
    """RoPE in halves on (b, h, t, d), as complex numbers: the first half is the real part, the second the imaginary."""
    half = x.shape[-1] // 2
    speed = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speed
    turn = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    turned = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], dim=-1)
