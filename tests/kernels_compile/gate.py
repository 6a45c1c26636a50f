"""Compile the package's kernels in bfloat16 for one target and print what is wrong with each.

    python -m tests.kernels_compile.gate sm_90          the usual variant of every kernel, and one with every option
    python -m tests.kernels_compile.gate sm_90 --all    every variant

Exit status 1 where anything is wrong. The last line says how many were looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attnbook.kernels.compile import report, usual, variants
from attnbook.kernels.targets import TARGETS, Target

HEAD_DIMS = (64, 128, 256)


def gated(target: Target, *, every: bool) -> set[str]:
    """Names of the variants that must be fine: in bfloat16, and all of a kernel that does not know that type.

    Of these the default tests compile the usual call of each kernel and head_dim, and at head_dim 128 the call with
    every option.
    """
    found = variants(target)
    in_bf16 = {variant.kernel for variant in found if variant.dtype == "bf16"}
    must = [
        variant
        for variant in found
        if variant.head_dim in (None, *HEAD_DIMS) and (variant.dtype == "bf16" or variant.kernel not in in_bf16)
    ]
    if every:
        return {variant.name for variant in must}
    return {variant.name for variant in (*usual(must), *(v for v in must if v.name.endswith("-d128-bf16-everything")))}


def main(arguments: Sequence[str]) -> int:
    """Compile and print."""
    target = next(target for target in TARGETS if target.name == arguments[0])
    names = gated(target, every="--all" in arguments)
    reports = report([target], lambda variant: variant.name in names, processes=2 if "--all" in arguments else 1)
    wrong = [f"{r.name} on {r.target}: {problem}" for r in reports for problem in r.problems]
    print("\n".join([*wrong, f"{len(reports)} compiled for {target.name}"]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
