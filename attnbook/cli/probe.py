"""`attnbook probe module:callable`: the probes on a model of your own, from the command line.

Exit status 1 where one of them found something.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from attnbook.cli import FINE, FOUND, CannotRun, print_json

if TYPE_CHECKING:
    from torch import Tensor

    from attnbook.probes import Report

USUAL = ("causal_leak", "batch_dependence", "overflow")
"""What a language model should pass; that order does not matter is asked of few."""

PROBES = (*USUAL, "permutation_equivariance")


def main(arguments: Sequence[str]) -> int:
    """Import the callable, draw an input, run the probes and print their reports or JSON."""
    parser = argparse.ArgumentParser(
        prog="attnbook probe",
        description="Run probes on a torch.nn.Module or a function of one tensor, found as module:name (the current "
        "folder is searched first). A module is put into evaluation mode.",
        epilog="Without --tokens the input is standard normal numbers (b, t, ...); with it, whole numbers (b, t). "
        "Probes that run when none is named: " + ", ".join(USUAL) + ".",
    )
    parser.add_argument("target", metavar="module:callable", help="for example my_model:model")
    parser.add_argument("--shape", metavar="2,11,64", required=True, type=_shape, help="axes of the input, from b on")
    parser.add_argument("--tokens", metavar="N", type=int, help="the input is tokens below N")
    parser.add_argument("--dtype", default="float32", help="dtype of an input of numbers (default: float32)")
    parser.add_argument("--seed", type=int, default=0, help="of the input and of the probes' draws (default: 0)")
    parser.add_argument(
        "--probe", metavar="NAME", action="append", default=[], choices=PROBES,
        help=f"one of {', '.join(PROBES)}; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--call", action="store_true", help="the target makes the model: call it once, without arguments"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    fn = _found(options.target, call=options.call)
    x = _input(options.shape, options.tokens, options.dtype, options.seed)
    reports = [_run(name, fn, x, options) for name in dict.fromkeys(options.probe or USUAL)]
    if options.json:
        print_json([{"probe": r.probe, "ok": r.ok, "checked": r.checked, "look": r.look,
                     "findings": [asdict(finding) for finding in r.findings]} for r in reports])  # fmt: skip
    else:
        print("\n".join(map(str, reports)))
    return FINE if all(report.ok for report in reports) else FOUND


def _shape(text: str) -> tuple[int, ...]:
    sizes = text.split(",")
    if not all(size.strip().isdecimal() and int(size) for size in sizes):
        raise argparse.ArgumentTypeError(f"expected whole numbers of at least 1 with commas, as 2,11,64, got {text!r}")
    return tuple(int(size) for size in sizes)


def _found(target: str, *, call: bool) -> Callable[..., Any]:
    """What is called so; a module of torch in evaluation mode."""
    import torch

    module, _, name = target.partition(":")
    if not module or not name:
        raise CannotRun(f"{target!r}: expected module:callable, as my_model:model")
    if sys.path[0] != "":
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise CannotRun(f"module {module} cannot be imported: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise CannotRun(f"{module} has no {name}")
        found = getattr(found, part)
    if call:
        found = found()
    if isinstance(found, type):
        raise CannotRun(f"{target} is a class: name an object, or a function that makes one, with --call")
    if not callable(found):
        raise CannotRun(f"{target} is {type(found).__name__}: expected a torch.nn.Module or a function")
    return found.eval() if isinstance(found, torch.nn.Module) else found


def _input(shape: tuple[int, ...], tokens: int | None, dtype: str, seed: int) -> Tensor:
    import torch

    generator = torch.Generator().manual_seed(seed)
    if tokens is not None:
        if tokens < 2 or len(shape) != 2:
            raise CannotRun(f"--tokens {tokens} with --shape {shape}: expected at least 2 tokens and the axes b,t")
        return torch.randint(tokens, shape, generator=generator)
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise CannotRun(f"--dtype {dtype}: expected a floating dtype of torch, as float32 or bfloat16")
    return torch.randn(shape, generator=generator).to(kind)


def _run(name: str, fn: Callable[..., Any], x: Tensor, options: argparse.Namespace) -> Report:
    from attnbook import probes
    from attnbook.errors import ShapeError

    try:
        if name == "causal_leak":
            return probes.causal_leak(fn, x, vocabulary=options.tokens, seed=options.seed)
        if name == "permutation_equivariance":
            return probes.permutation_equivariance(fn, x, seed=options.seed)
        probe: Callable[..., Report] = getattr(probes, name)
        return probe(fn, x)
    except (ShapeError, ValueError) as error:
        raise CannotRun(f"{name}: {error}") from error
