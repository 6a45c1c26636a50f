"""One way to compile a kernel: what `attnbook.kernels.compile` looks at and what a launch really uses.

A Triton kernel is a family: every tile size, dtype and option is a program of its own. A variant names one member by
everything that decides which program comes out: the types of its parameters, its compile-time constants, which of its
integers are multiples of 16, and how many warps and pipeline stages it has. Each operation lists its own in
`attnbook.kernels.<operation>.variants`, from the same functions that its launches take their configurations from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALWAYS: Mapping[str, Any] = {"enable_fp_fusion": True}
"""Options of the compiler for every launch: a·b + c in one instruction, which Triton will stop doing unasked (3.10)."""


@dataclass(frozen=True)
class Variant:
    """One kernel with everything that decides which program the compiler makes of it.

    `signature` maps each parameter of the kernel, in order, to its type as Triton writes it ("*bf16", "*fp32", "*i32",
    "i32", "i64", "fp32") or to "constexpr"; `constants` gives the value of each of the latter. `divisible` are the
    parameters that are multiples of 16 (pointers: of 16 bytes) in a usual launch: a launch tells the compiler so, and
    another kernel comes out without.
    """

    name: str
    """What the report calls it, unique among all variants: "forward-d128-bf16-causal"."""
    operation: str
    """The room it belongs to: "flash", "decode" or "moe"."""
    kernel: Any
    """The `@triton.jit` function."""
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    divisible: tuple[str, ...] = ()
    num_warps: int = 4
    num_stages: int = 2
    multiplies: bool = True
    """Whether the target's matrix instruction must be found in the compiled program."""
    rows: int = 128
    """Rows of its smallest product's left factor: below 64 the instructions of newer cards have no use."""
    head_dim: int | None = None
    """The width of a head, of the keys; None where the kernel has no heads."""
    dtype: str = "bf16"
    """What it computes on, as Triton writes it: "bf16", "fp16" or "fp32"."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the compiler that this launch sets, beside ALWAYS ("maxnreg", …)."""

    def __post_init__(self) -> None:
        """Refuse a variant whose parts do not fit together; the compiler's own words for it come late and obscure."""
        constexprs = {parameter for parameter, kind in self.signature.items() if kind == "constexpr"}
        if constexprs != set(self.constants):
            raise ValueError(
                f"{self.name}: the parameters that are constexpr in the signature are {sorted(constexprs)}, "
                f"those with a value in constants {sorted(self.constants)}"
            )
        unknown = set(self.divisible) - (set(self.signature) - constexprs)
        if unknown:
            raise ValueError(f"{self.name}: divisible names {sorted(unknown)}, which are no arguments of the kernel")
