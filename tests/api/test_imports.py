"""What importing the door loads, and what it does not."""

import subprocess
import sys

import pytest

BLOCKED = "import sys\nfor name in {blocked}: sys.modules[name] = None\n"
"""None there makes an import fail, and torch, which asks whether there is a triton, find none."""


def run(code):
    """Run in a fresh interpreter; what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_works_without_triton_and_transformers():
    """Both blocked: a causal call runs, also the operator's."""
    code = BLOCKED.format(blocked={"triton", "transformers"}) + (
        "import torch, attnbook.api\n"
        "q = torch.ones(1, 1, 5, 3)\n"
        "print(attnbook.api.attention(q, q, q, is_causal=True).sum().item())\n"
        "print(torch.ops.attnbook.attention(q, q, q, None, None, None, True, None, None, None)[0].sum().item())\n"
    )
    assert run(code).split() == ["15.0", "15.0"]


def test_the_block_blocks():
    """The check can fail."""
    with pytest.raises(AssertionError, match="import of triton halted"):
        run(BLOCKED.format(blocked={"triton"}) + "import triton")


def test_loads_nothing_heavy():
    """Neither compiler nor symbols nor layers: those who need them load them."""
    code = (
        "import sys, attnbook.api\n"
        "heavy = ('triton', 'transformers', 'sympy', 'torch._dynamo', 'torch._inductor', 'attnbook.api.modules',\n"
        "         'attnbook.reference.kv_cache', 'attnbook.integrations', 'attnbook.kernels')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    assert run(code).strip() == "[]"


def test_every_public_name_is_there():
    """Also those that are loaded on first use; a wrong name says what there is."""
    import attnbook.api as api

    for name in api.__all__:
        assert getattr(api, name).__doc__
    assert set(api.__all__) <= set(dir(api))
    with pytest.raises(AttributeError, match=r"module 'attnbook.api' has no attribute 'fused'; it has Explanation"):
        _ = api.fused
