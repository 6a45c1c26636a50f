"""Every launch of a kernel: on the device of the tensors, with options that the compile report compiles with, too."""

import contextlib

import pytest
import torch
from triton.runtime.jit import KernelInterface

from attnbook.kernels import decode, flash, moe, targets
from attnbook.kernels.variant import ALWAYS
from tests.kernels.device import DEVICE


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(DEVICE)


HOW = {"is_causal": True, "window": None, "softcap": None, "scale": None}
NEEDS = {"needs_mask": True, "needs_alibi": True, "needs_sinks": True}


def dense():
    q, k, extras = normal(1, 2, 5, 8), normal(1, 1, 7, 8), (normal(5, 7), normal(2), normal(2))
    out, lse = flash.attention_forward(q, k, k, *extras, **HOW)
    flash.attention_backward(out, lse, q, k, k, out, lse, *extras, **HOW, **NEEDS)
    return {"forward_kernel", "rows_kernel", "keys_kernel", "queries_kernel", "mask_kernel"}


def packed():
    q, k, ends = normal(5, 2, 8), normal(5, 1, 8), torch.tensor([0, 2, 5], device=DEVICE)
    extras = (normal(5, 5), normal(2), normal(2))
    out, lse = flash.varlen_forward(q, k, k, ends, ends, *extras, **HOW)
    flash.varlen_backward(out, lse, q, k, k, out, lse, ends, ends, *extras, **HOW, **NEEDS)
    return {"forward_kernel", "rows_kernel", "keys_kernel", "queries_kernel", "mask_kernel"}


def decoding():
    decode.decode_forward(normal(1, 2, 1, 8), normal(1, 1, 7, 8), normal(1, 1, 7, 8))
    return {"split_kernel", "merge_kernel"}


def pages():
    table, lengths = torch.tensor([[2, 0]], device=DEVICE), torch.tensor([7], device=DEVICE)
    decode.paged_forward(normal(1, 2, 1, 8), normal(3, 1, 4, 8), normal(3, 1, 4, 8), table, lengths)
    return {"split_kernel", "merge_kernel"}


def merging():
    decode.merge_parts(normal(2, 1, 2, 3, 5), normal(2, 1, 2, 3))
    return {"merge_kernel"}


def routing():
    moe.route(normal(5, 7), normal(3, 7), top_k=2, capacity_factor=1.0)
    return {"choose_kernel", "count_kernel", "place_kernel"}


def experts():
    x, chosen = normal(5, 7), torch.arange(10, device=DEVICE).view(5, 2) % 3
    given = (x, chosen, normal(5, 2), normal(3, 7, 11), normal(3, 7, 11), normal(3, 11, 7))
    moe.experts_backward(moe.experts_forward(*given), *given)
    return {"count_kernel", "place_kernel", "gate_up_kernel", "down_kernel", "combine_kernel",
            "hidden_gradient_kernel", "token_gradient_kernel", "matrix_gradient_kernel"}  # fmt: skip


@pytest.mark.parametrize("call", [dense, packed, decoding, pages, merging, routing, experts], ids=lambda f: f.__name__)
def test_on_the_tensors_device_with_the_reports_options(call, monkeypatch):
    """Triton launches on the current device, which need not be theirs; and what was compiled must be what runs."""
    inside, seen = [], {}

    @contextlib.contextmanager
    def watched(x):
        assert x.device.type == DEVICE
        inside.append(x)
        yield
        inside.pop()

    launch = KernelInterface.__getitem__

    def noted(kernel, grid):
        run = launch(kernel, grid)

        def start(*arguments, **options):
            assert inside, f"{kernel.__name__} is launched wherever the current device is"
            seen[kernel.__name__] = options
            return run(*arguments, **options)

        return start

    monkeypatch.setattr(targets, "on_device_of", watched)
    monkeypatch.setattr(KernelInterface, "__getitem__", noted)
    assert call() == seen.keys()
    for name, options in seen.items():
        assert ALWAYS.items() <= options.items(), name
        assert {"num_warps", "num_stages"} <= options.keys(), name
