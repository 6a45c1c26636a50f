"""The package's own kernels, compiled for three generations of cards.

No spill, no memory over the limit, and the target's matrix instruction wherever matrices are multiplied.
"""

import ast
import json
import re
from pathlib import Path

import pytest

from attnbook import kernels
from tests.kernels_compile.processes import compiling

pytest.importorskip("triton", reason="kernels are compiled by triton")

KERNELS = Path(kernels.__file__).parent
LISTED = """
import json
from attnbook.kernels.compile import variants
from attnbook.kernels.targets import TARGETS
from tests.kernels_compile.gate import gated
for target in TARGETS:
    names = gated(target, every=False)
    print(json.dumps([[v.kernel.__name__, v.head_dim, v.name in names] for v in variants(target)]))
"""
COPIED = """
import json
from attnbook.kernels.compile import variants
from attnbook.kernels.targets import TARGETS
for target in TARGETS:
    for v in variants(target):
        described = any(kind.startswith("tensordesc") for kind in v.signature.values())
        print(json.dumps([target.name, v.name, described, v.constants.get("WARP_SPECIALIZE", False)]))
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_kernels_in_bfloat16_are_fine(target):
    """Every kernel, for heads of 64, 128 and 256; what is wrong is listed by name. `--all` is nox -s kernels' part."""
    done = compiling("-m", "tests.kernels_compile.gate", target)
    *wrong, counted = done.stdout.splitlines() or [done.stderr]
    assert wrong == []
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"[1-9]\d+ compiled for {target}", counted)


@pytest.fixture(scope="module")
def listed():
    """For each target the variants: kernel, head_dim, whether the default tests compile it."""
    done = compiling("-c", LISTED)
    assert done.returncode == 0, done.stderr
    return [[tuple(entry) for entry in json.loads(line)] for line in done.stdout.splitlines()]


def launched():
    """The names of kernels that the package's sources launch: `kernel[grid](…)`, by whatever local name."""
    names = set()
    for path in KERNELS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            decorators = getattr(node, "decorator_list", [])
            if any(ast.unparse(decorator).startswith("triton.jit") for decorator in decorators):
                names.add(node.name)
    return {name for name in names if name.endswith("_kernel")}


def test_every_kernel_is_compiled_for_every_target(listed):
    """No kernel is launched of which the report knows nothing, and the default tests leave none out."""
    assert len(listed) == 3
    for of_target in listed:
        assert {kernel for kernel, _, _ in of_target} == launched()
        assert {kernel for kernel, _, by_default in of_target if by_default} == launched()


def test_kernels_of_heads_are_compiled_in_every_size(listed):
    """64, 128 and 256: by default too."""
    for of_target in listed:
        with_heads = {kernel for kernel, head_dim, _ in of_target if head_dim is not None}
        assert with_heads
        for kernel in with_heads:
            assert {64, 128, 256} <= {size for name, size, by_default in of_target if name == kernel and by_default}


@pytest.fixture(scope="module")
def copied():
    """(target, variant) -> whether it reads by descriptor, and whether its warps specialise."""
    done = compiling("-c", COPIED)
    assert done.returncode == 0, done.stderr
    return {tuple(entry[:2]): tuple(entry[2:]) for entry in map(json.loads, done.stdout.splitlines())}


WALKS = ("flash-forward-", "flash-backward-keys-", "flash-backward-queries-")
"""What walks over keys or queries, which come by descriptor."""
BY_POINTERS = {f"flash-backward-queries-d256-bf16{what}" for what in ("", "-causal", "-packed-causal")}
"""On Hopper, where with descriptors the causal ones spill."""


def test_attention_walks_by_descriptor_where_the_card_has_them(copied):
    """Forward and the gradients of q, k and v in half precision, packed too; the careful second look has pointers."""
    walks = {key: described for key, (described, _) in copied.items() if key[1].startswith(WALKS)}
    assert len(walks) > 100
    for (target, name), described in walks.items():
        excepted = "-fp32" in name or name.endswith("-again") or (target == "sm_90" and name in BY_POINTERS)
        assert described == (target != "sm_80" and not excepted), f"{name} on {target}"


def test_warps_specialise_on_blackwell_alone(copied):
    """In calls that are neither causal nor packed, with heads up to 128: elsewhere they spill, or do not compile."""
    assert {key for key, (_, specialised) in copied.items() if specialised} == {
        ("sm_100", "flash-forward-d64-bf16"),
        ("sm_100", "flash-forward-d128-bf16"),
    }


def launching():
    """For each launch in the package, `kernel[grid](…)`: where it stands, and the source of what it is told."""
    found = {}
    for path in KERNELS.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        by_name = {function.name: ast.unparse(function) for function in functions}
        for function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and re.search(r"\bkernel\[|_kernel\[", ast.unparse(node.func)):
                    spread = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg is None]
                    told = [ast.unparse(keyword) for keyword in node.keywords]
                    if "options" in spread:  # put together in the lines before
                        told.append(by_name[function.name].partition("options = ")[2])
                    told += [by_name.get(name.partition("(")[0], "") for name in spread]
                    found[f"{path.relative_to(KERNELS)}:{ast.unparse(node.func)}"] = " ".join(told)
    return found


def test_every_launch_says_what_the_report_compiles_with():
    """Warps, stages and the options of every launch: what is left out, Triton fills in, and another program comes out.

    That they are the variant's own numbers is the part of the functions that both take them from.
    """
    told = launching()
    assert len(told) == len(launched()) - 3  # the four kernels of flash's backward pass share one launch
    for where, said in told.items():
        missing = {"num_warps", "num_stages", "ALWAYS"} - set(re.findall(r"\w+", said))
        assert not missing, f"{where} does not say {', '.join(sorted(missing))}"
