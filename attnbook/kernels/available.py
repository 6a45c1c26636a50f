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
    """Triton itself, or None where it cannot be imported."""
    try:
        return importlib.import_module("triton")
    except ImportError:
        return None


@functools.cache
def interpreting() -> bool:
    """Do calls go to Triton's interpreter? As TRITON_INTERPRET was when this was first asked."""
    triton = triton_module()
    return triton is not None and bool(triton.knobs.runtime.interpret)


def missing(x: Tensor) -> str | None:
    """Why the kernels cannot take this tensor here; None where they can."""
    return of_triton() or _of_dtype(x) or _of_device(x.device)


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
    if triton is None:
        return f"triton is not installed: the kernels need {wanted} or newer (pip install 'attnbook[gpu]')"
    if version(triton) < OLDEST:
        return f"triton is {triton.__version__}: the kernels need {wanted} or newer"
    if interpreting():
        import numpy

        # Its interpreter reads numbers out of arrays in a way that NumPy 2.4 has taken back; mended in Triton 3.7.1.
        if version(triton, 3) < (3, 7, 1) and version(numpy) >= (2, 4):
            return f"triton {triton.__version__} interprets with numpy below 2.4 only, and numpy is {numpy.__version__}"
    return None


def _of_dtype(x: Tensor) -> str | None:
    if x.dtype in DTYPES:
        return None
    return f"triton: the dtype is {_short(x.dtype)}, and the kernels take float32, float16 and bfloat16"


def _of_device(device: torch.device) -> str | None:
    if device.type == "cuda" and torch.version.hip is None:
        return None if interpreting() else _of_capability(torch.cuda.get_device_capability(device))
    if device.type == "cpu" and interpreting():
        return None
    kind = "an AMD GPU" if device.type == "cuda" else f"the {device.type} device"
    advice = "; Triton's interpreter runs them on the CPU where TRITON_INTERPRET=1 is set before the first call"
    return f"triton: the tensors are on {kind}, and the kernels need CUDA{advice if device.type == 'cpu' else ''}"


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


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
