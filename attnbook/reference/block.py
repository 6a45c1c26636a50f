"""A transformer block: attention, then a small network for each token, each around a residual and beside a norm.

    pre                                        post
    x = x + attention(norm1(x))                x = norm1(x + attention(x))
    x = x + mlp(norm2(x))                      x = norm2(x + mlp(x))

"post" is Vaswani et al. 2017 (section 3.1: LayerNorm(x + Sublayer(x))): the residual passes through every norm. "pre"
is what most models do today (GPT-2; Xiong et al. 2020): the residual is never normed on its way, gradients pass
straight through, and a model needs one more norm after its last block, which is not in here.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnbook.errors import ShapeError
from attnbook.reference.heads import MultiHeadAttention, check_tokens
from attnbook.reference.norms import BatchNorm, LayerNorm, RMSNorm

Activation: TypeAlias = Literal["gelu", "relu", "swiglu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": torch.relu, "swiglu": F.silu}
NORMS: dict[str, Callable[..., nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


class MLP(nn.Module):
    """The network that every token passes through alone: wider, an activation, back.

        gelu, relu     down(activation(up(x)))          d_ff = 4 · d_model where not given
        swiglu         down(silu(gate(x)) · up(x))      d_ff = 8 · d_model // 3: three matrices, as many weights

    Vaswani et al. 2017, section 3.3 (relu); Hendrycks and Gimpel 2016 (gelu, the exact form with erf); Shazeer 2020
    (swiglu). Raises ValueError for another activation, ShapeError for d_ff below 1.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        activation: Activation = "gelu",
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_known("activation", activation, ACTIVATIONS)
        if d_ff is None:
            d_ff = 8 * d_model // 3 if activation == "swiglu" else 4 * d_model
        if d_ff < 1:
            raise ShapeError(f"d_ff is {d_ff}: expected at least 1")
        self.activation = activation
        place: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(d_model, d_ff, **place) if activation == "swiglu" else None
        self.up_proj = nn.Linear(d_model, d_ff, **place)
        self.down_proj = nn.Linear(d_ff, d_model, **place)

    def forward(self, x: Tensor) -> Tensor:
        """Transform x (…, d_model) -> (…, d_model), each token by itself."""
        act = ACTIVATIONS[self.activation]
        wide = act(self.up_proj(x)) if self.gate_proj is None else act(self.gate_proj(x)) * self.up_proj(x)
        out: Tensor = self.down_proj(wide)
        return out


class TransformerBlock(nn.Module):
    """Attention and MLP with residuals and norms, in the order `norm` says.

    - `norm`: "pre", x + f(norm(x)), or "post", norm(x + f(x)).
    - `norm_type`: "layer", "rms", or "batch", which mixes tokens and is here for contrast.
    - `residual`: False leaves out both `x +`.
    - `d_ff`, `activation`: of the `MLP`. `bias`: of all its and the attention's linear maps. `eps`: of the norms.
    - everything else goes to `MultiHeadAttention`: `is_causal`, `n_kv_heads`, `rope`, `window` …

    Parameters: `norm1`, `attention`, `norm2`, `mlp`. There is no dropout. Raises ValueError for an unknown name,
    ShapeError where heads don't divide, TypeError for an option that attention hasn't.
    """

    attend: Callable[..., Any] = staticmethod(MultiHeadAttention.attend)
    """The attention that its attention layer calls: (q, k, v, *, mask and options) -> out."""

    attend_cached: Callable[..., Any] = staticmethod(MultiHeadAttention.attend_cached)
    """What it calls with a cache: (q, cache, *, attention, mask and options) -> out."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        norm: Literal["pre", "post"] = "pre",
        norm_type: Literal["layer", "rms", "batch"] = "layer",
        residual: bool = True,
        d_ff: int | None = None,
        activation: Activation = "gelu",
        bias: bool = False,
        eps: float = 1e-5,
        device: Any = None,
        dtype: Any = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm is {norm!r}: expected 'pre' or 'post'")
        _check_known("norm_type", norm_type, NORMS)
        _check_options(attention)
        self.norm = norm
        self.residual = residual
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm1 = NORMS[norm_type](d_model, eps, **place)
        self.attention = MultiHeadAttention(d_model, n_heads, bias=bias, **place, **attention)
        self.norm2 = NORMS[norm_type](d_model, eps, **place)
        self.mlp = MLP(d_model, d_ff, activation=activation, bias=bias, **place)
        # A subclass that replaces them here has replaced them there.
        self.attention.attend, self.attention.attend_cached = self.attend, self.attend_cached

    def forward(
        self, x: Tensor, *, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Transform x (b, t, d_model) -> (b, t, d_model); the rest, and errors, as in `MultiHeadAttention`."""
        check_tokens(x, self.attention.d_model)  # or the norm, which knows neither word, would be the first to speak

        def attention(x: Tensor) -> Any:
            return self.attention(x, mask=mask, positions=positions, cache=cache)

        if self.norm == "pre":
            x = self._add(x, attention(self.norm1(x)))
            return self._add(x, self.mlp(self.norm2(x)))
        x = self.norm1(self._add(x, attention(x)))
        out: Tensor = self.norm2(self._add(x, self.mlp(x)))
        return out

    def _add(self, x: Tensor, change: Tensor) -> Tensor:
        return x + change if self.residual else change

    def extra_repr(self) -> str:
        """Where the norms are, and whether there are residuals."""
        return f"norm={self.norm!r}" + ("" if self.residual else ", residual=False")


def _check_options(attention: dict[str, Any]) -> None:
    """Raises TypeError for an option that neither the block nor attention has; Python would name attention alone."""
    known = {**signature(TransformerBlock).parameters, **signature(MultiHeadAttention).parameters}
    del known["attention"]
    for name in attention:
        if name not in known:
            raise TypeError(f"TransformerBlock has no option {name!r}: expected one of {', '.join(known)}")


def _check_known(name: str, value: str, known: dict[str, Any]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(map(repr, known))}")
