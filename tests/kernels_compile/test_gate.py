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
