"""Every implementation of attention under one name each, and the verdict on a call: output, lse and every gradient.

numpy        the reference on NumPy arrays                    small tiles  the tiles, 3 queries and 4 keys each
reference    the same on torch tensors                        decode       few queries, keys in splits
auto, sdpa   the door, its own choice or torch's function     operator     what torch.compile sees
tiled        the tiles, of the size that suits
"""

from functools import partial

import numpy as np
import torch

import attnbook
from attnbook import reference, tiled
from attnbook.api import operators
from tests.tolerance import assert_right, exact, plain, plain_gradients, plain_lse, worst

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WAYS = ("numpy", "reference", "tiled", "small tiles", "decode", "auto", "sdpa", "operator")
TORCH = tuple(way for way in WAYS if way != "numpy")
WITH_LSE = tuple(way for way in WAYS if way != "sdpa")
"""torch's own function returns no lse, and has neither softcap nor sinks."""
IN_DTYPES = [(way, dtype) for way in WAYS for dtype in DTYPES if (way, dtype) != ("numpy", torch.bfloat16)]
"""Every dtype that each has: NumPy has no bfloat16."""
TORCH_WITH_LSE = tuple(way for way in WITH_LSE if way != "numpy")

_CALLS = {
    "reference": reference.attention,
    "tiled": tiled.attention,
    "small tiles": partial(tiled.attention, tile_q=3, tile_k=4),
    "decode": tiled.decode,
    "auto": attnbook.attention,
}


def run(way, q, k, v, **options):
    """(out, lse) of one implementation; lse is None from torch's function."""
    if way == "numpy":
        arrays = {name: to_numpy(x) for name, x in options.items()}
        out, lse = reference.attention(*map(to_numpy, (q, k, v)), **arrays, return_lse=True)
        return torch.from_numpy(np.asarray(out)), torch.from_numpy(np.asarray(lse))
    if way == "sdpa":
        return attnbook.attention(q, k, v, **options, impl="sdpa"), None
    if way == "operator":
        named = {name: options.get(name) for name in ("mask", "alibi_slopes", "sinks")}
        numbers = {name: options.get(name) for name in ("window", "softcap", "scale")}
        return operators.attention(q, k, v, **named, is_causal=options.get("is_causal", False), **numbers)
    return _CALLS[way](q, k, v, **options, return_lse=True)


def to_numpy(x):
    """A tensor as an array, strides kept; anything else as it is."""
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


def normal(*shape, seed=0, dtype=torch.float32, times=1.0):
    """Unit-normal numbers from a seed."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x * times).to(dtype)


def qkv(t_q, t_kv=None, *, b=2, heads=(2, 2), d=5, d_v=None, dtype=torch.float32, seed=0):
    """q, k and v of these sizes."""
    t_kv = t_q if t_kv is None else t_kv
    sizes = ((heads[0], t_q, d), (heads[1], t_kv, d), (heads[1], t_kv, d if d_v is None else d_v))
    return [normal(b, *size, seed=seed + i, dtype=dtype) for i, size in enumerate(sizes)]


class Known:
    """A call, and what is right for it; `d_out` weighs the outputs in the loss, and `d_lse` the finite lse."""

    def __init__(self, q, k, v, *, d_out=None, d_lse=None, allowed=None, **options):
        """`allowed`, where a mask hides by another number than −inf: what it means."""
        self.tensors, self.options = (q, k, v), options
        shape = (*q.shape[:3], k.shape[2])
        self.d_out = normal(*q.shape[:3], v.shape[3], seed=77, dtype=q.dtype) if d_out is None else d_out
        self.d_lse = normal(*q.shape[:3], seed=78, dtype=_lse_dtype(q)) if d_lse is None else d_lse
        self.oracle = {name: x for name, x in options.items() if name != "mask"}
        mask = options.get("mask")
        if mask is not None:
            seen = (mask if mask.dtype == torch.bool else mask != -torch.inf) if allowed is None else allowed
            self.oracle["allowed"] = seen.expand(shape).numpy()
            if mask.dtype != torch.bool:
                self.oracle["bias"] = torch.where(seen, mask.detach(), 0.0)
                if self.oracle["bias"].ndim < 4:
                    self.oracle["bias"] = self.oracle["bias"][(None,) * (4 - mask.ndim)]
        self.right = {}
        self.baseline = {}

    def of(self, with_lse):
        """(right, baseline) by name, worked out once for a loss with and without lse."""
        if with_lse not in self.right:
            weights = {"d_out": self.d_out, "d_lse": self.d_lse if with_lse else None}
            right = exact(*self.tensors, **weights, **self.oracle)
            baseline = plain_gradients(*self.tensors, **weights, **self.oracle)
            for name, way in (("out", plain), ("lse", plain_lse)):
                turned = (way(*self.tensors, backwards=b, **self.oracle) for b in (False, True))
                baseline[name] = worst(right[name], *turned)
            self.right[with_lse], self.baseline[with_lse] = right, baseline
        return self.right[with_lse], self.baseline[with_lse]

    def check(self, way, *, gradients=True):
        """Run one implementation; out, lse and gradients are right. -> (out, lse or None, gradients by name)."""
        given = dict(zip("qkv", self.tensors, strict=True)) | self.options
        if way == "numpy":
            out, lse = run(way, **given)
            self._check_values(out, lse)
            return out, lse, {}
        leaves = {name: x.detach() for name, x in given.items() if isinstance(x, torch.Tensor)}
        wanted = {name: x.requires_grad_() for name, x in leaves.items() if gradients and x.is_floating_point()}
        out, lse = run(way, **(given | leaves))
        self._check_values(out.detach(), None if lse is None else lse.detach())
        if not gradients:
            return out, lse, {}
        total = (out * self.d_out).sum()
        if lse is not None:
            total = total + (torch.where(lse.isfinite(), lse, 0.0) * self.d_lse).sum()
        found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
        found = {
            name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(wanted.items(), found, strict=True)
        }
        right, baseline = self.of(lse is not None)
        for name, gradient in found.items():
            assert gradient.dtype == given[name].dtype
            key = "bias" if name == "mask" else name
            assert_right(gradient, right[key].reshape(gradient.shape), baseline[key].reshape(gradient.shape))
        return out.detach(), None if lse is None else lse.detach(), found

    def _check_values(self, out, lse):
        right, baseline = self.of(lse is not None)
        assert_right(out, right["out"], baseline["out"])
        finite = np.isfinite(right["lse"])
        assert (out.double().numpy()[~finite] == 0).all()
        if lse is not None:
            assert (lse.double().numpy()[~finite] == -np.inf).all()
            assert_right(lse[torch.from_numpy(finite)], right["lse"][finite], baseline["lse"][finite], roundings=2)


def _lse_dtype(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32
