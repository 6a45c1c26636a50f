"""Where does the first number come from that is not finite? Every operation is watched, and every module by its name.

−inf alone is no finding: it is how a score says "hidden". NaN and +inf are, at the first operation whose inputs had
none, and the first −inf that came from finite numbers before is told with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbook.probes.report import Finding, Report

PROBE = "overflow"


def overflow(module: Callable[..., Any], *inputs: Any, **options: Any) -> Report:
    """Run `module(*inputs, **options)` once and name the first tensor that leaves the finite range.

    `module`: a torch.nn.Module, whose parts are named as `named_modules` names them, or any callable. A finding says in
    which module, by which operation, in which dtype and shape, how many numbers, and how large the inputs were. Inputs,
    parameters and buffers that are not finite to begin with are findings of their own, and then nothing is run.

    What the module returns is not looked at beyond that, and no gradient is kept. An error that it raises is passed on.
    """
    findings = list(_from_the_start(module, inputs, options))
    if findings:
        checked = "inputs, parameters and buffers; not run"
        return Report(PROBE, checked, tuple(findings), look="where these were made: the loss, the update, the file.")
    names = _Names(module if isinstance(module, nn.Module) else None)
    watch = _Watch(names)
    with torch.no_grad(), names.followed(), watch:
        module(*inputs, **options)
    checked = (
        f"{watch.operations} operations in {names.entered} calls of modules, largest finite number {watch.largest:.3g}"
    )
    if watch.first is None:
        return Report(PROBE, checked)
    return Report(PROBE, checked, (watch.first.finding(watch.hidden),), look=LOOK)


LOOK = (
    "the operation: exp of large scores (subtract the maximum), squares and sums in float16 (use float32 inside), a "
    "division by 0, softmax of a row in which everything is hidden, weights that grew."
)


def _from_the_start(module: Any, inputs: Any, options: Any) -> Iterator[Finding]:
    for place, x in enumerate(tree_leaves((inputs, options))):
        if isinstance(x, Tensor) and (bad := _bad(x)):
            yield Finding("input", f"input {place}, {_shown(x)}, holds {bad} numbers that are NaN or inf", input=place)
    if isinstance(module, nn.Module):
        for name, x in (*module.named_parameters(), *module.named_buffers()):
            if bad := _bad(x):
                owner = name.rpartition(".")[0]
                text = f"{name}, {_shown(x)}, holds {bad} numbers that are NaN or inf"
                yield Finding("parameter", text, module=owner, amount=torch.inf)


class _Names:
    """In which module of a model are we?"""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module
        self.stack: list[str] = []
        self.entered = 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        """With hooks on every module, which are gone afterwards."""
        with ExitStack() as hooks:
            for name, part in self.module.named_modules() if self.module is not None else ():
                enter, leave = self._hooks(name)
                hooks.callback(part.register_forward_pre_hook(enter).remove)
                hooks.callback(part.register_forward_hook(leave, always_call=True).remove)
            yield

    def _hooks(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(*_: Any) -> None:
            self.stack.append(name)
            self.entered += 1

        def leave(*_: Any) -> None:
            self.stack.pop()

        return enter, leave


@dataclass(frozen=True)
class _Place:
    """An operation that made numbers out of range from numbers in it."""

    module: str | None
    operation: str
    out: str
    bad: int
    numbers: int
    largest_input: float

    def finding(self, hidden: _Place | None) -> Finding:
        inside = f"in {self.module or 'the outermost module'}, " if self.module is not None else ""
        text = (
            f"{inside}{self.operation} made {self.bad} of {self.numbers} numbers NaN or inf ({self.out}) "
            f"from inputs up to {self.largest_input:.3g}"
        )
        if hidden is not None:
            where = f"in {hidden.module or 'the outermost module'} " if hidden.module is not None else ""
            text += f"; −inf came first {where}from {hidden.operation}"
        return Finding(PROBE, text, amount=self.largest_input, module=self.module)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at what goes into every operation of torch, and at what comes out, until something is wrong."""

    def __init__(self, names: _Names) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = names
        self.operations = 0
        self.largest = 0.0
        self.first: _Place | None = None
        self.hidden: _Place | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; look at it where it calculates."""
        kwargs = kwargs or {}
        given = tree_leaves((args, kwargs))
        floats = [x for x in given if _real(x)]
        # Fresh memory holds anything, and who writes inf by name means it.
        meant = any(isinstance(x, float) and not math.isfinite(x) for x in given)
        looks = self.first is None and bool(floats) and not meant and "empty" not in str(func)
        clean = looks and not any(map(_bad, floats))
        no_minus = clean and not any(map(_minus_inf, floats))
        before = max((_largest(x) for x in floats), default=0.0) if clean else 0.0
        out = func(*args, **kwargs)
        self.operations += 1
        if clean:
            for x in filter(_real, tree_leaves(out)):
                self._look(x, str(func), before, no_minus)
        return out

    def _look(self, x: Tensor, operation: str, before: float, no_minus: bool) -> None:
        module = self.names.stack[-1] if self.names.stack else None
        if bad := _bad(x):
            self.first = self.first or _Place(module, operation, _shown(x), bad, x.numel(), before)
            return
        self.largest = max(self.largest, _largest(x))
        if no_minus and self.hidden is None and _minus_inf(x):
            self.hidden = _Place(module, operation, _shown(x), 0, x.numel(), before)


def _real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and not x.is_meta


def _bad(x: Tensor) -> int:
    """How many numbers are NaN or +inf?"""
    return int((x.isnan() | (x == torch.inf)).sum()) if x.is_floating_point() else 0


def _minus_inf(x: Tensor) -> bool:
    return bool((x == -torch.inf).any())


def _largest(x: Tensor) -> float:
    """The largest finite |x|."""
    return float(x.double().abs().nan_to_num(nan=0.0, posinf=0.0).amax()) if x.numel() else 0.0


def _shown(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
