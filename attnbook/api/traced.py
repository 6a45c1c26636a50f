"""Is a call being watched: traced without values, or transformed by torch.func?

Then values cannot be looked at, or gradients are taken in another way than `torch.autograd` does.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def traced(q: Tensor) -> bool:
    """Are there shapes only, no values: inside torch.compile or torch.export, on the meta device, a fake tensor?"""
    return torch.compiler.is_compiling() or q.is_meta or type(q) not in (Tensor, torch.nn.Parameter)


def transformed() -> bool:
    """Is a transform of torch.func or a level of forward-mode gradients at work?"""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def forward_mode() -> bool:
    """Are gradients taken in forward mode, with the values (`torch.func.jvp`, `torch.autograd.forward_ad`)?"""
    return forward_ad._current_level >= 0


def vmapped(q: Tensor) -> bool:
    """Does q stand for a batch that torch.vmap hides, be it below a transform that takes gradients?"""
    if torch.compiler.is_compiling():
        return False
    while torch._C._functorch.is_functorch_wrapped_tensor(q):
        if torch._C._functorch.is_batchedtensor(q):
            return True
        q = torch._C._functorch.get_unwrapped(q)
    return False
