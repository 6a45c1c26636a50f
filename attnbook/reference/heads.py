"""Multi-head attention as a layer: four linear maps around `attention`.

    x (b, t, d_model) ── q_proj ─▶ q (b, n_heads,    t, head_dim)
                      ── k_proj ─▶ k (b, n_kv_heads, t, head_dim)     [q_norm, k_norm]  [rope]
                      ── v_proj ─▶ v (b, n_kv_heads, t, d_v)
    attention(q, k, v) (b, n_heads, t, d_v) ── o_proj ─▶ y (b, t, d_model)

The layer owns the weights and the order of steps; what attention is, it leaves to `attend`, an attribute of the class
that may be replaced by any other implementation. Vaswani et al. 2017, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.errors import ShapeError
from attnbook.reference.arrays import Array, namespace
from attnbook.reference.attention import attention
from attnbook.reference.kv_cache import attend as attend_cache
from attnbook.reference.kv_cache.attend import no_cache
from attnbook.reference.norms import RMSNorm
from attnbook.reference.positions import alibi_slopes
from attnbook.reference.rope import rope as plain_rope
from attnbook.shapes import AttentionSizes, check_axes, check_options


def split_heads(x: Array, n_heads: int) -> Array:
    """Cut the components into heads: (b, t, n_heads · d) -> (b, n_heads, t, d); head 0 has the first d components.

    NumPy or torch. Raises ShapeError where n_heads doesn't divide the components.
    """
    check_axes("x", x, "b t d")
    b, t, width = x.shape  # as they are: under torch.export t is a symbol
    if n_heads < 1 or width % n_heads:
        raise ShapeError(f"x has {width} components (axis d): expected a multiple of n_heads {n_heads}")
    xp = namespace(x)
    return xp.permute_dims(xp.reshape(x, (b, t, n_heads, width // n_heads)), (0, 2, 1, 3))


def merge_heads(x: Array) -> Array:
    """Put the heads side by side again: (b, n_heads, t, d) -> (b, t, n_heads · d). Undoes `split_heads`.

    Raises ShapeError for another number of axes.
    """
    check_axes("x", x, "b h t d")
    b, n_heads, t, d = x.shape
    xp = namespace(x)
    return xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (b, t, n_heads * d))


def check_tokens(x: Tensor, d_model: int) -> None:
    """Raises ShapeError unless x is (b, t, d_model)."""
    check_axes("x", x, "b t d")
    if x.shape[2] != d_model:
        raise ShapeError(f"x has {x.shape[2]} components (axis d): expected d_model {d_model}")


def next_positions(cache: Any, t: int) -> Tensor:
    """The positions of the next t tokens of each sequence: on from the `lengths` (b,) that the cache has had.

    -> (b, t) whole numbers, or (t,) from 0 before the first append, when there is no b.
    """
    lengths: Tensor = cache.lengths
    following = torch.arange(t, device=lengths.device)
    return lengths[:, None] + following if len(lengths) else following


class MultiHeadAttention(nn.Module):
    """Self-attention, or cross-attention where a call brings a `context`; every option of `attention`.

    - `n_heads` query heads of `head_dim` components (d_model / n_heads where not given); `n_kv_heads` key and value
      heads (n_heads; fewer is grouped, 1 multi-query attention); values of `d_v` components (head_dim).
    - `d_context`: components of the context's tokens (d_model). `bias`: of all four linear maps.
    - `qk_norm`: an RMSNorm over each head's query and key, before RoPE (Henry et al. 2020; Qwen3).
    - `rope`: True, or a function (x, positions) -> x such as `functools.partial(rope, theta=5e5)`.
    - `is_causal`, `window`, `softcap`, `scale`: as in `attention`.
    - `alibi`: ALiBi with the paper's slopes. `sinks`: one trained logit a head, at first 0 (gpt-oss).

    There is no dropout. Weights start as torch's Linear does. Raises ShapeError where heads don't divide, ValueError
    for options out of their range.
    """

    attend: Callable[..., Any] = staticmethod(attention)
    """The attention that is called: (q, k, v, *, mask and options) -> out."""

    attend_cached: Callable[..., Any] = staticmethod(attend_cache)
    """What is called with a cache: (q, cache, *, attention, mask and options) -> out."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        *,
        d_v: int | None = None,
        d_context: int | None = None,
        bias: bool = False,
        qk_norm: bool = False,
        rope: bool | Callable[[Tensor, Tensor | None], Tensor] = False,
        is_causal: bool = False,
        window: int | None = None,
        softcap: float | None = None,
        alibi: bool = False,
        sinks: bool = False,
        scale: float | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_whole(d_model=d_model, n_heads=n_heads)
        if not isinstance(rope, bool) and not callable(rope):
            raise ValueError(f"rope is {rope!r}: expected True, False, or a function of x and positions")
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_heads if n_kv_heads is None else n_kv_heads
        self.head_dim = _head_dim(d_model, n_heads, self.n_kv_heads) if head_dim is None else head_dim
        self.d_v = self.head_dim if d_v is None else d_v
        self.d_context = d_model if d_context is None else d_context
        self.rope = plain_rope if rope is True else rope or None
        self.is_causal, self.window, self.softcap, self.scale = is_causal, window, softcap, scale
        self.alibi = alibi
        _check_heads(self.n_heads, self.n_kv_heads)
        sizes = AttentionSizes(1, self.n_heads, self.n_kv_heads, 1, 1, self.head_dim, self.d_v)
        check_options(sizes, is_causal=is_causal, window=window, softcap=softcap, scale=scale)

        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(d_model, self.n_heads * self.head_dim, bias=bias, **place)
        self.k_proj = nn.Linear(self.d_context, self.n_kv_heads * self.head_dim, bias=bias, **place)
        self.v_proj = nn.Linear(self.d_context, self.n_kv_heads * self.d_v, bias=bias, **place)
        self.o_proj = nn.Linear(self.n_heads * self.d_v, d_model, bias=bias, **place)
        self.q_norm = RMSNorm(self.head_dim, **place) if qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, **place) if qk_norm else None
        self.register_parameter("sinks", nn.Parameter(torch.zeros(self.n_heads, **place)) if sinks else None)

    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend: x (b, t, d_model) -> y (b, t, d_model); with `return_weights` also weights (b, n_heads, t_q, t_kv).

        - `context` (b, t_kv, d_context): keys and values come from it (cross-attention), queries from x.
        - `mask`: as in `attention`, True = may attend; it broadcasts to (b, n_heads, t_q, t_kv).
        - `positions` (t,) or (b, t): what RoPE turns by; where not given 0 … t − 1, or on from the cache's lengths.
        - `cache`: keys and values of earlier calls, to which this call's are appended (`reference.kv_cache`).
        - `return_weights`: not with a cache. A query that may see no key has weights 0; with sinks, rows sum to less
          than 1.

        Raises ShapeError for other axes, ValueError for arguments that don't go together, TypeError for no cache.
        """
        self._check_call(x, context, cache, return_weights)
        if positions is None and cache is not None:
            positions = next_positions(cache, x.shape[1])
        q, k, v = self.project(x, context, positions)
        options: dict[str, Any] = {"mask": mask, **self.options(q)}
        if cache is not None:
            cache.append(k, v)
            out = self.attend_cached(q, cache, attention=self.attend, **options)
        else:
            out = self.attend(q, k, v, **options)
        y = self.o_proj(merge_heads(out))
        return (y, self._weights(q, k, options)) if return_weights else y

    def project(
        self, x: Tensor, context: Tensor | None = None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The q, k and v that meet in attention: projected, cut into heads, normed and turned."""
        source = x if context is None else context
        q = split_heads(self.q_proj(x), self.n_heads)  # (b, n_heads, t_q, head_dim)
        k = split_heads(self.k_proj(source), self.n_kv_heads)  # (b, n_kv_heads, t_kv, head_dim)
        v = split_heads(self.v_proj(source), self.n_kv_heads)  # (b, n_kv_heads, t_kv, d_v)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope is not None:
            q, k = self.rope(q, positions), self.rope(k, positions)
        return q, k, v

    def options(self, q: Tensor) -> dict[str, Any]:
        """What `attention` is called with beside q, k, v and the mask."""
        return {
            "is_causal": self.is_causal,
            "window": self.window,
            "softcap": self.softcap,
            "scale": self.scale,
            "sinks": self.sinks,
            "alibi_slopes": alibi_slopes(self.n_heads, like=q) if self.alibi else None,
        }

    def _weights(self, q: Tensor, k: Tensor, options: dict[str, Any]) -> Tensor:
        """The weights themselves: what attention averages to where the value of key j is the j-th unit vector."""
        t_kv = k.shape[2]
        unit = torch.eye(t_kv, dtype=q.dtype, device=q.device).expand(k.shape[0], k.shape[1], t_kv, t_kv)
        weights: Tensor = self.attend(q, k, unit, **options)
        return weights

    def _check_call(self, x: Tensor, context: Tensor | None, cache: Any, return_weights: bool) -> None:
        check_tokens(x, self.d_model)
        if cache is not None and not (hasattr(cache, "append") and hasattr(cache, "lengths")):
            raise no_cache(cache)
        if cache is not None and return_weights:
            raise ValueError("return_weights is True and there is a cache: expected one of them")
        if context is None:
            if self.d_context != self.d_model:
                raise ValueError(f"context is missing: the keys come from tokens of {self.d_context} components")
            return
        check_axes("context", context, "b t d")
        if context.shape[2] != self.d_context:
            raise ShapeError(f"context has {context.shape[2]} components (axis d): expected {self.d_context}")
        if cache is not None:
            raise ValueError("context and cache are both given: a cache holds the keys of x's own past")
        if self.rope is not None:
            raise ValueError("context is given to a layer with rope: two sequences have no common positions")

    def extra_repr(self) -> str:
        """What differs from plain multi-head attention."""
        shown = [f"n_heads={self.n_heads}", f"n_kv_heads={self.n_kv_heads}", f"head_dim={self.head_dim}"]
        if self.d_v != self.head_dim:
            shown.append(f"d_v={self.d_v}")
        for name in ("is_causal", "window", "softcap", "alibi", "scale"):
            value = getattr(self, name)
            if value is not None and value is not False:
                shown.append(f"{name}={value}")
        if self.rope is not None:
            settings = self.rope.keywords if isinstance(self.rope, partial) else {}
            shown.append(f"rope={settings or True}")
        shown += ["qk_norm=True"] * (self.q_norm is not None) + ["sinks=True"] * (self.sinks is not None)
        return ", ".join(shown)


def _head_dim(d_model: int, n_heads: int, n_kv_heads: int) -> int:
    _check_heads(n_heads, n_kv_heads)
    if d_model % n_heads:
        raise ShapeError(f"d_model is {d_model} and n_heads {n_heads}: expected a multiple of n_heads, or a head_dim")
    return d_model // n_heads


def _check_whole(**sizes: object) -> None:
    for name, x in sizes.items():
        if isinstance(x, bool) or not isinstance(x, Integral):
            raise ValueError(f"{name} is {x!r}: expected a whole number")


def _check_heads(n_heads: int, n_kv_heads: int) -> None:
    _check_whole(n_heads=n_heads, n_kv_heads=n_kv_heads)
    if n_heads < 1 or n_kv_heads < 1:
        raise ShapeError(f"n_heads is {n_heads} and n_kv_heads {n_kv_heads}: expected at least 1 of each")
    if n_heads % n_kv_heads:
        raise ShapeError(f"n_heads is {n_heads} and n_kv_heads {n_kv_heads}: expected a multiple of n_kv_heads")
