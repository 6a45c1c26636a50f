"""What every attention kernel does with a tile: read it, score it, hide what may not be seen, round what is stored.

What stands out:

- Scores are in base 2: they carry a factor log₂ e, so that a weight is one exp2, which is what the hardware has. The
  host multiplies `scale` and `softcap` by it (see `attnbook.kernels.flash.call`), and here slopes and masks are.
- Addresses are int64: a row number times a stride passes 2³¹ in tensors that fit on one GPU.
- Queries and keys are given by where they stand among the keys, as tiles that broadcast: `query_at` (TILE_Q, 1) and
  `key_at` (1, TILE_K) for scores (TILE_Q, TILE_K); turned round, the same functions serve the transposed scores of a
  backward pass, and `query_at` may repeat a position where several heads share the rows of one tile.
"""

# Functions of Triton have no types to check: what a parameter holds is said beside it.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
"""log₂ e: a natural exponent times this is one of base 2."""

LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
"""ln 2: turns a log-sum-exp of base 2 into a natural one."""

LOWEST: tl.constexpr = tl.constexpr(-2.3e38)
"""About the lowest float32 that is finite also in base 2."""

NO_MASK: tl.constexpr = tl.constexpr(0)
BOOLEANS: tl.constexpr = tl.constexpr(1)
"""A mask of bytes, 0 = hidden."""
FLOATS: tl.constexpr = tl.constexpr(2)
"""A mask of floats that are added."""


@triton.jit
def offset(index, stride):
    """How far from the first the element with this index lies: int64, since the product may pass 2³¹."""
    return index.to(tl.int64) * stride


@triton.jit
def load_tile(
    start,  # a pointer to row 0, component 0
    rows,  # (ROWS,) numbers of rows
    n_rows,  # rows from here on are not there: they are read as 0
    row_stride,
    component_stride,
    COMPONENTS: tl.constexpr,  # how many components a row has
    PADDED: tl.constexpr,  # the power of two to which they are filled with 0
    CHECKED: tl.constexpr,  # may some of the rows be not there?
    UPCAST: tl.constexpr,  # the interpreter calculates bfloat16 wrongly: read it as float32
):
    """Rows of a matrix as a tile (ROWS, PADDED)."""
    components = tl.arange(0, PADDED)
    offsets = rows[:, None].to(tl.int64) * row_stride + components[None, :].to(tl.int64) * component_stride
    if CHECKED or COMPONENTS != PADDED:
        inside = (rows[:, None] < n_rows) & (components[None, :] < COMPONENTS)
        tile = tl.load(start + offsets, mask=inside, other=0.0)
    else:
        tile = tl.load(start + offsets)
    if UPCAST:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def load_rows(
    start, rows, n_rows, row_stride, component_stride,  # by pointers, as in `load_tile`
    tiles, batch, head, first_row,  # or by a descriptor of (b, h, t, d)
    COMPONENTS: tl.constexpr, PADDED: tl.constexpr, CHECKED: tl.constexpr, HAS_DESCRIPTORS: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """Rows that follow one another, as a tile (ROWS, PADDED). What is not there is 0 by pointers.

    By a descriptor rows beyond the end of the tensor are 0, those beyond n_rows the next sequence's, where one is.
    """
    if HAS_DESCRIPTORS:
        tile = tl.reshape(tiles.load([batch, head, first_row, 0]), (rows.shape[0], PADDED))
        tile = tile.to(tl.float32) if UPCAST else tile
    else:
        tile = load_tile(start, rows, n_rows, row_stride, component_stride, COMPONENTS, PADDED, CHECKED, UPCAST)
    return tile


@triton.jit
def store_tile(
    start,
    rows,
    n_rows,
    row_stride,
    component_stride,
    tile,  # (ROWS, PADDED), float32
    COMPONENTS: tl.constexpr,
    PADDED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Write the rows and components that are there, rounded to the dtype of the memory."""
    components = tl.arange(0, PADDED)
    offsets = rows[:, None].to(tl.int64) * row_stride + components[None, :].to(tl.int64) * component_stride
    inside = (rows[:, None] < n_rows) & (components[None, :] < COMPONENTS)
    tl.store(start + offsets, rounded(tile, start.dtype.element_ty, UPCAST), mask=inside)


@triton.jit
def rounded(x, DTYPE: tl.constexpr, UPCAST: tl.constexpr):
    """float32 to a shorter dtype, to nearest. The interpreter cuts bfloat16 off: there, rounding is done by hand."""
    if UPCAST:
        bits = x.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000  # ties to even
        x = tl.where(x == x, nearest.to(tl.float32, bitcast=True), x)
    return x.to(DTYPE)


@triton.jit
def tanh(x):
    """The hyperbolic tangent, to a few roundings of float32, for x of any size.

    Near 0 by its series in x², since (1 − e⁻²ˣ) / (1 + e⁻²ˣ) loses digits there; elsewhere by that formula of |x|, in
    which nothing can overflow. The series' coefficients are fitted for |x| < 0.6, to 3e-9 of the result.
    """
    square = tl.minimum(x * x, 0.36)
    series = -0.0059058624 * square + 0.02080538
    series = series * square - 0.05378668
    series = series * square + 0.13331959
    series = series * square - 0.333333
    near = x * (1.0 + square * series)
    shrunk = tl.exp2(tl.abs(x) * (-2.0 * LOG2E))
    far = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(tl.abs(x) < 0.6, near, tl.where(x < 0, -far, far))


@triton.jit
def in_sight(
    query_at,  # (TILE_Q, 1): at which key each query stands, i + t_kv − t_q
    key_at,  # (1, TILE_K)
    t_kv,
    window,
    IS_CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
):
    """May the query look at the key, as far as length, causality and window go? Booleans, (1, TILE_K) if not causal."""
    seen = key_at < t_kv
    if IS_CAUSAL:
        seen = seen & (key_at <= query_at)
    if HAS_WINDOW:
        seen = seen & (key_at > query_at - window)
    return seen


@triton.jit
def load_mask(
    pointers,  # (TILE_Q, TILE_K): where the mask's numbers lie
    inside,  # which of them are there
    hidden,  # floats up to this hide, as −inf does
    MASK_KIND: tl.constexpr,  # BOOLEANS or FLOATS
):
    """The mask's tile: which pairs it lets through, and what it adds to their scores (base 2)."""
    if MASK_KIND == BOOLEANS:
        seen = tl.load(pointers, mask=inside, other=0) != 0
        added = tl.zeros_like(seen).to(tl.float32)
    else:
        mask = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
        seen = inside & ~(mask <= hidden)  # a NaN hides nothing
        added = tl.where(mask < LOWEST, LOWEST, mask) * LOG2E  # what is that low and shown stays a finite score
    return seen, added


@triton.jit
def score_tile(
    product,  # q kᵀ (TILE_Q, TILE_K), float32
    query_at,  # (TILE_Q, 1)
    key_at,  # (1, TILE_K)
    scale,  # log₂ e times the scale; with softcap: the scale divided by the cap
    softcap,  # log₂ e times the cap
    slope,  # of this head, natural: a number, or (TILE_Q, 1)
    added,  # of a mask of floats (TILE_Q, TILE_K), base 2
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    HAS_ADDED: tl.constexpr,
):
    """The scores of a tile in base 2, as if all were seen, and the tangent of the softcap (for a backward pass).

    The order is the package's: scale, softcap, ALiBi, mask. `hide` comes after.
    """
    score = product * scale
    tangent = score
    if HAS_SOFTCAP:
        tangent = tanh(score)
        score = tangent * softcap
    if HAS_ALIBI:
        score = score - (slope * LOG2E) * tl.abs(query_at - key_at).to(tl.float32)
    if HAS_ADDED:
        score = score + added
    return score, tangent


@triton.jit
def hide(score, seen):
    """−inf in place of each score that may not be seen, whatever it is: also of a NaN."""
    return tl.where(seen, score, float("-inf"))
