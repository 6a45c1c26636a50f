"""Floating-point operations of attention, counted exactly: a multiplication and an addition are two.

Only pairs of a query and a key that may see each other are counted. Softmax, masks, scaling and RoPE are left out:
they are a few operations a pair, against 2 · (head_dim + d_v) for the two products. Sharing keys and values among
heads (GQA) changes no product of a query with a key, so n_kv_heads enters the projections alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral


@dataclass(frozen=True)
class AttentionFlops:
    """The operations of one attention layer; every count is for all heads and all sequences.

    `pairs`: pairs of a query and a key that are computed, all heads and sequences. `scores` = q kᵀ, `values` =
    weights · v, `projections` = the four linear maps of x (0 if no d_model was given). `backward` = the products of
    attention again for the gradients, `projections_backward` = those of the linear maps.
    """

    pairs: int
    scores: int
    values: int
    projections: int
    backward: int
    projections_backward: int

    @property
    def forward(self) -> int:
        """Scores, values and projections."""
        return self.scores + self.values + self.projections

    @property
    def total(self) -> int:
        """Forward and backward together."""
        return self.forward + self.backward + self.projections_backward


def attention_flops(
    t_q: int,
    t_kv: int | None = None,
    *,
    n_heads: int,
    head_dim: int,
    n_kv_heads: int | None = None,
    d_v: int | None = None,
    d_model: int | None = None,
    b: int = 1,
    is_causal: bool = False,
    window: int | None = None,
    recompute: bool = True,
) -> AttentionFlops:
    """The floating-point operations of one layer of attention, forward and backward apart.

    q (b, n_heads, t_q, head_dim), k (b, n_kv_heads, t_kv, head_dim), v (b, n_kv_heads, t_kv, d_v); t_kv is t_q where
    it is not given, n_kv_heads is n_heads, d_v is head_dim. With d_model, also the projections of q and the output (t_q
    tokens) and of k and v (t_kv tokens), without biases.

    Forward, each pair that is seen costs 2 · head_dim for its score and 2 · d_v for its value. Backward, with the
    scores computed again instead of kept (FlashAttention), five products stand against two:

        forward     S = Q Kᵀ      O = P V
        backward    S = Q Kᵀ (again)      dV = Pᵀ dO      dP = dO Vᵀ      dQ = dS K      dK = dSᵀ Q

    so backward is 2.5 times forward where d_v = head_dim: (3 · head_dim + 2 · d_v) / (head_dim + d_v) in general. With
    `recompute=False` (weights kept, t_q · t_kv numbers a head) there are four, twice the forward. A linear map costs
    twice its forward: one product for its input, one for its weights.

    Dao 2023 (arXiv:2307.08691), section 4.1, counts alike, but takes exactly half of all pairs for causal. Raises
    ValueError for sizes that are no whole numbers of at least 0, a window below 1 or without `is_causal`, and n_heads
    that n_kv_heads does not divide.
    """
    t_kv = t_q if t_kv is None else t_kv
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    d_v = head_dim if d_v is None else d_v
    sizes = {"b": b, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": head_dim, "d_v": d_v}
    check_sizes(**sizes, d_model=0 if d_model is None else d_model)
    if n_heads % n_kv_heads if n_kv_heads else n_heads:
        raise ValueError(f"n_heads: expected a multiple of n_kv_heads {n_kv_heads}, got {n_heads}")
    pairs = b * n_heads * count_pairs(t_q, t_kv, is_causal=is_causal, window=window)
    projections = 0
    if d_model is not None:
        per_query = n_heads * (head_dim + d_v)  # q, and the output back to d_model
        per_key = n_kv_heads * (head_dim + d_v)
        projections = 2 * b * d_model * (t_q * per_query + t_kv * per_key)
    products = (3 if recompute else 2) * head_dim + 2 * d_v
    return AttentionFlops(
        pairs=pairs,
        scores=2 * pairs * head_dim,
        values=2 * pairs * d_v,
        projections=projections,
        backward=2 * pairs * products,
        projections_backward=2 * projections,
    )


def count_pairs(t_q: int, t_kv: int, *, is_causal: bool = False, window: int | None = None) -> int:
    """How many pairs (query i, key j) see each other: the number of True in the mask, without building it.

    Causal is bottom-right: j ≤ i + t_kv − t_q; a window w also asks j > i + t_kv − t_q − w. Raises ValueError for
    lengths below 0 and for a window below 1 or without `is_causal`.
    """
    check_sizes(t_q=t_q, t_kv=t_kv)
    check_window(is_causal, window)
    if not is_causal:
        return t_q * t_kv
    ends = t_kv - t_q + 1  # the first query sees keys below this
    seen = _clamped_sum(ends, t_q, t_kv)
    return seen if window is None else seen - _clamped_sum(ends - window, t_q, t_kv)


def _clamped_sum(first: int, count: int, most: int) -> int:
    """The sum of first, first + 1, … (count of them), each raised to 0 and lowered to `most`."""

    def up_to(n: int) -> int:
        """The sum for all the numbers below n that are not below 0."""
        inside = max(min(n, most), 0)
        return inside * (inside - 1) // 2 + most * max(n - most, 0)

    return up_to(first + count) - up_to(first) if count else 0


def check_sizes(**sizes: int) -> None:
    """Raises ValueError for the first size that is no whole number of at least 0, by its name."""
    for name, size in sizes.items():
        check_size(name, size)


def check_size(name: str, size: object, low: int = 0) -> None:
    """Raises ValueError unless a size is a whole number of at least `low`: NumPy's too, but neither 1e3 nor True."""
    if isinstance(size, bool) or not isinstance(size, Integral):
        raise ValueError(f"{name}: expected a whole number of at least {low}, got {size!r}")
    if size < low:
        raise ValueError(f"{name}: expected at least {low}, got {size}")


def check_window(is_causal: bool, window: int | None) -> None:
    """Raises ValueError for a window that is no whole number of at least 1, or without `is_causal`."""
    if window is None:
        return
    check_size("window", window, 1)
    if not is_causal:
        raise ValueError(f"window: expected is_causal=True with it, got is_causal=False and window {window}")
