"""The extension knows nothing about attention: a three-page project about bread, built as anybody would build it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SNIPPETS = Path(__file__).parent / "any_project"
README = Path(__file__).parents[2] / "README.md"


class Bakery:
    """A copy of the three pages, built by `sphinx-build` in a process of its own."""

    def __init__(self, folder):
        self.docs = folder / "docs"
        shutil.copytree(SNIPPETS, self.docs, ignore=shutil.ignore_patterns("_build", "__pycache__"))

    def build(self):
        command = [sys.executable, "-m", "sphinx", "-N", "-b", "html", ".", "_build/html"]
        return subprocess.run(command, cwd=self.docs, capture_output=True, text=True, encoding="utf-8")

    def edit(self, name, old, new):
        path = self.docs / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), encoding="utf-8")

    def ledger(self):
        return json.loads((self.docs / "_build" / "html" / "ledger.json").read_text(encoding="utf-8"))

    def attnbook(self, *arguments):
        command = [sys.executable, "-m", "attnbook", *arguments]
        return subprocess.run(command, cwd=self.docs, capture_output=True, text=True, encoding="utf-8")


def executed(built):
    return "Executing notebook" in built.stdout + built.stderr


@pytest.mark.timeout(180)
def test_green_red_red_green(tmp_path):
    """Green; a number changed: red with file and line, twice; undone: green, and nothing was executed again."""
    bakery = Bakery(tmp_path)
    built = bakery.build()
    assert built.returncode == 0, built.stderr
    assert executed(built)
    assert "claims: 5 judged, 0 failed, 0 unowned (en)" in built.stdout
    assert {claim["verdict"] for claim in bakery.ledger()["claims"]} == {"fine"}
    assert 'class="claim"' in (bakery.docs / "_build" / "html" / "recipe.html").read_text(encoding="utf-8")

    bakery.edit("index.md", "`70% <dough", "`75% <dough")
    for _ in range(2):
        built = bakery.build()
        assert built.returncode == 1
        assert not executed(built), built.stdout
        assert "docs/index.md:3: claim dough.hydration says 75%, measured 70% (accepts 74.5 to 75.5%)" in built.stderr
        assert "  measured in docs/dough.md cell 1" in built.stderr

    bakery.edit("index.md", "`75% <dough", "`70% <dough")
    built = bakery.build()
    assert built.returncode == 0, built.stderr
    assert not executed(built), built.stdout

    # A line of code changes what other pages quote: both sentences are named, and the command rewrites them.
    bakery.edit("dough.md", "500, 350, 3", "500, 400, 3")
    built = bakery.build()
    assert built.returncode == 1
    assert "docs/index.md:3: claim dough.hydration says 70%, measured 80%" in built.stderr
    assert "docs/recipe.rst:4: claim dough.hydration says about 0.7, measured 0.8" in built.stderr

    ledger = ("ledger", "--file", "_build/html/ledger.json")
    assert bakery.attnbook(*ledger).returncode == 1
    update = bakery.attnbook(*ledger, "--update", "dough.hydration", "--write")
    assert update.returncode == 0, update.stderr
    assert "{claim}`80% <dough.hydration>`" in (bakery.docs / "index.md").read_text(encoding="utf-8")
    assert ":claim:`about 0.8 <dough.hydration>`" in (bakery.docs / "recipe.rst").read_text(encoding="utf-8")
    built = bakery.build()
    assert built.returncode == 0, built.stderr
    assert bakery.attnbook(*ledger).returncode == 0


def test_the_pages_are_those_of_the_readme():
    """README's section shows the very files that are built here, each whole and under its name."""
    readme = README.read_text(encoding="utf-8")
    for path in sorted(SNIPPETS.iterdir()):
        if path.is_file():
            shown = re.search(rf"`{re.escape(path.name)}`[^\n]*\n\n(`{{3,}})\w*\n(.*?)\n\1\n", readme, re.DOTALL)
            assert shown is not None, f"README does not show {path.name}"
            assert shown[2] + "\n" == path.read_text(encoding="utf-8"), f"README shows another {path.name}"
