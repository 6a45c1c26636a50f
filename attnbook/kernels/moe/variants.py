"""Every kernel of the experts as it is compiled for a launch of a usual size: what `attnbook.kernels.compile` looks at.

The tiles come from `configs`, as in a launch. Sizes are those of a training step: 8192 tokens, each to 8 of 64 experts,
d 2048 and f 1024, all rows of memory at multiples of 16 bytes. "few" has 16 rows an expert, as in decoding; "pointers"
has matrices that lie as no tensor descriptor can read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnbook.kernels.moe import backward, choose, configs, forward, sort
from attnbook.kernels.targets import Target
from attnbook.kernels.variant import Variant

E, D, F = 64, 2048, 1024
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
KINDS = {
    **dict.fromkeys(("order", "token", "place", "row_bounds", "tile_bounds", "starts", "counts"), "*i32"),
    **dict.fromkeys(("weights", "d_weight_parts"), "*fp32"),
    "experts": "*i64",
    **dict.fromkeys(("n_experts", "top_k", "t", "n", "d", "f", "n_left", "n_right", "n_row_tiles"), "i32"),
}
"""The types of parameters by name; strides are "i32" too, and everything else points to numbers of the dtype."""

ODD = {"n_experts", "top_k", "t", "n_row_tiles"}
"""Integers that need be no multiple of 16 in a usual launch; all others are, and pointers are to as many bytes."""


def variants(target: Target) -> Iterator[Variant]:
    """All kernels; the products in every dtype, with many and with few rows, and without descriptors."""
    yield from _others()
    for dtype in BYTES:
        yield from _products(target, dtype, "", rows_each=1024)
    yield from _products(target, "bf16", "-few", rows_each=16)
    if target.has_descriptors:
        yield from _products(target, "bf16", "-pointers", rows_each=1024, descriptors=False)


def _others() -> Iterator[Variant]:
    tiles = configs.sort()
    for name, kernel in (("count", sort.count_kernel), ("place", sort.place_kernel)):
        yield _variant(name, kernel, "fp32", {"TILE": tiles.rows}, tiles)
    for e in (E, 256):
        tiles = configs.choose(e)
        yield _variant(f"choose-e{e}", choose.choose_kernel, "fp32",
                       {"TILE_TOKENS": tiles.rows, "EXPERTS": tiles.columns}, tiles)  # fmt: skip
    tiles = configs.combine(D)
    for dtype in BYTES:
        for name, weighted in (("combine", True), ("combine-unweighted", False)):
            yield _variant(f"{name}-{dtype}", forward.combine_kernel, dtype,
                           {"TILE_TOKENS": tiles.rows, "TILE_D": tiles.columns, "WEIGHTED": weighted, "UPCAST": False},
                           tiles, {} if weighted else {"weights": "*i32"})  # fmt: skip


def _products(
    target: Target, dtype: str, suffix: str, *, rows_each: int, descriptors: bool = True
) -> Iterator[Variant]:
    """The six launches that multiply matrices."""
    chosen = (target, BYTES[dtype], rows_each, D, F)
    suffix = f"-{dtype}{suffix}"

    tiles = configs.gate_up(*chosen)
    yield _by_rows(f"gate-up{suffix}", forward.gate_up_kernel, dtype, tiles, descriptors,
                   {"TILE_F": tiles.columns, "STEP_D": tiles.step, "stride_f": 1},
                   w_gate=(tiles.step, tiles.columns), w_up=(tiles.step, tiles.columns))  # fmt: skip
    tiles = configs.down(*chosen)
    yield _by_rows(f"down{suffix}", forward.down_kernel, dtype, tiles, descriptors,
                   {"TILE_D": tiles.columns, "STEP_F": tiles.step, "stride_d": 1},
                   w_down=(tiles.step, tiles.columns))  # fmt: skip
    tiles = configs.hidden_gradient(*chosen)
    yield _by_rows(f"hidden-gradient{suffix}", backward.hidden_gradient_kernel, dtype, tiles, descriptors,
                   {"TILE_F": tiles.columns, "STEP_D": tiles.step, "NEEDS_HIDDEN": True,
                    "stride_f": 1, "stride_down_d": 1},
                   w_gate=(tiles.step, tiles.columns), w_up=(tiles.step, tiles.columns),
                   w_down=(tiles.columns, tiles.step))  # fmt: skip
    tiles = configs.token_gradient(*chosen)
    yield _by_rows(f"token-gradient{suffix}", backward.token_gradient_kernel, dtype, tiles, descriptors,
                   {"TILE_D": tiles.columns, "STEP_F": tiles.step, "stride_f": 1},
                   w_gate=(tiles.columns, tiles.step), w_up=(tiles.columns, tiles.step))  # fmt: skip
    if not descriptors:
        return  # the others have pointers in any case
    for of, n_left, n_right in (("gate", D, F), ("down", F, D)):
        tiles = configs.matrix_gradient(target, BYTES[dtype], rows_each, n_left, n_right)
        yield _variant(f"{of}-gradient{suffix}", backward.matrix_gradient_kernel, dtype,
                       {"TILE_LEFT": tiles.rows, "TILE_RIGHT": tiles.columns, "STEP_ROWS": tiles.step,
                        "GROUP": configs.GROUP, "UPCAST": False,
                        "LEFT_BY_TOKEN": of == "gate", "RIGHT_BY_TOKEN": of == "down"}, tiles)  # fmt: skip


def _by_rows(
    name: str, kernel: Any, dtype: str, tiles: configs.Product, descriptors: bool, constants: dict[str, Any],
    **blocks: tuple[int, int],
) -> Variant:  # fmt: skip
    """A product whose programs each have a tile of sorted rows; `blocks` are the tiles of the experts' matrices."""
    descriptors = descriptors and tiles.descriptors
    constants |= {"TILE_ROWS": tiles.rows, "EXPERTS": configs.power_of_2(E), "GROUP": configs.GROUP,
                  "DESCRIPTORS": descriptors, "UPCAST": False}  # fmt: skip
    described = {matrix: f"tensordesc<{dtype}[1, {rows}, {columns}]>" for matrix, (rows, columns) in blocks.items()}
    return _variant(name, kernel, dtype, constants, tiles, described if descriptors else {})


def _variant(
    name: str, kernel: Any, dtype: str, constants: Mapping[str, Any], tiles: configs.Tiles | configs.Product,
    kinds: Mapping[str, str] | None = None,
) -> Variant:  # fmt: skip
    """With the type of each parameter from `constants`, `kinds`, or its name."""
    known = KINDS | dict(kinds or {}) | dict.fromkeys(constants, "constexpr")
    signature = {parameter: known.get(parameter, "i32" if parameter.startswith("stride_") else f"*{dtype}")
                 for parameter in kernel.arg_names}  # fmt: skip
    is_product = isinstance(tiles, configs.Product)
    return Variant(
        name=f"moe-{name}",
        operation="moe",
        kernel=kernel,
        signature=signature,
        constants=constants,
        divisible=tuple(parameter for parameter, kind in signature.items()
                        if kind.startswith(("*", "i32")) and parameter not in ODD),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        multiplies=is_product and dtype != "fp32",
        rows=tiles.rows,
        dtype=dtype,
    )  # fmt: skip
