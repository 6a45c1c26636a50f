"""The k largest scores of each token in one launch: what in plain torch is k passes over all of them.

What stands out: a score and its expert's number are packed into one int64, so that a maximum is the choice with its
ties decided. Above, the score as an integer that is ordered as floats are; below, the number counted from the end:

    63 ─────────────── 32 31 ─────────────────── 0        larger score first; of equal ones the lower expert;
    order of the score    EXPERTS − 1 − number            no two are equal
"""

# Bodies of kernels are Triton, which has no types to check.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnbook.kernels import outputs
from attnbook.kernels.moe import configs
from attnbook.kernels.variant import ALWAYS


@triton.jit
def ordered(score):
    """int32 in the order of float32 scores: −inf is the lowest finite number, −0 is 0, NaN above all (as in argmax)."""
    lowest = -3.4028234663852886e38
    score = tl.where(score == 0.0, 0.0, tl.where(score < lowest, lowest, score))
    bits = score.to(tl.int32, bitcast=True)
    key = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)  # of negative numbers the smaller bits are the larger ones
    return tl.where(score == score, key, 0x7FFFFFFF)


@triton.jit
def choose_kernel(
    wanted, experts, t, n_experts, top_k, TILE_TOKENS: tl.constexpr, EXPERTS: tl.constexpr
):  # fmt: skip
    """Fills experts (t, k) int64: the k largest columns of wanted (t, e), the largest first."""
    token = (tl.program_id(0) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)).to(tl.int64)
    number = tl.arange(0, EXPERTS)
    there = (token < t)[:, None] & (number < n_experts)[None, :]
    score = tl.load(wanted + token[:, None] * n_experts + number[None, :], mask=there, other=0.0)
    packed = (ordered(score).to(tl.int64) << 32) | (EXPERTS - 1 - number).to(tl.int64)[None, :]
    taken = -9223372036854775808
    packed = tl.where(there, packed, taken)  # (TILE_TOKENS, EXPERTS)
    for slot in range(top_k):
        best = tl.max(packed, 1)  # (TILE_TOKENS,)
        tl.store(experts + token * top_k + slot, EXPERTS - 1 - (best & 0xFFFFFFFF), mask=token < t)
        packed = tl.where(packed == best[:, None], taken, packed)


def largest(wanted: Tensor, top_k: int) -> Tensor:
    """The columns of the k largest of each row, largest first, of equal ones the lower first; (t, e) -> (t, k)."""
    t, n_experts = wanted.shape
    experts = outputs.empty((t, top_k), wanted, torch.int64)
    if experts.numel():
        tiles = configs.choose(n_experts)
        choose_kernel[(triton.cdiv(t, tiles.rows),)](
            wanted.contiguous(), experts, t, n_experts, top_k,
            TILE_TOKENS=tiles.rows, EXPERTS=tiles.columns,
            num_warps=tiles.num_warps, num_stages=tiles.num_stages, **ALWAYS,
        )  # fmt: skip
    return experts
