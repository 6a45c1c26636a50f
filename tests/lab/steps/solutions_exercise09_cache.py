"""Right and wrong solutions of chapter 9b's exercise as source text: of each mistake at least two."""

from __future__ import annotations

from tests.lab.steps.written import function, with_numpy, with_torch

BYTES = function("kv_cache_bytes(layers, n_kv_heads, head_dim, tokens, requests, bytes_per_number)")
ALL = "layers * n_kv_heads * head_dim * tokens * requests * bytes_per_number"


def product(factors: str) -> str:
    """The product of these."""
    return BYTES(f"return {factors}")


def without(name: str) -> list[str]:
    """Everything but that argument, in two ways."""
    rest = [n for n in ALL.split(" * ") if n != name]
    return [product(f"2 * {' * '.join(rest)}"), "import math\n" + product(f"math.prod([{', '.join(rest)}, 2])")]


RIGHT = {
    "product": product(f"2 * {ALL}"),
    "prod": "import math\ndef kv_cache_bytes(*sizes):\n    return 2 * math.prod(sizes)\n",
    "keys and values": BYTES(
        "keys = n_kv_heads * head_dim\nvalues = n_kv_heads * head_dim\n"
        "return requests * tokens * layers * (keys + values) * bytes_per_number"
    ),
    "a loop over layers": BYTES(
        "layer = 2 * n_kv_heads * head_dim * tokens * requests * bytes_per_number\n"
        "return sum(layer for _ in range(layers))"
    ),
    "whole": product(f"int({ALL} * 2)"),
    "float64": with_numpy(BYTES(f"return np.float64(2) * {ALL}")),
    "numpy": with_numpy(BYTES(f"return np.prod([2.0, {ALL.replace(' *', ',')}])")),
    "torch": with_torch(BYTES(f"return torch.tensor(2.0 * {ALL})")),
    "through bits": product("2 * layers * n_kv_heads * head_dim * tokens * requests * (bytes_per_number * 8) / 8"),
    "loops": BYTES(
        "count = 0\nfor kind in ('key', 'value'):\n    count += layers * requests * tokens * n_kv_heads * head_dim\n"
        "return count * bytes_per_number"
    ),
}  # fmt: skip

WRONG = {
    "one_of_two": [product(ALL), "from math import prod\ndef kv_cache_bytes(*sizes):\n    return prod(sizes)\n"],
    "one_layer": without("layers"),
    "one_head": without("n_kv_heads"),
    "one_component": without("head_dim"),
    "one_token": without("tokens"),
    "one_request": without("requests"),
    "one_byte": without("bytes_per_number"),
    "in_bits": [product(f"2 * {ALL} * 8"), product(f"16 * {ALL}")],
    "bits_for_bytes": [product(f"2 * {ALL} / 8"), product(f"{ALL} / 4")],
    "pairs": [product(f"2 * {ALL} * tokens"), product(f"2 * {ALL.replace('tokens', 'tokens ** 2')}")],
    "other_unit": [product(f"2 * {ALL} / 1024"), product(f"2 * {ALL} / 2 ** 30"), product(f"2 * {ALL} / 1e9")],
}
