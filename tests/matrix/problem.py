"""The inputs of one case, and the truth about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from tests.matrix.axes import DTYPES, HEADS, SHAPES, Case
from tests.tolerance import exact, plain, plain_gradients, plain_lse, worst

WINDOW = 5


@dataclass(frozen=True)
class Problem:
    """What a case asks: inputs, what the oracle is told, and what every implementation is told."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    oracle: dict[str, Any]  # allowed, bias, is_causal, window, softcap, alibi_slopes, sinks, scale
    mask: torch.Tensor | None  # `allowed`, or `bias` with −inf where a key is hidden
    d_out: torch.Tensor
    d_lse: torch.Tensor

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor that is given, by the name it is given under."""
        named = {"q": self.q, "k": self.k, "v": self.v, "mask": self.mask}
        named |= {name: self.oracle.get(name) for name in ("alibi_slopes", "sinks")}
        return {name: x for name, x in named.items() if x is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """Every option that is no tensor."""
        names = ("is_causal", "window", "softcap", "scale")
        return {name: self.oracle[name] for name in names if name in self.oracle}


@dataclass(frozen=True)
class Truth:
    """The right results by name ("out", "lse", "d q" …), and what a plain calculation in the same dtype gives."""

    right: dict[str, np.ndarray]
    baseline: dict[str, Any]


@cache
def problem(options: str, dtype: str, shape: str, heads: str, repeated: bool, with_lse: bool) -> Problem:
    """Inputs of a case, from one seed; `repeated`: all sequences are the same and d_out is one number everywhere."""
    make = torch.Generator().manual_seed(11)
    b, t_q, t_kv, d, d_v = SHAPES[shape]
    n_heads, n_kv_heads = HEADS[heads]

    def normal(*size: int, times: float = 1.0, dtype: torch.dtype = DTYPES[dtype]) -> torch.Tensor:
        x = torch.randn(size, generator=make, dtype=torch.float64) * times
        return (x[:1].expand(size) if repeated and len(size) > 2 else x).to(dtype)

    q, k = normal(b, n_heads, t_q, d, times=2), normal(b, n_kv_heads, t_kv, d)
    if t_q and t_kv:  # the last query's own key weighs something in every head, so that one key too few is seen
        own = q[:, :, -1:].unflatten(1, (n_kv_heads, -1)).sum(2) / d**0.5
        k = torch.cat([k[:, :, :-1], k[:, :, -1:] + own], dim=2)
        k = k[:1].expand(k.shape) if repeated else k
    v = normal(b, n_kv_heads, t_kv, d_v) + normal(1, n_kv_heads, 1, d_v)
    oracle: dict[str, Any] = {"is_causal": "causal" in options or "window" in options or "everything" in options}
    if "window" in options or "everything" in options:
        oracle["window"] = WINDOW
    if "softcap" in options or "everything" in options:
        oracle["softcap"] = 1.5
    if "scale" in options or "everything" in options:
        oracle["scale"] = 0.7 * d**-0.5
    if "alibi" in options or "everything" in options:
        size = (b, n_heads) if "each sequence" in options else (n_heads,)
        oracle["alibi_slopes"] = torch.rand(size, generator=make) / 4 + 0.05
    if "sinks" in options or "everything" in options:
        oracle["sinks"] = normal(n_heads) + 3
    mask = None
    if "boolean mask" in options:
        mask = torch.rand((b, 1, 1, t_kv), generator=make) < 0.7
    if "empty rows" in options:
        mask = torch.rand((n_heads, t_q, t_kv), generator=make) < 0.7
        mask[:, ::3] = False
    if mask is not None:
        oracle["allowed"] = mask.numpy()
    if "float mask" in options:
        bias = normal(1, n_heads, t_q, t_kv)
        allowed = torch.rand(bias.shape, generator=make) < 0.8
        oracle |= {"bias": torch.where(allowed, bias, 0), "allowed": allowed.numpy()}
        mask = torch.where(allowed, bias, -torch.inf)
    d_out = normal(b, n_heads, t_q, d_v)
    d_out = d_out[:1, :1, :1, :1].expand(d_out.shape) if repeated else d_out
    of_lse = normal(b, n_heads, t_q, dtype=torch.float64 if dtype == "float64" else torch.float32)
    return Problem(q, k, v, oracle, mask, d_out, of_lse if with_lse else of_lse * 0)


@cache
def truth(*key: Any) -> Truth:
    """The truth about the problem of the same arguments."""
    asked = problem(*key)
    inputs, grads = (asked.q, asked.k, asked.v), {"d_out": asked.d_out, "d_lse": asked.d_lse}
    found = exact(*inputs, **grads, **asked.oracle)
    baseline = plain_gradients(*inputs, **grads, right=found, **asked.oracle)
    right = {name if name in ("out", "lse") else f"d {name}": x for name, x in found.items()}
    of_values = {
        name: worst(right[name], *(way(*inputs, backwards=turned, **asked.oracle) for turned in (False, True)))
        for name, way in (("out", plain), ("lse", plain_lse))
    }
    return Truth(right, {f"d {name}": x for name, x in baseline.items()} | of_values)


def key_of(case: Case) -> tuple[Any, ...]:
    """What a case's inputs depend on."""
    repeated, with_lse = case.layout == "expanded", case.implementation != "door: sdpa"
    return (case.options, case.dtype, case.shape, case.heads, repeated, with_lse)
