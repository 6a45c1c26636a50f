"""The compile report broken: it counts nothing or looks for the wrong thing, and kernels that spill."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

COMPILE = "attnbook/kernels/compile.py"
OCCUPANCY = "attnbook/kernels/occupancy.py"
TARGETS = "attnbook/kernels/targets.py"
CONFIGS = "attnbook/kernels/flash/configs.py"

KERNELS = (
    Mutation(
        "spills are counted as none",
        COMPILE,
        "return sum(int(stores) + int(loads) for",
        "return sum(0 * int(stores) * int(loads) for",
        "gpu.half_the_threads_spill",
    ),
    Mutation(
        "the compiler is not told what is divisible",
        COMPILE,
        "for parameter in variant.divisible}",
        "for parameter in ()}",
        "gpu.divisibility_matters",
    ),
    Mutation(
        "Hopper is content with Ampere's instruction",
        TARGETS,
        '9: "wgmma.mma_async"',
        '9: "mma.sync"',
        "gpu.without_matrix",
    ),
    Mutation(
        "a block may have all of a multiprocessor's shared memory",
        TARGETS,
        'Target("sm_80", (8, 0), shared_bytes=163 * KIB',
        'Target("sm_80", (8, 0), shared_bytes=164 * KIB',
        "gpu.shared_limit_sm_80",
    ),
    Mutation(
        "occupancy forgets that a block has several warps",
        OCCUPANCY,
        "* QUARTERS // warps",
        "* QUARTERS",
        "gpu.forward_full_sm_80",
    ),
    Mutation(
        "a tile for eight warps in four",
        CONFIGS,
        "Config(128, 64, num_warps=8, num_stages=2)",
        "Config(128, 64, num_warps=4, num_stages=2)",
        "gpu.spill_bytes",
    ),
)
