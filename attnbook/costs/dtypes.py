"""How many bits a number takes in memory, by the name of its type; types below a byte are counted packed."""

from __future__ import annotations

from attnbook.costs.flops import check_size

_BITS = {
    64: ("float64", "int64"),
    32: ("float32", "int32"),
    16: ("bfloat16", "float16", "int16"),
    8: ("float8", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"),
    4: ("float4", "int4", "uint4"),
}
_BITS_OF = {name: bits for bits, names in _BITS.items() for name in names}
_SHORT = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "fp4": "float4",
}


def dtype_bits(dtype: object) -> int:
    """The bits of one number of a type: `dtype_bits("bfloat16")` is 16.

    Takes a name (`"int8"`, `"fp8"`, `"torch.float16"`) or an object that prints as one, such as `torch.bfloat16`.
    Raises ValueError that lists the known names.
    """
    name = str(dtype).removeprefix("torch.").lower()
    name = _SHORT.get(name, name)
    if name not in _BITS_OF:
        raise ValueError(f"dtype: expected one of {', '.join(_BITS_OF)}, got {dtype!r}")
    return _BITS_OF[name]


def bytes_of(elements: int, dtype: object) -> int:
    """The bytes of so many numbers of a type, stored side by side, rounded up to a whole byte.

    Two 4-bit numbers share a byte. The scales and zero points that quantised numbers need are not counted: they are a
    choice of the format (one 16-bit scale for 32 numbers adds half a bit to each). Raises ValueError for an unknown
    type, and for a number of them that is no whole number of at least 0.
    """
    check_size("elements", elements)
    return -(-elements * dtype_bits(dtype) // 8)
