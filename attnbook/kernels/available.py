"""Where the kernels run, and what is missing where they don't: one sentence for each reason.

What stands out: Triton decides when a kernel is decorated, that is when its module is imported, whether calls go to
the GPU or to the interpreter. So the environment is read once, and what is set later changes nothing.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import torch
from torch import Tensor

from attnbook.errors import BackendUnavailable

OLDEST = (3, 6)
"""The oldest Triton for which the kernels are written and tested."""

CAPABILITY = (8, 0)
"""The oldest compute capability: the first with bfloat16 in its matrix units (A100)."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

WIDEST = 256
"""The largest head_dim and d_v: a tile of wider rows does not fit the registers of one program."""


@functools.cache
def triton_module() -> Any:
    """Triton itself, or the ImportError where it cannot be had."""
    try:
        return importlib.import_module("triton")
    except ImportError as error:
        return error


@functools.cache
def interpreting() -> bool:
    """Do calls go to Triton's interpreter? As TRITON_INTERPRET was when this was first asked."""
    knobs = getattr(triton_module(), "knobs", None)
    return knobs is not None and bool(knobs.runtime.interpret)


def missing(x: Tensor) -> str | None:
    """Why the kernels cannot take this tensor here; None where they can."""
    return of_triton() or of_dtype(x.dtype) or of_device(x.device)


def require(x: Tensor) -> None:
    """Raises BackendUnavailable with what is `missing`, if anything is."""
    why = missing(x)
    if why is not None:
        raise BackendUnavailable(why)


@functools.cache
def of_triton() -> str | None:
    """What is wrong with the Triton that is installed; None where nothing is."""
    triton = triton_module()
    wanted = ".".join(map(str, OLDEST))
    if isinstance(triton, ModuleNotFoundError):
        return f"triton is not installed: the kernels need {wanted} or newer (on Linux: pip install 'attnbook[gpu]')"
    if isinstance(triton, ImportError):
        return f"triton cannot be imported: {triton}"
    if version(triton) < OLDEST:
        return f"triton is {triton.__version__}: the kernels need {wanted} or newer"
    if interpreting():
        import numpy

        # Its interpreter reads numbers out of arrays in a way that NumPy 2.4 has taken back; mended in Triton 3.7.1.
        if version(triton, 3) < (3, 7, 1) and version(numpy) >= (2, 4):
            return f"triton {triton.__version__} interprets with numpy below 2.4 only, and numpy is {numpy.__version__}"
    return None


def of_dtype(dtype: torch.dtype) -> str | None:
    """Why numbers of this kind cannot be taken; None where they can."""
    if dtype in DTYPES:
        return None
    name = str(dtype).removeprefix("torch.")
    return f"triton: the dtype is {name}, and the kernels take float32, float16 and bfloat16"


@functools.cache
def of_device(device: torch.device) -> str | None:
    """Why kernels do not run on this device; None where they do."""
    if device.type == "cuda" and torch.version.hip is None:
        return None if interpreting() else _of_capability(torch.cuda.get_device_capability(device))
    if device.type == "cpu" and interpreting():
        return None
    place = "an AMD GPU" if device.type == "cuda" else f"device {device.type}"
    needs = f"triton: the tensors are on {place}, and the kernels need an NVIDIA GPU"
    if device.type != "cpu":
        return needs
    return f"{needs}; Triton's interpreter runs them on a CPU where TRITON_INTERPRET=1 is set before the first call"


def _of_capability(capability: tuple[int, int]) -> str | None:
    if capability >= CAPABILITY:
        return None
    has, needs = (".".join(map(str, numbers)) for numbers in (capability, CAPABILITY))
    return f"triton: the GPU has compute capability {has}, and the kernels need {needs} or newer"


def too_wide(head_dim: int, d_v: int) -> str | None:
    """Why rows of these lengths (axis d of q and of v) cannot be taken; None where they can."""
    for name, of, size in (("head_dim", "q", head_dim), ("d_v", "v", d_v)):
        if not 1 <= size <= WIDEST:
            return f"triton: {of} has {name} {size} (axis d), and the kernels take 1 to {WIDEST}"
    return None


def version(module: Any, parts: int = 2) -> tuple[int, ...]:
    """The first numbers of a module's version: (3, 9) of "3.9.0+git1"."""
    return tuple(int(number) for number in re.findall(r"\d+", module.__version__)[:parts])
