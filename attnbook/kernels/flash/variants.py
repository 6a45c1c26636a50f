"""The flash kernels as the compile report sees them: which options, dtypes and sizes are compiled.

What stands out: a variant is made from the arguments of a launch. Tensors that take no memory (torch's device "meta")
stand for those of a call, the same functions as in a launch turn them into arguments and constants, and their types
are read off as Triton reads them when it specialises a kernel. So what is compiled is what runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attnbook.kernels.flash import forward
from attnbook.kernels.flash.call import Call, Packing
from attnbook.kernels.flash.configs import Config
from attnbook.kernels.targets import Target
from attnbook.kernels.variant import Variant
from attnbook.shapes import AttentionSizes

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SIZES = (64, 128, 256)
"""Of heads, of which every variant exists in bf16."""

EVERYTHING: dict[str, Any] = {
    "is_causal": True, "window": 1024, "softcap": 50.0, "slopes": True, "sinks": True, "mask": torch.bfloat16,
}  # fmt: skip
"""The options of a call that has all of them, its mask being one of floats."""


def variants(target: Target) -> Iterator[Variant]:
    """Every kernel of this folder for one target."""
    from attnbook.kernels.flash.variants_backward import backward_variants  # which is made of what stands here

    yield from forward_variants(target)
    yield from backward_variants(target)


def forward_variants(target: Target) -> Iterator[Variant]:
    """The forward kernel: bf16 in every size, the other dtypes in one; bare, causal, packed, and with every option."""
    for head_dim in SIZES:
        yield _forward("", target, head_dim)
        yield _forward("-causal", target, head_dim, is_causal=True)
        yield _forward("-everything", target, head_dim, **EVERYTHING)
        yield _forward("-everything-again", target, head_dim, again=True, **EVERYTHING)
    yield _forward("-packed-window", target, 128, packed=True, is_causal=True, window=1024)
    yield _forward("-v128-causal", target, 192, 128, is_causal=True)  # DeepSeek's heads
    for dtype in ("fp16", "fp32"):
        yield _forward("-causal", target, 128, dtype=dtype, is_causal=True)
    yield _forward("-everything", target, 128, dtype="fp32", **EVERYTHING)


def _forward(
    what: str,
    target: Target,
    head_dim: int,
    d_v: int | None = None,
    dtype: str = "bf16",
    again: bool = False,
    **options: Any,
) -> Variant:
    """One way to compile the forward kernel."""
    from attnbook.kernels.flash.forward_kernel import forward_kernel

    call = example(target, head_dim, head_dim if d_v is None else d_v, DTYPES[dtype], **options)
    out = call.q.new_empty((*call.q.shape[:3], call.sizes.d_v))
    lse = call.q.new_empty(call.q.shape[:3], dtype=torch.float32)
    given, constants, config = forward.prepare(call, out, lse, again=again)
    return variant(f"flash-forward-d{head_dim}-{dtype}{what}", forward_kernel, given, constants, config)


def example(
    target: Target,
    head_dim: int,
    d_v: int,
    dtype: torch.dtype,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    slopes: bool = False,
    sinks: bool = False,
    mask: torch.dtype | None = None,
    packed: bool = False,
) -> Call:
    """A call of an ordinary size: 3 sequences, 32 heads over 8 of keys, lengths that are multiples of no tile."""
    b, n_heads, n_kv_heads, t = 3, 32, 8, 5000

    def empty(*shape: int, of: torch.dtype = dtype) -> Tensor:
        return torch.empty(shape, dtype=of, device="meta")

    if packed:
        q, k, v = (
            empty(b * t, heads, d).transpose(0, 1)[None]
            for heads, d in ((n_heads, head_dim), (n_kv_heads, head_dim), (n_kv_heads, d_v))
        )
    else:
        q, k, v = empty(b, n_heads, t, head_dim), empty(b, n_kv_heads, t, head_dim), empty(b, n_kv_heads, t, d_v)
    of_mask = None if mask is None else empty(1, 1, t, t, of=torch.uint8 if mask == torch.bool else mask)
    cu = empty(b + 1, of=torch.int32)
    return Call(
        AttentionSizes(b, n_heads, n_kv_heads, t, t, head_dim, d_v), q, k, v,
        None if of_mask is None else of_mask.expand(1 if packed else b, n_heads, -1, -1),
        empty(b, n_heads, of=torch.float32) if slopes else None, empty(n_heads, of=torch.float32) if sinks else None,
        is_causal, window, softcap, head_dim**-0.5, torch.finfo(dtype).min,
        Packing(cu, cu, t, t, covers=True) if packed else None, target,
    )  # fmt: skip


def variant(name: str, kernel: Any, given: Mapping[str, Any], constants: Mapping[str, Any], config: Config) -> Variant:
    """The variant of a kernel that a launch with these arguments, constants and configuration compiles."""
    values = {parameter: (dict(given) | dict(constants))[parameter] for parameter in kernel.arg_names}
    kinds = {
        parameter: "constexpr" if parameter in constants else kind_of(value) for parameter, value in values.items()
    }
    q = given["q"]
    return Variant(
        name=name,
        operation="flash",
        kernel=kernel,
        signature=kinds,
        constants={parameter: values[parameter] for parameter, kind in kinds.items() if kind == "constexpr"},
        divisible=tuple(
            parameter
            for parameter, kind in kinds.items()
            if kind.startswith("*") or (kind in ("i32", "i64") and values[parameter] % 16 == 0)
        ),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        multiplies=q.dtype != torch.float32,
        rows=config.tile_q,
        head_dim=constants["HEAD_DIM"],
        dtype=next(short for short, dtype in DTYPES.items() if dtype == q.dtype),
    )


def kind_of(value: Any) -> str:
    """The type of an argument as Triton specialises it: None and 1 are constants, whatever the parameter says."""
    if isinstance(value, Tensor):
        return "*" + KINDS[value.dtype]
    if value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return f"tensordesc<{KINDS[value.base.dtype]}{list(value.block_shape)}>"


KINDS = {dtype: short for short, dtype in DTYPES.items()} | {torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64"}
