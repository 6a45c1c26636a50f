"""Positions: what tells attention which token is where. Without them it sees a set.

    sinusoidal   added to the embeddings, fixed waves                 Vaswani et al. 2017, section 3.5
    learned      added to the embeddings, one trained row a position  GPT-2, BERT; ends with its table
    ALiBi        added to the scores, a penalty by distance           Press et al. 2022
    RoPE         turns q and k                                        `rope.py`

The functions serve NumPy and torch; `like` says of which library, device and dtype the result shall be.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.arrays import Array, device, namespace, working_dtype
from attnbook.reference.rope import check_position_dtype


def sinusoidal_positions(
    t: int | Array,
    d_model: int,
    *,
    theta: float = 10000.0,
    layout: Literal["interleaved", "half"] = "interleaved",
    like: Array | None = None,
) -> Array:
    """Waves of d_model / 2 speeds, sine and cosine of each: what the Transformer's paper adds to the embeddings.

        PE[pos, 2i] = sin(pos / theta^(2i / d_model))      PE[pos, 2i + 1] = cos(the same)

    -> (t, d_model) for positions 0 … t − 1, or (…, d_model) for an array t (…) of the positions themselves, of any
    size and sign. Waves never end: there is a row for every position, trained on or not. `layout="interleaved"` is the
    paper's formula; `"half"` puts all sines before all cosines, the order of the paper's own code (tensor2tensor).

    Calculated in float64, then rounded to the dtype of `like`; a float64 NumPy array where nothing is given.
    Vaswani et al. 2017, section 3.5. Raises ShapeError for an odd d_model, ValueError for options,
    DTypeError for half-precision positions.
    """
    if d_model % 2 or d_model < 0:
        raise ShapeError(f"d_model is {d_model} (axis d): expected an even number, a sine and a cosine of each speed")
    if layout not in ("interleaved", "half"):
        raise ValueError(f"layout is {layout!r}: expected 'interleaved' or 'half'")
    if not 0 < theta < math.inf:
        raise ValueError(f"theta is {theta!r}: expected a finite number above 0")
    xp, where, dtype = _place(t if like is None and hasattr(t, "shape") else like, like)
    if isinstance(t, Integral):
        if int(t) < 0:
            raise ShapeError(f"t is {t}: expected at least 0 positions")
        position = xp.arange(int(t), device=where)
    else:
        position = xp.asarray(t, device=where)
        check_position_dtype(position)
    speed = [theta ** (-2 * i / d_model) for i in range(d_model // 2)]
    angle = xp.astype(position, xp.float64)[..., None] * xp.asarray(speed, dtype=xp.float64, device=where)
    wave = (xp.sin(angle), xp.cos(angle))  # (…, d_model / 2) each
    shape = (*position.shape, d_model)
    wave = xp.concat(wave, axis=-1) if layout == "half" else xp.reshape(xp.stack(wave, axis=-1), shape)
    return xp.astype(wave, dtype)


class LearnedPositions(nn.Module):
    """A table with one trained row for each position, added to the embeddings; it ends at the trained length.

    `weight` (max_positions, d_model), at first normal with standard deviation 0.02, as BERT's. Gehring et al. 2017;
    Devlin et al. 2019.
    """

    def __init__(self, max_positions: int, d_model: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if max_positions < 1 or d_model < 1:
            raise ShapeError(f"the table is {max_positions} × {d_model}: expected at least 1 position and 1 component")
        self.weight = nn.Parameter(torch.empty(max_positions, d_model, device=device, dtype=dtype))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, positions: int | Tensor | Any) -> Tensor:
        """The rows of the positions (…) -> (…, d_model); a number t means positions 0 … t − 1. Lists will do, too.

        Raises ShapeError for a position outside the table, negative ones included, DTypeError for fractions. Inside
        torch.compile and torch.export there are no values to check: there torch's own error says less.
        """
        size = self.weight.shape[0]
        if not isinstance(positions, Tensor | Integral):
            try:
                positions = torch.as_tensor(positions, device=self.weight.device)
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(f"positions is {positions!r}: expected whole numbers, or how many") from error
        if not isinstance(positions, Tensor):
            positions = int(positions)
            if not 0 <= positions <= size:
                raise ShapeError(
                    f"{positions} positions (axis t) are more than the learned table has: {size} (0 to {size - 1})"
                    if positions > 0
                    else f"{positions} positions (axis t): expected 0 to {size}, the length of the learned table"
                )
            return self.weight[:positions]
        if positions.dtype == torch.bool or positions.is_floating_point() or positions.is_complex():
            raise DTypeError(f"positions has dtype {positions.dtype}: expected whole numbers")
        if positions.numel() and not torch.compiler.is_compiling():
            for position in (int(positions.max()), int(positions.min())):
                if not 0 <= position < size:
                    raise ShapeError(
                        f"position {position} is outside the learned table of {size} positions (0 to {size - 1})"
                    )
        return self.weight[positions.long()]

    def extra_repr(self) -> str:
        """The size of the table."""
        return "{}, {}".format(*self.weight.shape)


def alibi_slopes(n_heads: int, *, like: Array | None = None) -> Array:
    """ALiBi's slope of each head: how much a score loses for each position between query and key.

    A falling geometric series from 2^(−8/n) to 2^−8 when n_heads = n is a power of two:

        n_heads = 8        1/2  1/4  1/8  1/16  1/32  1/64  1/128  1/256

    For other n, first the series of the power of two below, then every other slope of the series of the power of two
    above, as in the paper's code: 3 heads have 1/16, 1/256, 1/4. -> (n_heads,), float64 NumPy, or in the library of
    `like` (float32 for half precision: a slope is no rounded thing).

    Press, Smith and Lewis 2022, "Train short, test long", section 3; `get_slopes` in fairseq/models/transformer.py of
    github.com/ofirpress/attention_with_linear_biases. Raises ValueError for n_heads below 1.
    """
    if isinstance(n_heads, bool) or not isinstance(n_heads, Integral):
        raise ValueError(f"n_heads is {n_heads!r}: expected a whole number")
    if n_heads < 1:
        raise ValueError(f"n_heads is {n_heads}: expected at least 1")
    n_heads = int(n_heads)
    below = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    slopes += [2 ** (-4 * i / below) for i in range(1, 2 * (n_heads - below), 2)]
    xp, where, _ = _place(like, like)
    return xp.asarray(slopes, dtype=xp.float64 if like is None else working_dtype("like", like), device=where)


def alibi_bias(
    slopes: Array, t_q: int, t_kv: int | None = None, *, convention: Literal["distance", "position"] = "distance"
) -> Array:
    """What ALiBi adds to the scores, in either of the two ways that give the same softmax under a causal mask.

        "distance"    −m · |i + t_kv − t_q − j|            "position"    m · j
                  k0   k1   k2                                       k0   k1   k2
            q0     0  −m  −2m                                  q0     0    m   2m
            q1    −m    0   −m                                 q1     0    m   2m
            q2   −2m   −m    0                                 q2     0    m   2m

    Left of the diagonal, each row of the one is the other plus a constant, which softmax does not see. To its right
    they differ: without a causal mask "position" favours the most distant future. lse differs by that constant, too.
    "distance" is the paper's figure and what `attention(alibi_slopes=…)` adds; "position" needs no query position,
    and is what the paper's code and BLOOM add.

    slopes (h,) or (b, h) -> (h, t_q, t_kv) or (b, h, t_q, t_kv), with t_q 1 for "position"; t_kv defaults to t_q.
    Raises ShapeError for other axes, ValueError for an unknown convention.
    """
    if len(slopes.shape) not in (1, 2):
        raise ShapeError(f"slopes has {len(slopes.shape)} axes {tuple(slopes.shape)}: expected (h,) or (b, h)")
    xp, where, _ = _place(slopes, slopes)
    working = working_dtype("slopes", slopes)
    t_kv = t_q if t_kv is None else t_kv
    i = xp.arange(t_q, device=where)[:, None] + (t_kv - t_q)  # the position of query i, counted as the keys are
    j = xp.arange(t_kv, device=where)[None, :]
    if convention == "distance":
        per_slope = -xp.abs(i - j)
    elif convention == "position":
        per_slope = j
    else:
        raise ValueError(f"convention is {convention!r}: expected 'distance' or 'position'")
    return xp.astype(slopes, working)[..., None, None] * xp.astype(per_slope, working)


def positions_from_mask(mask: Array) -> Array:
    """The position of each token in its own sequence, from the mask that says which are tokens.

        mask   . . 1 1 1   ->   0 0 0 1 2
               1 1 1 1 .        0 1 2 3 3

    mask (b, t), or (b, 1, 1, t) as `padding_mask` gives it; booleans, or 0 and 1 -> (b, t) whole numbers. With these, a
    row padded at the left is what it is alone. Filling has the number of the token before it, or 0: a position that any
    table has, and no token looks there. Raises ShapeError for other axes, DTypeError for fractions.
    """
    xp = namespace(mask)
    if mask.dtype != xp.bool and not xp.isdtype(mask.dtype, "integral"):
        raise DTypeError(f"mask has dtype {mask.dtype}: expected booleans (True = a token), or 0 and 1")
    shape = tuple(int(size) for size in mask.shape)
    if len(shape) == 4 and shape[1:3] == (1, 1):
        mask = mask[:, 0, 0, :]
    elif len(shape) != 2:
        raise ShapeError(f"mask has {len(shape)} axes {shape}: expected (b, t) or (b, 1, 1, t)")
    count = xp.cumulative_sum(xp.astype(mask != 0, xp.int64), axis=1)
    return xp.clip(count - 1, 0, None)


def _place(source: Array | None, like: Array | None) -> tuple[Any, Any, Any]:
    """The library and device of `source` (NumPy for None), and the dtype of `like` (float64 for None)."""
    if source is None:
        import array_api_compat.numpy as numpy_xp

        return numpy_xp, "cpu", numpy_xp.float64  # type: ignore[attr-defined]  # the stub leaves it out
    xp = namespace(source)
    return xp, device(source), xp.float64 if like is None else like.dtype
