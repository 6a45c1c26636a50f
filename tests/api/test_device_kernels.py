"""The operators take a kernel written for one device, forward and backward, with nothing else changed."""

import subprocess
import sys

KERNELS = """
import torch
from attnbook import attention, tiled
from attnbook.api import operators

called = []


@operators.attention.register_kernel("cpu")
def forward(q, k, v, mask, slopes, sinks, is_causal, window, softcap, scale, impl="auto", wants_lse=True):
    called.append(f"forward in {q.dtype}")
    return tiled.attention_forward(q, k, v, mask, slopes, sinks, is_causal=is_causal)


@operators.attention_backward.register_kernel("cpu")
def backward(*given):
    called.append("backward")
    return operators.all_tensors(tiled.attention_backward(*given[:10], is_causal=given[10]), given[2])


q, k, v = torch.randn(3, 1, 2, 7, 4, requires_grad=True)
out, _ = torch.ops.attnbook.attention(q, k, v, None, None, None, True, None, None, None)
(grad,) = torch.autograd.grad(out.sum(), q)
plain = attention(q, k, v, is_causal=True, impl="reference")
torch.testing.assert_close(out, plain)
torch.testing.assert_close(grad, torch.autograd.grad(plain.sum(), q)[0])
print(*called, sep=", ")

called.clear()
with torch.autocast("cpu", torch.bfloat16):
    attention(q, k, v, is_causal=True, window=3)
print(*called, sep=", ")

called.clear()
compiled = torch.compile(lambda q: attention(q, q, q, is_causal=True), backend="eager", fullgraph=True)
torch.testing.assert_close(compiled(q.detach()), attention(q, q, q, is_causal=True, impl="reference").detach())
print(*called, sep=", ")
"""


def test_a_kernel_of_a_device_is_what_runs_there():
    """Called directly, under autocast and compiled: the kernels of the device, with the gradients registered before."""
    done = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "forward in torch.float32, backward", "forward in torch.bfloat16", "forward in torch.float32",
    ]  # fmt: skip
