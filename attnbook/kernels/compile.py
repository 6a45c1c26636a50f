"""What the compiler makes of the kernels, for three generations of cards, on a machine without a GPU.

Every variant of every operation is compiled by Triton and by the ptxas that lies in its package, then the machine code
is asked what it uses: registers, bytes spilled from them, shared memory, matrix instructions. What stands out: a
variant is compiled as a launch would compile it, with the same tile sizes and with what a launch knows about
divisibility. Another kernel comes out otherwise, and its figures would say nothing about the one that runs.

Nothing here runs a kernel, so nothing here says how fast one is.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import io
import multiprocessing
import pkgutil
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnbook import kernels
from attnbook.errors import BackendUnavailable
from attnbook.kernels.available import interpreting, of_triton, triton_module
from attnbook.kernels.occupancy import occupancy
from attnbook.kernels.report import Report, failed
from attnbook.kernels.targets import TARGETS, Target
from attnbook.kernels.variant import ALWAYS, Variant

MATRIX = ("mma.sync", "wgmma.mma_async", "tcgen05.mma")
"""The matrix instructions of compute capability 8.0, 9.0 and 10.0, as they stand in PTX."""

TMA = r"(?<![\w.])cp\.(?:reduce\.)?async\.bulk\.tensor\."
"""Copies of whole tiles by the tensor memory accelerator, as they stand in PTX."""


def operations() -> tuple[str, ...]:
    """The operations that have kernels to compile: the folders of this package with a `variants` in them."""
    folders = (module.name for module in pkgutil.iter_modules(kernels.__path__) if module.ispkg)
    return tuple(sorted(name for name in folders if _has_variants(name)))


def variants(target: Target) -> tuple[Variant, ...]:
    """Every variant of every operation for one target, in a fixed order.

    Raises ValueError where two have one name.
    """
    found: dict[str, Variant] = {}
    for operation in operations():
        of_operation: Callable[[Target], Iterator[Variant]] = importlib.import_module(
            f"attnbook.kernels.{operation}.variants"
        ).variants
        for variant in of_operation(target):
            if variant.name in found:
                raise ValueError(f"two variants are called {variant.name}")
            found[variant.name] = variant
    return tuple(found.values())


def report(
    targets: Iterable[Target] = TARGETS,
    only: Callable[[Variant], bool] = lambda variant: True,
    *,
    processes: int = 1,
) -> list[Report]:
    """Compile all variants for which `only` holds, for each of the targets, and say what came out.

    A variant that does not compile is reported as such; the others go on. With more than one of them, `processes` work
    side by side, and each imports the kernels anew.

    Raises BackendUnavailable without Triton, and in a process that interprets the kernels.
    """
    require_compiler()
    jobs = [(target, variant) for target in targets for variant in variants(target) if only(variant)]
    if processes == 1 or len(jobs) < 2:
        return [_compiled(target, variant) for target, variant in jobs]
    # Spawned, not forked: the parent may hold torch's or a notebook's threads.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, context) as pool:
        named = [(target.capability, variant.name) for target, variant in jobs]
        return list(pool.map(_compiled_by_name, *zip(*named, strict=True)))


def require_compiler() -> None:
    """Raises BackendUnavailable, with the reason, where the kernels cannot be compiled in this process."""
    if why := of_triton():
        raise BackendUnavailable(why)
    if interpreting():
        raise BackendUnavailable(
            "triton: this process interprets the kernels (TRITON_INTERPRET is set), and a kernel is either interpreted "
            "or compiled: compile in a process of its own, without TRITON_INTERPRET"
        )


def compile_variant(variant: Variant, target: Target) -> Report:
    """Compile one variant for one target and read what the machine code uses.

    Raises BackendUnavailable as `report` does, ValueError where the signature is not the kernel's, and whatever
    Triton raises for a kernel that does not compile.
    """
    require_compiler()
    compiled = _compile(variant, target)
    ptx: str = compiled.asm["ptx"]
    registers, stack_bytes = _resources(compiled.asm["cubin"])
    warps = _threads(ptx) // target.threads_per_warp
    columns: int = getattr(compiled.metadata, "tmem_size", None) or 0
    shared_bytes: int = compiled.metadata.shared
    return Report(
        name=variant.name,
        operation=variant.operation,
        kernel=variant.kernel.__name__,
        target=target.name,
        head_dim=variant.head_dim,
        dtype=variant.dtype,
        wanted=_wanted(variant, target),
        registers=registers,
        stack_bytes=stack_bytes,
        # What is spilled lies in the stack: without one, nothing was.
        spill_bytes=_spilled(variant, target) if stack_bytes else 0,
        shared_bytes=shared_bytes,
        shared_limit=target.shared_bytes,
        tensor_columns=columns,
        warps=warps,
        matrix={name: len(re.findall(rf"(?<![\w.]){re.escape(name)}\b", ptx)) for name in MATRIX},
        tma=len(re.findall(TMA, ptx)),
        occupancy=occupancy(
            target, registers=registers, warps=warps, shared_bytes=shared_bytes, tensor_columns=columns
        ),
    )


def _wanted(variant: Variant, target: Target) -> str:
    """The matrix instruction that must be found; "" where none need be.

    Those of compute capability 9.0 and 10.0 multiply tiles of 64 rows and more; below, mma.sync is what these cards
    have too.
    """
    if not variant.multiplies:
        return ""
    return target.matrix_instruction if variant.rows >= 64 else MATRIX[0]


def _compile(variant: Variant, target: Target) -> Any:
    """The compiled kernel, out of Triton's cache where it was compiled before from the same source."""
    triton = triton_module()
    names = list(variant.kernel.arg_names)
    if list(variant.signature) != names:
        raise ValueError(
            f"{variant.name}: the signature has the parameters {', '.join(variant.signature)}, "
            f"the kernel {', '.join(names)}"
        )
    source = triton.compiler.ASTSource(
        fn=variant.kernel,
        signature=dict(variant.signature),
        constexprs=dict(variant.constants),
        attrs={(names.index(parameter),): [["tt.divisibility", 16]] for parameter in variant.divisible},
    )
    major, minor = target.capability
    card = importlib.import_module("triton.backends.compiler").GPUTarget(
        "cuda", 10 * major + minor, target.threads_per_warp
    )
    options = {**ALWAYS, "num_warps": variant.num_warps, "num_stages": variant.num_stages, **variant.options}
    return triton.compile(source, target=card, options=options)


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers a thread and bytes of stack, as cuobjdump reads them out of the machine code; the most of its parts."""
    with tempfile.TemporaryDirectory(prefix="attnbook-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        tool = triton_module().knobs.nvidia.cuobjdump.path
        said = subprocess.run([tool, "-res-usage", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\bREG:(\d+) STACK:(\d+)", said)
    if not found:
        raise RuntimeError(f"cuobjdump -res-usage says nothing about registers: {said!r}")
    registers, stack = zip(*((int(a), int(b)) for a, b in found), strict=True)
    return max(registers), max(stack)


def _spilled(variant: Variant, target: Target) -> int:
    """Bytes written to and read from memory because registers ran out: the compiler is run once more, and listened to.

    They are counted once for each instruction in the program, not for each time that it runs.
    """
    knobs = triton_module().knobs
    log = io.StringIO()
    with knobs.compilation.scope(), knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        _compile(variant, target)
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log.getvalue())
    if not found:
        raise RuntimeError(f"ptxas says nothing about spills: {log.getvalue()!r}")
    return sum(int(stores) + int(loads) for stores, loads in found)


def _threads(ptx: str) -> int:
    """Threads of a block. More than num_warps says where warps were specialised: those that load come on top."""
    found = re.search(r"^\.(?:reqntid|maxntid) (\d+)", ptx, re.MULTILINE)
    if found is None:
        raise RuntimeError("the PTX does not say how many threads a block has (.reqntid)")
    return int(found[1])


def _compiled(target: Target, variant: Variant) -> Report:
    try:
        return compile_variant(variant, target)
    except Exception as error:  # whatever the compiler raises, the report has a line for it and goes on
        return failed(variant, target.name, target.shared_bytes, error)


def _compiled_by_name(capability: tuple[int, int], name: str) -> Report:
    """In a process of its own, to which a kernel can't be sent: it is found there by its name."""
    target, by_name = _at_hand(capability)
    return _compiled(target, by_name[name])


@functools.cache
def _at_hand(capability: tuple[int, int]) -> tuple[Target, dict[str, Variant]]:
    target = next(target for target in TARGETS if target.capability == capability)
    return target, {variant.name: variant for variant in variants(target)}


def _has_variants(operation: str) -> bool:
    return any(Path(folder, operation, "variants.py").is_file() for folder in kernels.__path__)


def usual(found: Sequence[Variant]) -> list[Variant]:
    """Of each kernel and head_dim the call that is met most: in bfloat16, with no option but causality.

    A kernel that does not know bfloat16 comes with all its variants, one that is launched for an option only with the
    first of those.
    """
    of_bf16 = [variant for variant in found if variant.dtype == "bf16"]
    without = {variant.kernel for variant in found} - {variant.kernel for variant in of_bf16}
    chosen = {variant.name: variant for variant in found if variant.kernel in without}
    for variant in of_bf16:
        if variant.name.endswith(("-bf16", "-bf16-causal")):
            chosen[variant.name.removesuffix("-causal")] = variant  # the causal one where there are both
    covered = {(variant.kernel, variant.head_dim) for variant in chosen.values()}
    for variant in of_bf16:
        if (variant.kernel, variant.head_dim) not in covered:
            covered.add((variant.kernel, variant.head_dim))
            chosen[variant.name] = variant
    return list(chosen.values())


def select(names: Sequence[str]) -> Callable[[Variant], bool]:
    """What `only` is for variants whose name, operation or kernel holds one of the words; all, without words."""
    return lambda variant: (
        not names
        or any(word in part for word in names for part in (variant.name, variant.operation, variant.kernel.__name__))
    )
