"""A service's KV cache as a budget: the command on one example, and what each way out of it changes.

    requests · context · bytes a token  ≤  memory of the GPUs − weights

The first sizes are read from what `attnbook kv --json` prints, to one GPU; the ways out are counted with
`attnbook.costs.budget`, for several.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnbook.costs import Budget, ModelShape, budget, model
from attnbook.experiments._command import command
from attnbook.measure import experiment, measure

GIB = 1 << 30


@experiment
def run(
    name: str = "Llama-3.1-70B", context: int = 32768, requests: int = 24, memory: int = 80, gpus: int = 4,
    shorter: int = 8192, window: int = 4096,
) -> Any:  # fmt: skip
    """`memory` in GiB, of one GPU. Data: `printed`, what the command says; `ways`, a `Budget` by way out."""
    asked = ("--model", name, "--context", str(context), "--requests", str(requests), "--gpu-memory", f"{memory}GiB")
    found = command("kv", *asked, "--json").data
    measure("practice.kv_token_layer", found["kv_bytes_a_token_and_layer"], unit="B")
    measure("practice.kv_token", found["kv_bytes_a_token_and_layer"] * len(found["layers"]), unit="B")
    measure("practice.kv_cache", found["kv_cache_bytes"], unit="B")
    measure("practice.kv_weights", found["weights_bytes"], unit="B")
    measure("practice.kv_does_not_fit", found["fits"] is False)
    measure("practice.kv_gpus_needed", next(way["gpus"] for way in found["changes"] if way["gpus"] > 1))
    whole = [way for way in found["changes"] if way["gpus"] == 1 and way["context"] == context]
    measure("practice.kv_most_on_one", max((way["requests"] for way in whole), default=0))

    shape = model(name)
    now = budget(shape, context=context, requests=requests, memory=memory * GIB, gpus=gpus)
    measure("practice.kv_room", now.room, unit="B")
    measure("practice.kv_left", (now.room or 0) - now.weights, unit="B")
    ways = {
        "now": now,
        "no_groups": _other(now, replace(shape, n_kv_heads=shape.n_heads)),
        "shorter": replace(now, context=shorter),
        "window": _other(now, replace(shape, windows=every_second(shape, window))),
        "float8": now.with_types(now.weights_dtype, "float8"),
        "small_weights": now.with_types("int4", now.kv_dtype),
    }
    for way, changed in ways.items():
        measure(f"practice.kv_{way}_cache", changed.cache, unit="B", quote=way not in ("now", "small_weights"))
        measure(f"practice.kv_{way}_requests", changed.most_requests or 0)
    return {"printed": command("kv", *asked).text, "ways": ways}


def _other(now: Budget, shape: ModelShape) -> Budget:
    """The same for a model with another cache, its weights taken to be as large."""
    return replace(now, shape=shape)


def every_second(shape: ModelShape, window: int) -> tuple[int | None, ...]:
    """Windows in the layers 0, 2, 4, …, and none in the others."""
    return tuple(None if layer % 2 else window for layer in range(shape.layers))
