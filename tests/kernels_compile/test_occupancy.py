"""How many blocks fit on a multiprocessor, against sums done by hand."""

import pytest

pytest.importorskip("torch", reason="targets need torch")

from attnbook.kernels.occupancy import Occupancy, occupancy
from attnbook.kernels.targets import SM_80, SM_90, SM_100
from attnbook.kernels.variant import Variant


def test_registers_decide():
    """128 registers: 4096 a warp, 4 in each quarter, so 16 warps, 2 blocks of 8."""
    found = occupancy(SM_90, registers=128, warps=8, shared_bytes=0)
    assert found == Occupancy(2, 16, 0.25, ("registers",))


def test_registers_are_handed_out_in_eights():
    """97 become 104: 3328 a warp, 4 in each quarter; 96 are 3072, and 5 fit."""
    assert occupancy(SM_90, registers=96, warps=4, shared_bytes=0).blocks == 5
    assert occupancy(SM_90, registers=97, warps=4, shared_bytes=0).blocks == 4


def test_a_warp_lies_in_one_quarter():
    """168 registers are 5376 a warp: 12 fit in the whole by the sum alone, and 12 do as 3 in each quarter; 13 don't."""
    assert occupancy(SM_90, registers=168, warps=12, shared_bytes=0).blocks == 1
    assert occupancy(SM_90, registers=168, warps=1, shared_bytes=0).blocks == 12
    # 136: 4352 a warp; 15 in one piece, but only 3 in each quarter of 16384.
    assert occupancy(SM_90, registers=136, warps=1, shared_bytes=0).blocks == 12


@pytest.mark.parametrize(
    ("target", "kib", "blocks"),
    [(SM_80, 163, 1), (SM_80, 81, 2), (SM_80, 82, 1), (SM_90, 227, 1), (SM_90, 113, 2), (SM_100, 114, 1)],
)
def test_shared_memory_decides(target, kib, blocks):
    """Each block costs 1 KiB beside what it asked for; 164 and 228 KiB are to be had."""
    found = occupancy(target, registers=32, warps=4, shared_bytes=kib * 1024)
    assert (found.blocks, found.limits) == (blocks, ("shared memory",))


def test_a_block_that_does_not_fit():
    """One byte over the limit, and none fits."""
    assert occupancy(SM_80, registers=32, warps=4, shared_bytes=163 * 1024 + 1) == Occupancy(
        0, 0, 0.0, ("shared memory",)
    )


def test_small_blocks():
    """Nothing but their number keeps more out: 32 blocks, or 2048 threads."""
    assert occupancy(SM_90, registers=16, warps=1, shared_bytes=0) == Occupancy(32, 32, 0.5, ("blocks",))
    assert occupancy(SM_90, registers=16, warps=4, shared_bytes=0) == Occupancy(16, 64, 1.0, ("threads",))


def test_tensor_memory_decides():
    """Of 512 columns a block with 256 leaves place for one more."""
    found = occupancy(SM_100, registers=64, warps=4, shared_bytes=0, tensor_columns=256)
    assert found == Occupancy(2, 8, 0.125, ("tensor memory",))


def test_a_variant_whose_constants_do_not_fit_is_refused():
    """Every constexpr has a value, and nothing else has."""
    with pytest.raises(ValueError, match=r"v: .* constexpr in the signature are \['N'\], .* constants \['M'\]"):
        Variant("v", "test", None, {"a": "*bf16", "N": "constexpr"}, {"M": 3})


def test_a_variant_with_an_unknown_divisible_is_refused():
    """What is divisible is an argument: neither unknown nor a constant."""
    with pytest.raises(ValueError, match=r"v: divisible names \['N', 'b'\], which are no arguments of the kernel"):
        Variant("v", "test", None, {"a": "*bf16", "N": "constexpr"}, {"N": 3}, ("a", "b", "N"))
