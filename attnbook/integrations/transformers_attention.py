"""The attention function that the models of transformers call: their words for an attention, in ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.integrations.lazy_mask import LazyMask

if TYPE_CHECKING:
    from torch import nn


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    impl: str,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What a model's module calls: its query, key and value, and what it says about masks, in; the average out.

    query (b, n_heads, t_q, d), key and value (b, n_kv_heads, t_kv, …) -> out (b, t_q, n_heads, d_v), contiguous.

    The mask alone says who sees whom; `is_causal` and `sliding_window`, which models pass beside it, count only where
    there is none. `s_aux` are the sinks, `position_bias` is added to the scores. Other keywords change nothing, as in
    transformers' own functions, except those that `_refuse` knows.

    Raises ValueError for what attnbook cannot do or the module leaves open, ShapeError for a mask that does not fit.
    """
    _refuse(module, dropout, s_aux, others)
    seen = _seen(module, query, key, attention_mask, is_causal, sliding_window)
    seen = _seen_packed(query, seen, others.get("cu_seq_lens_q"))
    options: dict[str, Any] = {"softcap": softcap, "scale": scaling, "impl": impl}
    if s_aux is not None:
        options["sinks"] = s_aux.reshape(-1).to(query.dtype)
    if position_bias is not None:
        seen = _seen_with_bias(seen, attention_mask, position_bias)
    options |= {"is_causal": seen.is_causal, "window": seen.window}
    if seen.cu_seqlens is not None:
        return _attend_packed(query, key, value, seen.cu_seqlens, options), None

    from attnbook.api import attention

    if query.shape[0] == 1 != key.shape[0]:  # learned queries, the same for every row of the batch
        query = query.expand(key.shape[0], -1, -1, -1)
    out = attention(query, key[:, :, : seen.t_kv], value[:, :, : seen.t_kv], mask=seen.mask, **options)
    return out.transpose(1, 2).contiguous(), None


class Seen(NamedTuple):
    """Who sees whom, as options of `attnbook.attention` on the first t_kv keys; `cu_seqlens` of packed sequences."""

    is_causal: bool
    window: int | None
    mask: Tensor | None
    t_kv: int
    cu_seqlens: Tensor | None = None


def _seen(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None, window: int | None
) -> Seen:
    t_q, t_kv = query.shape[2], key.shape[2]
    if mask is None:
        return _seen_without_mask(module, t_q, t_kv, is_causal, window)
    if mask.ndim != 4:
        raise ShapeError(f"mask has {mask.ndim} axes {tuple(mask.shape)}: expected 4, (b, h, t_q, t_kv)")
    if mask.shape[3] != t_kv:
        raise ShapeError(f"mask has length {mask.shape[3]} along axis t_kv but {_name(module)} has {t_kv} keys")
    words = mask.words if isinstance(mask, LazyMask) else None
    if words is not None:
        return Seen(words.is_causal, words.window, words.keys, words.t_kv, words.cu_seqlens)
    return Seen(False, None, mask.made() if isinstance(mask, LazyMask) else mask, t_kv)


def _seen_without_mask(module: nn.Module, t_q: int, t_kv: int, is_causal: bool | None, window: int | None) -> Seen:
    """No mask: the call says it, else the module. Our own masks are never None, so this is a module used by itself."""
    if is_causal is None:
        is_causal = getattr(module, "is_causal", None)
    if is_causal is None and t_q > 1:
        raise ValueError(
            f"{_name(module)} passes no mask and says nothing about is_causal: attnbook does not guess; pass a mask"
        )
    if is_causal and 1 < t_q != t_kv:
        raise ValueError(
            f"{_name(module)} passes no mask for {t_q} causal queries against {t_kv} keys: which of them are past "
            "depends on the cache; pass a mask"
        )
    return Seen(bool(is_causal), window if is_causal else None, None, t_kv)


def _seen_packed(query: Tensor, seen: Seen, cu_seqlens: Tensor | None) -> Seen:
    """The same, with the lengths of packed sequences that some models pass by and do not tell their mask."""
    b, t_q = query.shape[0], query.shape[2]
    if cu_seqlens is None or cu_seqlens.shape[0] == b + 1 or seen.cu_seqlens is not None:
        return seen
    if seen.mask is None and t_q == seen.t_kv:
        return seen._replace(cu_seqlens=cu_seqlens)
    if seen.mask is not None and seen.mask.shape[2] == t_q > 1:
        return seen  # such a mask says for every query what it sees
    raise ValueError(
        f"cu_seq_lens_q has {cu_seqlens.shape[0] - 1} sequences in a batch of {b}, beside padding or a cache: packed "
        "sequences have neither; pass no attention_mask, and use_cache=False"
    )


def _attend_packed(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, options: dict[str, Any]) -> Tensor:
    """The rows of the batch one after another, as one packed row: -> (b, t, n_heads, d_v)."""
    from attnbook.api import attention_varlen

    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))  # (b · t, heads, …)
    out: Tensor = attention_varlen(q, k, v, cu_seqlens, cu_seqlens, **options)
    return out.reshape(query.shape[0], query.shape[2], *out.shape[1:])


def _seen_with_bias(seen: Seen, mask: Tensor | None, bias: Tensor) -> Seen:
    """The same with a mask that also adds `bias`, (b or 1, n_heads, t_q, t_kv)."""
    if seen.cu_seqlens is not None:
        if not isinstance(mask, LazyMask) or mask.words is None or mask.words.cu_seqlens is None:
            raise ValueError("cu_seq_lens_q and position_bias together are not known to attnbook; use 'eager'")
        seen = Seen(False, None, mask.made(), seen.t_kv)
    bias, hides = bias[..., : seen.t_kv], seen.mask
    if hides is None:
        return seen._replace(mask=bias)
    if hides.dtype == torch.bool:
        return seen._replace(mask=torch.where(hides, bias, -torch.inf))
    # A minimum that hides must not be lifted by a bias.
    return seen._replace(mask=torch.where(hides <= torch.finfo(hides.dtype).min, -torch.inf, bias + hides))


def _refuse(module: nn.Module, dropout: float, s_aux: Tensor | None, others: dict[str, Any]) -> None:
    """Raises ValueError for what we would otherwise leave out in silence."""
    if dropout and module.training:
        raise ValueError(
            f"{_name(module)} asks for attention dropout {dropout} while training: attnbook has none; set the "
            "dropout of the config to 0, or call model.eval()"
        )
    if others.get("output_attentions"):
        raise ValueError(
            f"{_name(module)} asks for output_attentions: attnbook never holds the weights; "
            "use attn_implementation='eager'"
        )
    for option in ("sinks", "head_mask", "alibi", "attention_bias"):
        if others.get(option) is not None:
            raise ValueError(f"{_name(module)} passes {option}, which attnbook does not know; use 'eager'")
    if s_aux is None and getattr(module, "sinks", None) is not None:
        raise ValueError(f"{_name(module)} has sinks and does not pass them as s_aux; use 'eager'")


def _name(module: nn.Module) -> str:
    return type(module).__name__
