"""The backward kernels as the compile report sees them; see `attnbook.kernels.flash.variants`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from attnbook.kernels.flash import variants
from attnbook.kernels.flash.backward import Backward
from attnbook.kernels.flash.launch import Launch
from attnbook.kernels.targets import Target
from attnbook.kernels.variant import Variant


def backward_variants(target: Target) -> Iterator[Variant]:
    """The backward kernels: bf16 in every size, the other dtypes in one; bare, causal, packed, with every option."""
    for head_dim in variants.SIZES:
        yield from _backward("", target, head_dim)
        yield from _backward("-causal", target, head_dim, is_causal=True)
        yield from _backward("-mask", target, head_dim, mask=torch.bool)
        yield from _backward("-everything", target, head_dim, **variants.EVERYTHING)
        yield from _backward("-packed-causal", target, head_dim, packed=True, is_causal=True)
    yield from _backward("-v128-causal", target, 192, 128, is_causal=True)  # DeepSeek's heads
    for dtype in ("fp16", "fp32"):
        yield from _backward("-causal", target, 128, dtype=dtype, is_causal=True)
        yield from _backward("-everything", target, 128, dtype=dtype, **variants.EVERYTHING)


def _backward(
    what: str, target: Target, head_dim: int, d_v: int | None = None, dtype: str = "bf16", **options: Any
) -> Iterator[Variant]:
    """The kernels of one backward pass that asks for the gradients of all it was given."""
    call = variants.example(target, head_dim, head_dim if d_v is None else d_v, variants.DTYPES[dtype], **options)
    out = call.q.new_empty((*call.q.shape[:3], call.sizes.d_v))
    lse = call.q.new_empty(call.q.shape[:3], dtype=torch.float32)
    every = options == variants.EVERYTHING
    backward = Backward(call, out, lse if every else None, out, lse, needs_alibi=every, needs_sinks=every)
    launches = [backward.keys(call.k, call.v), backward.queries(call.q)]
    again: tuple[Launch, ...] = ()
    if what in ("", "-everything"):  # no other option makes another kernel of it
        launches.append(backward.rows())
    if what in ("-causal", "-everything", "-packed-causal"):
        again = (backward.keys(call.k, call.v, again=True), backward.queries(call.q, again=True))
    if every and call.mask is not None:
        mask = call.mask[:1, :1]
        launches.append(backward.mask(mask, backward.mask_parts(mask)))
    for launch in launches:
        yield _variant(f"-d{head_dim}-{dtype}{what}", launch)
    for launch in again:
        yield _variant(f"-d{head_dim}-{dtype}{what}-again", launch)


def _variant(name: str, launch: Launch) -> Variant:
    kind = launch.kernel.__name__.removesuffix("_kernel")
    found = variants.variant(
        f"flash-backward-{kind}{name}", launch.kernel, launch.given, launch.constants, launch.config
    )
    if kind == "rows":
        return replace(found, multiplies=False)
    return replace(found, rows=launch.config.tile_k if kind == "keys" else launch.config.tile_q)
