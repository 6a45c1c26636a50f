"""The reference's layers with the door's attention: same parameters, same names, same results, faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnbook import reference
from attnbook.api.attention import attention


class MultiHeadAttention(reference.MultiHeadAttention):
    """Self-attention or cross-attention as a layer, with `attnbook.attention` and its choice of implementation.

    x (b, t, d_model) -> y (b, t, d_model). The call also takes `context`, `mask`, `positions`, `cache` and
    `return_weights`, which `forward` describes.

    - `n_heads` query heads of `head_dim` components (d_model / n_heads where not given); `n_kv_heads` key and value
      heads (n_heads; fewer is grouped, 1 multi-query attention); values of `d_v` components (head_dim).
    - `d_context`: components of the context's tokens (d_model). `bias`: of all four linear maps.
    - `qk_norm`: an RMSNorm over each head's query and key, before RoPE.
    - `rope`: True, or a function (x, positions) -> x such as `functools.partial(rope, theta=5e5)`.
    - `is_causal`, `window`, `softcap`, `scale`: as in `attention`.
    - `alibi`: ALiBi with the paper's slopes. `sinks`: one trained logit a head, at first 0.
    - `device`, `dtype`: of the weights.

    There is no dropout. Errors are those of `attnbook.reference.MultiHeadAttention`, and weights load from one into the
    other.
    """

    attend: Callable[..., Any] = staticmethod(attention)


class TransformerBlock(reference.TransformerBlock):
    """Attention and MLP with residuals and norms, with `attnbook.attention` and its choice of implementation.

    x (b, t, d_model) -> (b, t, d_model). The call also takes `mask`, `positions` and `cache`.

    - `norm`: "pre", x + f(norm(x)), or "post", norm(x + f(x)).
    - `norm_type`: "layer", "rms", or "batch", which mixes tokens and is here for contrast.
    - `residual`: False leaves out both `x +`.
    - `d_ff`: width of the MLP; `activation`: "gelu", "relu" or "swiglu". `bias`: of all linear maps. `eps`: of the
      norms. `device`, `dtype`: of the weights.
    - everything else goes to `MultiHeadAttention`: `n_kv_heads`, `head_dim`, `is_causal`, `window`, `rope` …

    There is no dropout. Errors are those of `attnbook.reference.TransformerBlock`, and weights load from one into the
    other.
    """

    attend: Callable[..., Any] = staticmethod(attention)
