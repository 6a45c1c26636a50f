"""What does the compiler make of the Triton kernels, for three generations of GPUs, on a machine without one?

Nothing is run, so nothing is said about speed. What can be counted without a GPU is registers, bytes spilled from them,
shared memory, matrix instructions, how much of a multiprocessor such programs can fill, and, in the model of two
memories, what the forward kernel's tiles move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attnbook.costs.io import attention_io
from attnbook.kernels.compile import compile_variant, report, variants
from attnbook.kernels.report import Report
from attnbook.kernels.targets import SM_80, SM_90, TARGETS
from attnbook.measure import experiment, measure

GUIDE = "CUDA C++ Programming Guide, Technical Specifications per Compute Capability"
FORWARD = "flash-forward-d128-bf16-causal"
MAIN = (
    FORWARD,
    "flash-backward-rows-d128-bf16",
    "flash-backward-keys-d128-bf16-causal",
    "flash-backward-queries-d128-bf16-causal",
    "decode-split-d128-bf16",
    "decode-merge-d128-bf16",
    "moe-choose-e64",
    "moe-gate-up-bf16",
    "moe-combine-bf16",
    "moe-gate-gradient-bf16",
)
"""One call of each kernel that a reader meets; of all others, and all other calls, the command and the tests know."""


@experiment
def run(tokens: int = 4096, processes: int = 2) -> dict[str, Any]:
    """Compile a usual call of the main kernels, `processes` side by side; what is moved is counted for `tokens`.

    Data: `reports`, one for each program; `by_name`, for each kernel its reports in the order of the targets.
    """
    reports = report(TARGETS, only=lambda variant: variant.name in MAIN, processes=processes)
    by_name = {name: [found for found in reports if found.name == name] for name in MAIN}
    if absent := [name for name, of_kernel in by_name.items() if len(of_kernel) != len(TARGETS)]:
        raise LookupError(f"no variant is called {' or '.join(absent)}")
    measure("gpu.targets", len({found.target for found in reports}))
    measure("gpu.kernels", len({found.kernel for found in reports}))
    measure("gpu.programs", len(reports))
    _measure_problems(reports)
    _measure_forward(by_name[FORWARD])
    _measure_instructions(reports)
    _measure_what_if()
    _measure_traffic(tokens)
    return {"reports": reports, "by_name": by_name}


def _measure_problems(reports: Sequence[Report]) -> None:
    """What must be zero, summed over all programs, and the limits."""
    measure("gpu.not_compiled", sum(bool(found.error) for found in reports))
    measure("gpu.spill_bytes", sum(found.spill_bytes for found in reports), unit="B")
    measure("gpu.stack_bytes", sum(found.stack_bytes for found in reports), unit="B")
    measure("gpu.over_limit", sum(found.shared_bytes > found.shared_limit for found in reports))
    measure("gpu.register_limit", SM_90.registers_per_thread, kind="cited", source=GUIDE)
    for target in TARGETS:
        measure(f"gpu.shared_limit_{target.name}", target.shared_bytes, unit="B", kind="cited", source=GUIDE)


def _measure_forward(reports: Sequence[Report]) -> None:
    """The forward kernel on each target."""
    for found in reports:
        measure(f"gpu.forward_registers_{found.target}", found.registers)
        measure(f"gpu.forward_shared_{found.target}", found.shared_bytes, unit="B")
        measure(f"gpu.forward_full_{found.target}", found.occupancy.share, unit="ratio")


def _measure_instructions(reports: Sequence[Report]) -> None:
    """Whether matrices are multiplied by the instruction meant for it, and tiles copied by the unit for that."""
    multiplying = [found for found in reports if found.wanted]
    measure("gpu.multiplying", len(multiplying))
    measure("gpu.without_matrix", sum(not found.matrix.get(found.wanted) for found in multiplying))
    own = {target.name: target.matrix_instruction for target in TARGETS}
    measure(
        "gpu.forward_has_own_instruction",
        all(found.matrix.get(own[found.target], 0) > 0 for found in reports if found.kernel == "forward_kernel"),
    )
    split = [found for found in reports if found.kernel == "split_kernel"]
    measure("gpu.decode_has_mma", all(found.matrix.get("mma.sync", 0) > 0 for found in split))
    copying = {target.name: [found.tma > 0 for found in reports if found.target == target.name] for target in TARGETS}
    measure("gpu.tma_where_it_is", any(copying["sm_90"]) and any(copying["sm_100"]) and not any(copying["sm_80"]))


def _measure_what_if() -> None:
    """The forward kernel compiled as no launch would, to see that the report notices."""
    (forward,) = (variant for variant in variants(SM_80) if variant.name == FORWARD)
    good = compile_variant(forward, SM_80)
    half = replace(forward, name="half the threads", num_warps=forward.num_warps // 2)
    measure("gpu.half_the_threads_spill", compile_variant(half, SM_80).spill_bytes > good.spill_bytes == 0)
    unknown = compile_variant(replace(forward, name="nothing known", divisible=()), SM_80)
    measure("gpu.divisibility_matters", unknown.registers != good.registers)


def _measure_traffic(tokens: int) -> None:
    """How many times as many numbers standard attention moves, with the tiles that the forward kernel has."""
    (forward,) = (variant for variant in variants(SM_90) if variant.name == FORWARD)
    head_dim, tile_q, tile_k = (forward.constants[name] for name in ("HEAD_DIM", "TILE_Q", "TILE_K"))
    moved = attention_io(tokens, head_dim=head_dim, is_causal=True, tile_q=tile_q, tile_k=tile_k)
    measure("gpu.traffic_ratio", moved.standard / moved.tiled, unit="ratio")
