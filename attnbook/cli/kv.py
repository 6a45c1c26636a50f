"""`attnbook kv`: how large the KV cache of a model becomes, whether it fits beside the weights, and what would.

Exit status 1 where it does not fit. Loads neither torch nor anything else outside the standard library.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from attnbook.cli import FINE, FOUND, CannotRun, print_json
from attnbook.costs.budget import WEIGHTS_NEEDED, Budget, budget, changes
from attnbook.costs.dtypes import bytes_of
from attnbook.costs.kv import kv_cache_layers
from attnbook.costs.models import model, names
from attnbook.costs.sizes import UNITS, size_in_bytes


def main(arguments: Sequence[str]) -> int:
    """Read the model's shape, count, print a table or JSON, and say in the exit status whether it fits."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(names()))
        return FINE
    if (options.model is None) == (options.config is None):
        raise CannotRun("give one of --model NAME (--list prints the names) and --config path/to/config.json")
    if options.context is None:
        raise CannotRun("--context N is needed: tokens of a request, prompt and answer together")
    try:
        found = budget(
            model(options.model) if options.config is None else options.config,
            context=options.context, requests=options.requests, weights=options.weights,
            weights_dtype=options.weights_dtype, kv_dtype=options.kv_dtype, memory=options.gpu_memory,
            gpus=options.gpus, reserve=options.reserve,
        )  # fmt: skip
    except (ValueError, OSError) as error:
        advice = error.args and str(error).endswith(WEIGHTS_NEEDED)
        raise CannotRun(f"{error}, as in --weights 14GiB" if advice else str(error)) from error
    if options.json:
        print_json(_as_json(found))
    else:
        print("\n".join(_told(found)))
    return FINE if found.fits else FOUND


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnbook kv",
        description="The KV cache of a model as a budget: its size, whether it fits beside the weights, what would. "
        "Exit status: 0 it fits (or no --gpu-memory was given), 1 it does not, 2 it could not be counted.",
        epilog="Sizes have a unit: 80GiB is 80 · 2³⁰ bytes, 80GB is 80 · 10⁹. Space of the runtime, of activations and "
        "of pages half filled is not counted: --reserve keeps some.",
    )
    add = parser.add_argument
    add("--model", metavar="NAME", help="a model of the table, as Llama-3.1-8B")
    add("--config", metavar="PATH", help="any Hugging Face config.json, or the folder that holds it")
    add("--list", action="store_true", help="print the names of the table and stop")
    add("--context", metavar="N", type=_count, help="tokens of a request, prompt and answer together")
    add("--requests", metavar="N", type=_count, default=1, help="requests at a time (default: 1)")
    add("--gpu-memory", metavar="SIZE", type=size, help="memory of one GPU, as 80GiB")
    add("--gpus", metavar="N", type=_count, default=1, help="GPUs that share weights and cache evenly (default: 1)")
    add(
        "--reserve", metavar="SIZE", type=size, default=0, help="memory of each GPU kept for other things (default: 0B)"
    )
    add("--weights", metavar="SIZE", type=size, help="size of all weights, where it is known; else they are counted")
    add("--weights-dtype", metavar="TYPE", default="bfloat16", help="type of the weights (default: bfloat16)")
    add("--kv-dtype", metavar="TYPE", default="bfloat16", help="type of the cached numbers (default: bfloat16)")
    add("--json", action="store_true", help="print JSON")
    return parser


def size(text: str) -> int:
    """Bytes from a number and a unit, as 80GiB; argparse says what is wrong with anything else."""
    try:
        return size_in_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if re.fullmatch(r"\d[\d_]*", text) is None or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def binary(n: int) -> str:
    """Bytes in the unit that reads best, as 240.0 GiB."""
    unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if abs(n) >= UNITS[unit.upper()]), "B")
    return f"{n} B" if unit == "B" else f"{n / UNITS[unit.upper()]:.1f} {unit}"


def _told(found: Budget) -> list[str]:
    shape = found.shape
    token = bytes_of(shape.kv_elements, found.kv_dtype)
    rows = [
        ("model", shape.name, f"{shape.attention}, {shape.layers} layers, {shape.n_heads} query heads, {_kept(found)}"),
        ("weights", binary(found.weights), found.weights_dtype),
        ("KV cache", binary(found.cache), f"{found.requests} × {found.context} tokens, {found.kv_dtype}, "
         f"{binary(token)} a token and layer"),
        *_layer_rows(found),
        ("together", binary(found.needed), ""),
    ]  # fmt: skip
    if found.room is not None:
        of = f"{found.gpus} GPU{'s' if found.gpus > 1 else ''} of {binary(found.memory or 0)}"
        less = f", {binary(found.reserve)} of each kept for other things" if found.reserve else ""
        rows.append(("room", binary(found.room), of + less))
    if shape.context is not None and found.context > shape.context:
        rows.append(("note", f"{found.context}", f"tokens are more than the {shape.context} the model was made for"))
    left = max(len(row[0]) for row in rows)
    middle = max(len(row[1]) for row in rows)
    lines = [f"{a:<{left}}  {b:>{middle}}  {c}".rstrip() for a, b, c in rows]
    return lines if found.room is None else [*lines, "", *_verdict(found, found.room)]


def _kept(found: Budget) -> str:
    shape = found.shape
    if shape.latent is not None:
        return f"{shape.kv_elements} latent numbers a token"
    return f"{shape.n_kv_heads} key/value heads of {shape.head_dim}"


def _layer_rows(found: Budget) -> list[tuple[str, str, str]]:
    """A row for each kind of layer, where there are several."""
    layers = kv_cache_layers(found.shape, tokens=found.context, requests=found.requests, dtype=found.kv_dtype)
    alike = {kind: list(group) for kind, group in groupby(sorted(layers, key=_kind), key=_kind)}
    if len(alike) == 1:
        return []
    return [
        (f"  {kind}", binary(sum(layer.bytes for layer in group)),
         f"{len(group)} layers, " + (f"{tokens // found.requests} tokens of each request" if tokens else "none kept"))
        for (kind, tokens), group in alike.items()
    ]  # fmt: skip


def _kind(layer: Any) -> tuple[str, int]:
    return layer.kind, layer.tokens


def _verdict(found: Budget, room: int) -> list[str]:
    if found.fits:
        lines = [f"It fits: {binary(room - found.needed)} are left."]
        most, longest = found.most_requests, found.longest_context
        if most is not None and longest is not None:
            lines.append(
                f"Up to {most} requests of this length, or {longest} tokens for each of so many requests, fit."
            )
        return lines
    lines = [f"It does not fit: {binary(found.needed - room)} too much."]
    if found.weights > room:
        lines.append(f"The weights alone are {binary(found.weights - room)} too large.")
    ways = changes(found)
    if not ways:
        return [*lines, "Nothing that is known here makes it fit."]
    width = max(len(way.what) for way in ways)
    told = (f"  {way.what:<{width}}  {binary(way.budget.needed)} of {binary(way.budget.room or 0)}" for way in ways)
    return [*lines, "It fits with", *told]


def _as_json(found: Budget) -> dict[str, Any]:
    layers = kv_cache_layers(found.shape, tokens=found.context, requests=found.requests, dtype=found.kv_dtype)
    return {
        "model": found.shape.name,
        "attention": found.shape.attention,
        "context": found.context,
        "requests": found.requests,
        "weights_bytes": found.weights,
        "weights_dtype": found.weights_dtype,
        "kv_dtype": found.kv_dtype,
        "kv_cache_bytes": found.cache,
        "kv_bytes_a_token_and_layer": bytes_of(found.shape.kv_elements, found.kv_dtype),
        "layers": [{"kind": x.kind, "tokens": x.tokens, "bytes": x.bytes} for x in layers],
        "room_bytes": found.room,
        "fits": None if found.room is None else found.fits,
        "changes": [
            {"what": way.what, "requests": way.budget.requests, "context": way.budget.context, "gpus": way.budget.gpus,
             "weights_dtype": way.budget.weights_dtype, "kv_dtype": way.budget.kv_dtype,
             "needed_bytes": way.budget.needed, "room_bytes": way.budget.room}
            for way in changes(found)
        ],
    }  # fmt: skip
