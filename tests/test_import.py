"""`import attnbook` is light: it loads no heavy package, works where they are missing, and gives its names lazily."""

import json
import subprocess
import sys

import pytest

import attnbook

HEAVY = ["torch", "numpy", "triton", "matplotlib", "sphinx", "docutils", "IPython", "babel"]

LIGHT = [
    "import attnbook",
    "import attnbook; dir(attnbook); attnbook.__all__",
    "from attnbook import measure, experiment, measure_mean, Measurement, Findings",
    "import attnbook.measure, attnbook.records",
    "import attnbook.cli, attnbook.cli.experiment, attnbook.cli.ledger",
    "import attnbook.claims",
    "from attnbook.claims import ledger, ledger_diff",
    "import attnbook.experiments",
    "import attnbook.costs; attnbook.costs.kv_cache_bytes('Llama-3-8B', tokens=7)",
    "import attnbook.integrations",
    "from attnbook import ShapeError, DTypeError, BackendUnavailable",
]


def fresh(program: str, *, blocked: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter; it may be one in which importing a heavy package fails."""
    block = f"import sys\nfor name in {HEAVY}: sys.modules[name] = None\n" if blocked else ""
    return subprocess.run([sys.executable, "-c", block + program], capture_output=True, text=True)


def loaded_by(program: str) -> set[str]:
    """The heavy packages that a program loads in a new interpreter."""
    done = fresh(f"{program}\nimport sys, json\nprint(json.dumps([n for n in {HEAVY} if n in sys.modules]))")
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("program", LIGHT)
def test_light_imports_load_nothing_heavy(program):
    """The package, its measurements, its commands and its ledger reader load no heavy package."""
    assert loaded_by(program) == set()


@pytest.mark.parametrize("program", LIGHT)
def test_light_imports_work_where_heavy_packages_are_missing(program):
    """They work in an interpreter where every heavy package is blocked."""
    done = fresh(program, blocked=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["numpy", "sphinx"])
def test_the_checks_above_can_fail(name):
    """A program that does load a heavy package is seen by both checks."""
    program = f"import attnbook; import {name}"
    assert name in loaded_by(program)
    assert fresh(program, blocked=True).returncode != 0


def test_a_name_that_needs_a_missing_package_says_what_to_install(tmp_path):
    """A public name whose home cannot be loaded names the missing package and the extra that brings it."""
    (tmp_path / "home.py").write_text("import numpy\n")
    program = (
        f"sys.path.insert(0, {str(tmp_path)!r})\nimport attnbook\nattnbook._HOME['softmax'] = 'home'\nattnbook.softmax"
    )
    last = fresh(program, blocked=True).stderr.splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: attnbook.softmax needs numpy, which is not installed: pip install 'attnbook[torch]'"
    )


@pytest.mark.parametrize("name", attnbook.__all__)
def test_every_public_name_exists(name):
    """Each name of `__all__` can be had, is listed by `dir`, and stays the same object."""
    assert getattr(attnbook, name) is getattr(attnbook, name)
    assert name in dir(attnbook)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_names():
    """A misspelt name fails as attributes do, and says what there is."""
    with pytest.raises(AttributeError, match=r"module 'attnbook' has no attribute 'atention'; it has .*attention"):
        _ = attnbook.atention
    assert not hasattr(attnbook, "atention")


def test_measure_is_the_function_whatever_is_imported_first():
    """A function and its module share a name; the package's attribute is the function in either order."""
    for program in (
        "import attnbook.measure; import attnbook",
        "import attnbook; import attnbook.measure",
        "from attnbook.measure import Measurement; import attnbook",
    ):
        done = fresh(f"{program}\nassert attnbook.measure('a.b', 2 + len('x')).value == 3")
        assert done.returncode == 0, done.stderr


def test_star_import_gives_the_public_names():
    """`from attnbook import *` binds every name of `__all__`."""
    done = fresh("from attnbook import *\nassert callable(softmax) and callable(attention) and callable(measure)")
    assert done.returncode == 0, done.stderr


def test_the_module_runs_as_the_command():
    """`python -m attnbook` is the command `attnbook`."""
    done = subprocess.run([sys.executable, "-m", "attnbook", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "attnbook")
