"""What one compiled variant of a kernel uses, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from attnbook.kernels.occupancy import TENSOR_COLUMNS, Occupancy
from attnbook.kernels.variant import Variant


@dataclass(frozen=True)
class Report:
    """One variant on one target, as compiled; bytes of registers are of one thread, of shared memory of one block."""

    name: str
    operation: str
    kernel: str
    target: str
    """ "sm_90"."""
    head_dim: int | None
    dtype: str
    wanted: str
    """The matrix instruction that must be there; "" where none need be."""
    shared_limit: int
    """Bytes of shared memory that a block may have on the target."""
    registers: int = 0
    """32-bit registers of a thread."""
    stack_bytes: int = 0
    spill_bytes: int = 0
    """Bytes stored and loaded by instructions that are there because registers ran out."""
    shared_bytes: int = 0
    tensor_columns: int = 0
    """Columns of tensor memory of a block (compute capability 10.0)."""
    warps: int = 0
    """Warps of a block, those of specialised parts included."""
    matrix: Mapping[str, int] = field(default_factory=dict)
    """How often each matrix instruction stands in the program."""
    tma: int = 0
    """How often a copy by the tensor memory accelerator stands in the program."""
    occupancy: Occupancy = field(default_factory=Occupancy)
    error: str = ""
    """Why it did not compile; every figure is 0 then."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What must not be: a spill or a stack, memory over the limit, no matrix instruction where one is wanted."""
        if self.error:
            return (f"does not compile: {self.error}",)
        found = []
        if self.spill_bytes:
            found.append(f"spills: {self.spill_bytes} bytes stored and loaded for want of registers")
        if self.stack_bytes:
            found.append(f"stack: {self.stack_bytes} bytes a thread, expected none")
        if self.shared_bytes > self.shared_limit:
            found.append(f"shared memory: {self.shared_bytes} bytes, and {self.target} has {self.shared_limit} a block")
        if self.tensor_columns > TENSOR_COLUMNS:
            found.append(
                f"tensor memory: {self.tensor_columns} columns, and {self.target} has {TENSOR_COLUMNS} a multiprocessor"
            )
        if self.wanted and not self.matrix.get(self.wanted):
            others = ", ".join(name for name, count in self.matrix.items() if count) or "none"
            found.append(f"matrix instructions: expected {self.wanted}, found {others}")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """The fields, and `problems`."""
        data = asdict(self)
        data["problems"] = list(self.problems)
        return data


def failed(variant: Variant, target: str, shared_limit: int, error: Exception) -> Report:
    """The report of a variant that does not compile: the last line of what the compiler said stands in `error`."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return Report(
        name=variant.name,
        operation=variant.operation,
        kernel=variant.kernel.__name__,
        target=target,
        head_dim=variant.head_dim,
        dtype=variant.dtype,
        wanted="",
        shared_limit=shared_limit,
        error=f"{type(error).__name__}: {said[-1]}",
    )
