"""The decoding kernels as the compile report sees them, made from the arguments of a launch on tensors without memory.

Their 16 or 32 rows are multiplied by mma.sync on every target: the larger instructions of sm_90 and sm_100 start at 64
rows, and a decoding kernel waits for memory, not for products.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attnbook.kernels.decode import configs
from attnbook.kernels.decode.launch import Pages, config_of, split_arguments, split_constants
from attnbook.kernels.decode.parts import merge_arguments, merge_constants
from attnbook.kernels.flash import variants as flash
from attnbook.kernels.flash.call import Call
from attnbook.kernels.flash.configs import Config
from attnbook.kernels.targets import Target
from attnbook.kernels.variant import Variant

N_PAGES, PAGE_SIZE, LARGE_PAGE, PARTS = 1009, 16, 256, 20
"""Of the calls that are compiled: pages, as serving engines have them and large enough for descriptors; and splits."""

ALL_BUT_WINDOW = flash.EVERYTHING | {"window": None}
"""The most options with which keys are copied by descriptor."""


def variants(target: Target) -> Iterator[Variant]:
    """Both kernels: bf16 in every size, the other dtypes in one; bare, in pages, a few tokens ahead, every option."""
    for head_dim in flash.SIZES:
        yield _split("", target, head_dim)
        yield _split("-paged", target, head_dim, page_size=PAGE_SIZE)
        yield _split("-causal-3-ahead", target, head_dim, t_q=4, is_causal=True)
        yield _split("-causal-15-ahead", target, head_dim, t_q=16, is_causal=True)
        yield _split("-everything", target, head_dim, t_q=4, **flash.EVERYTHING)
        yield _split("-paged-everything", target, head_dim, t_q=4, page_size=PAGE_SIZE, **flash.EVERYTHING)
        yield _merge("", target, head_dim)
        if target.has_descriptors:
            yield _split("-paged-256", target, head_dim, page_size=LARGE_PAGE)
            yield _split("-all-but-window", target, head_dim, t_q=4, **ALL_BUT_WINDOW)
            yield _split("-paged-256-all-but-window", target, head_dim, t_q=4, page_size=LARGE_PAGE, **ALL_BUT_WINDOW)
    yield _split("-v128", target, 192, 128)  # DeepSeek's heads
    yield _split("", target, 80)
    yield _merge("-paged-everything", target, 128, page_size=PAGE_SIZE, **flash.EVERYTHING)
    for dtype in ("fp16", "fp32"):
        yield _split("", target, 128, dtype=dtype)
        yield _split("-paged", target, 128, dtype=dtype, page_size=LARGE_PAGE)
        yield _split("-paged-everything", target, 128, dtype=dtype, t_q=4, page_size=PAGE_SIZE, **flash.EVERYTHING)
        yield _merge("", target, 128, dtype=dtype)


def _split(
    what: str, target: Target, head_dim: int, d_v: int | None = None, dtype: str = "bf16", **options: Any
) -> Variant:
    """One way to compile the kernel of a split."""
    from attnbook.kernels.decode.split import split_kernel

    call, k, v, pages = _example(target, head_dim, head_dim if d_v is None else d_v, dtype, **options)
    averages, lses, _, _ = _results(call)
    config = config_of(call, pages)
    given, constants = split_arguments(call, k, v, pages, averages, lses), split_constants(call, k, v, pages)
    name = f"decode-split-d{head_dim}-{dtype}{what}"
    return _variant(name, split_kernel, call, given, constants, config.num_warps, config.num_stages, config.tile_rows)


def _merge(what: str, target: Target, d_v: int, dtype: str = "bf16", **options: Any) -> Variant:
    """One way to compile the kernel that merges."""
    from attnbook.kernels.decode.merge import merge_kernel

    call, _, _, pages = _example(target, d_v, d_v, dtype, **options)
    averages, lses, out, lse = _results(call)
    given = merge_arguments(averages, lses, call.sinks, out, lse, pages, call.window)
    constants = merge_constants(out, call.sinks, pages, call.window, config_of(call, pages).split)
    name, cut = f"decode-merge-d{d_v}-{dtype}{what}", (configs.MERGE_WARPS, configs.MERGE_STAGES)
    found = _variant(name, merge_kernel, call, given, constants, *cut)
    return dataclasses.replace(found, multiplies=False)


def _example(
    target: Target, head_dim: int, d_v: int, dtype: str, *, t_q: int = 1, page_size: int = 0, **options: Any
) -> tuple[Call, Tensor, Tensor, Pages | None]:
    """A call of the sizes of `flash.example` with t_q queries, its keys and values, and their pages."""
    call = flash.example(target, head_dim, d_v, flash.DTYPES[dtype], **options)
    sizes = dataclasses.replace(call.sizes, t_q=t_q)
    mask = None if call.mask is None else call.mask[:, :, :t_q]
    call = dataclasses.replace(call, sizes=sizes, q=call.q[:, :, :t_q].contiguous(), mask=mask)
    if not page_size:
        return call, call.k, call.v, None
    k, v = (call.q.new_empty((N_PAGES, sizes.n_kv_heads, page_size, d)) for d in (head_dim, d_v))
    table, lengths = (call.q.new_empty(shape, dtype=torch.int32) for shape in ((sizes.b, 317), (sizes.b,)))
    return call, k, v, Pages(page_size, table, lengths, None)


def _results(call: Call) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Averages and lse of the parts, out and lse of the whole."""
    out = call.q.new_empty((*call.q.shape[:3], call.sizes.d_v))
    averages, lses = (out.new_empty((PARTS, *shape), dtype=torch.float32) for shape in (out.shape, out.shape[:3]))
    return averages, lses, out, lses[0]


def _variant(
    name: str,
    kernel: Any,
    call: Call,
    given: dict[str, Any],
    constants: dict[str, Any],
    num_warps: int,
    num_stages: int,
    rows: int = 0,
) -> Variant:
    """The variant of flash with these parts, in this room."""
    given, named = {"q": call.q, **given}, {"HEAD_DIM": call.sizes.head_dim, **constants}
    found = flash.variant(name, kernel, given, named, Config(0, 0, num_warps, num_stages))
    return dataclasses.replace(found, operation="decode", rows=rows)
