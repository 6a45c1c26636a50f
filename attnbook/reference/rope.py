"""RoPE: turn each pair of components of q and k by an angle that grows with the position.

A turn keeps the length of a vector, and the scalar product of two turned vectors depends on the difference of their
angles alone: score(q at i, k at j) is a function of i − j. Nothing is added to the embeddings, nothing is learned.
Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding", section 3.

Which components form a pair is a convention, and both are in use:

    layout="interleaved"   (0 1) (2 3) (4 5) (6 7)      the paper's; GPT-J, Meta's Llama code, GGUF files of Llama
    layout="half"          (0 4) (1 5) (2 6) (3 7)      GPT-NeoX, Hugging Face transformers

What stands out here: the angles are float64 whatever x is. Past position 2 048 float16 has steps of 2 radians and
bfloat16 of 16, and at 131 072 a float32 angle still spoils the third digit of the cosine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Literal, TypeAlias

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.arrays import Array, device, namespace, working_dtype
from attnbook.reference.rope_scaling import RopeScaling, plain_frequencies, scaling_from_config

Layout: TypeAlias = Literal["half", "interleaved"]
LAYOUTS = ("half", "interleaved")


def rope(
    x: Array,
    positions: Array | None = None,
    *,
    theta: float = 10000.0,
    layout: Layout = "half",
    scaling: RopeScaling | Mapping[str, Any] | None = None,
    rotary_dim: int | None = None,
) -> Array:
    """The vectors of x turned according to their positions; q and k each go through here before attention.

    x (b, h, t, d), or fewer axes as long as the last two are (t, d) -> the same shape and dtype.

    - `positions` (t,), or (b, t) for sequences that start elsewhere; 0 … t − 1 where not given. Whole numbers or
      fractions, negative ones too: only differences matter to the scores, and a turn can go either way.
    - `theta` sets the speeds, from 1 radian a position for the first pair down to about 1 / theta for the last.
    - `layout`: which components are pairs, `"half"` (0 and d / 2; Hugging Face transformers) or `"interleaved"`
      (0 and 1; Meta's Llama). q, k and their weights must agree; `attnbook.reference.permute_rope_rows` converts.
    - `scaling` slows the turns for longer contexts: an object of `attnbook.reference`, such as `YarnScaling`, or the
      entry `rope_scaling` (or `rope_parameters`) of a Hugging Face config, not the whole config.
    - `rotary_dim` turns only the first components and lets the others through; all d where not given.

    Calculated in float32 (float64 for float64 input) with cosines and sines from float64 angles. Differentiable in x.
    Raises ShapeError for an odd d or positions of another length, ValueError for options, DTypeError for integers in x
    or for half-precision positions, which hold no whole number above 2 048 (bfloat16: 256) for sure.
    """
    xp = namespace(x)
    working = working_dtype("x", x)
    if len(x.shape) < 2:
        raise ShapeError(f"x has {len(x.shape)} axes {tuple(x.shape)}: expected (b, h, t, d), or at least (t, d)")
    t, d = x.shape[-2:]  # as they are: under torch.export t is a symbol
    rotary_dim = _check_rotary_dim(rotary_dim, d)
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}: expected 'half' or 'interleaved'")
    positions = _check_positions(positions, x, t)
    cos, sin = rope_cos_sin(positions, rotary_dim, theta=theta, scaling=scaling, dtype=working)
    if len(positions.shape) == 2:
        cos, sin = cos[:, None, :, :], sin[:, None, :, :]  # (b, 1, t, rotary_dim / 2): the same for every head

    turned, kept = xp.astype(x[..., :rotary_dim], working), x[..., rotary_dim:]
    first, second = _split_pairs(turned, layout)  # (…, t, rotary_dim / 2) each
    turned = _join_pairs(first * cos - second * sin, first * sin + second * cos, layout)
    return xp.concat([xp.astype(turned, x.dtype), kept], axis=-1)


def rope_cos_sin(
    positions: Array,
    rotary_dim: int,
    *,
    theta: float = 10000.0,
    scaling: RopeScaling | Mapping[str, Any] | None = None,
    dtype: Any = None,
) -> tuple[Array, Array]:
    """Cosine and sine of every position's angles, (…, rotary_dim / 2) each: calculated in float64, then rounded once.

    positions (…) of any shape. `dtype` is float32 where not given. The rounding leaves an error below 1e-6 up to
    position 2²⁰ and beyond. A scaling's attention factor is multiplied in, as Hugging Face transformers does.
    Raises ValueError for a theta that is not a finite number above 0 or an unknown scaling.
    """
    xp = namespace(positions)
    if isinstance(theta, str) or not 0 < theta < math.inf:
        raise ValueError(f"theta is {theta!r}: expected a finite number above 0")
    if isinstance(scaling, Mapping):
        found = scaling_from_config(scaling)
        if scaling.get("rope_theta", theta) != theta:
            raise ValueError(f"scaling has rope_theta {scaling['rope_theta']} but theta is {theta}: they must be equal")
        scaling = found
    if scaling is not None and not hasattr(scaling, "frequencies"):
        raise TypeError(f"scaling is {scaling!r}: expected a RopeScaling, a mapping of Hugging Face's, or None")
    if scaling is None:
        frequencies, factor = plain_frequencies(theta, rotary_dim), 1.0
    else:
        length = (
            math.ceil(float(xp.max(positions))) + 1 if scaling.needs_length and math.prod(positions.shape) else None
        )
        frequencies, factor = scaling.frequencies(theta, rotary_dim, length), scaling.sharpening()
    speed = xp.asarray(frequencies, dtype=xp.float64, device=device(positions))  # (rotary_dim / 2,) radians a position
    angle = xp.astype(positions, xp.float64)[..., None] * speed  # (…, rotary_dim / 2)
    dtype = xp.float32 if dtype is None else dtype
    return xp.astype(xp.cos(angle) * factor, dtype), xp.astype(xp.sin(angle) * factor, dtype)


def permute_rope_rows(weight: Array, n_heads: int, *, to: Layout, rotary_dim: int | None = None) -> Array:
    """The rows of W_q or W_k reordered from one layout to the other, so that the scores stay what they were.

    weight (n_heads · head_dim, …), also a bias -> the same shape. For each head, with head_dim 8:

        to="half"          0 2 4 6 1 3 5 7      the interleaved pairs (0 1) (2 3) … come to lie half a head apart
        to="interleaved"   0 4 1 5 2 6 3 7      and back

    W_q with n_heads and W_k with n_kv_heads need it; W_v and W_o have no pairs. The reordering is the one that Hugging
    Face transformers' `convert_llama_weights_to_hf.py` does to Meta's weights.
    Raises ShapeError where the heads don't divide the rows, ValueError for an unknown layout.
    """
    if to not in LAYOUTS:
        raise ValueError(f"to is {to!r}: expected 'half' or 'interleaved'")
    xp = namespace(weight)
    rows = int(weight.shape[0])
    if n_heads < 1 or rows % n_heads:
        raise ShapeError(f"weight has {rows} rows (axis 0): expected a multiple of n_heads {n_heads}")
    head_dim = rows // n_heads
    rotary_dim = _check_rotary_dim(rotary_dim, head_dim)
    pairs = rotary_dim // 2
    if to == "half":
        order = [*range(0, rotary_dim, 2), *range(1, rotary_dim, 2)]
    else:
        order = [row for i in range(pairs) for row in (i, i + pairs)]
    order += range(rotary_dim, head_dim)
    index = [head * head_dim + row for head in range(n_heads) for row in order]
    return xp.take(weight, xp.asarray(index, dtype=xp.int64, device=device(weight)), axis=0)


def check_position_dtype(positions: Array) -> None:
    """Raises DTypeError for half precision, which holds few whole numbers, and for anything that is no number."""
    xp = namespace(positions)
    if not (xp.isdtype(positions.dtype, "integral") or positions.dtype in (xp.float32, xp.float64)):
        raise DTypeError(f"positions has dtype {positions.dtype}: expected whole numbers, or float32 or float64")


def _split_pairs(x: Array, layout: Layout) -> tuple[Array, Array]:
    """All first components of the pairs, all second ones."""
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if layout == "half" else (x[..., 0::2], x[..., 1::2])


def _join_pairs(first: Array, second: Array, layout: Layout) -> Array:
    xp = namespace(first)
    if layout == "half":
        return xp.concat([first, second], axis=-1)
    return xp.reshape(xp.stack([first, second], axis=-1), (*first.shape[:-1], 2 * first.shape[-1]))


def _check_rotary_dim(rotary_dim: int | None, d: int) -> int:
    if rotary_dim is None:
        if d % 2:
            raise ShapeError(f"x has head_dim {d} (axis d): expected an even number, RoPE turns pairs; or a rotary_dim")
        return d
    if not isinstance(rotary_dim, Integral) or rotary_dim % 2 or rotary_dim < 0:
        raise ValueError(f"rotary_dim is {rotary_dim}: expected an even number, RoPE turns pairs")
    if rotary_dim > d:
        raise ShapeError(f"rotary_dim is {rotary_dim} but x has head_dim {d} (axis d): expected at most {d}")
    return int(rotary_dim)


def _check_positions(positions: Array | None, x: Array, t: int) -> Array:
    """Positions as an array of x's library, checked against x."""
    xp = namespace(x)
    if positions is None:
        return xp.arange(t, device=device(x))
    positions = xp.asarray(positions, device=device(x))
    check_position_dtype(positions)
    shape = tuple(positions.shape)
    if shape == (t,):
        return positions
    if len(x.shape) == 4 and len(shape) == 2 and shape in ((1, t), (x.shape[0], t)):
        return positions
    expected = f"(t,) = ({t},)" + (f" or (b, t) = ({int(x.shape[0])}, {t})" if len(x.shape) == 4 else "")
    raise ShapeError(f"positions has shape {shape}: expected {expected}, as x has")
