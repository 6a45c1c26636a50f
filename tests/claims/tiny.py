"""Tiny Sphinx projects in a folder of their own: write pages, build, look at what the gate said.

Measurements come from a `measured` directive: `` ```{measured} id value unit="B" … ``. Builds run in this process, with
the `dummy` builder unless a test needs pages, exactly as `sphinx-build` runs them.
"""

from __future__ import annotations

import contextlib
import gettext
import io
import json
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from sphinx.cmd.build import main
from sphinx.locale import translators

CONF = """
from docutils.parsers.rst import Directive
from attnbook.measure import Measurement

class Measured(Directive):
    required_arguments, optional_arguments = 2, 9

    def run(self):
        env = self.state.document.settings.env
        names = {"nan": float("nan"), "inf": float("inf")}
        value = eval(self.arguments[1], names)
        options = {key: eval(text, names) for key, _, text in (word.partition("=") for word in self.arguments[2:])}
        cell = options.pop("cell", 3)
        made = Measurement(self.arguments[0], value, **options)
        env.domains["claims"].note_measurement(env.docname, made, cell=cell, line=self.lineno)
        return []

def setup(app):
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

exclude_patterns = ["_build"]
# Sphinx's default is one dictionary for the whole process, and parsers add to it.
source_suffix = {".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "substitution"]
"""

PROB = '```{measured} a.prob 0.87 spread=0.001 experiment="pkg.experiment"\n```\n'
"""The measurement most tests quote."""


def measured(ident: str, value: object, options: str = "") -> str:
    """A directive that measures, in MyST."""
    return f"```{{measured}} {ident} {value} {options}\n```\n"


@dataclass(frozen=True)
class Built:
    """What a build came to."""

    code: int
    status: str
    """What it printed on standard output."""
    errors: str
    """What it printed on standard error."""
    ledger: dict = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        """The gate's list, one string a failure (its further lines joined to it)."""
        text = self.errors.partition("claims that fail")[2].partition("\n")[2].partition("\nThe build fails")[0]
        return re.split(r"\n(?! )", text) if text else []

    @property
    def kinds(self) -> list[str]:
        """The kind of each failure, from the ledger."""
        return [failure["status"] for failure in self.ledger["failures"]]


class Project:
    """A Sphinx project in `folder/book`, so that paths in messages begin with `book/`."""

    def __init__(self, folder: Path, conf: str = "", extensions: tuple[str, ...] = ("myst_parser",)) -> None:
        self.source = folder / "book"
        self.source.mkdir(parents=True)
        self.out = folder / "out"
        self.write("conf.py", f"extensions = {[*extensions, 'attnbook.claims']}\n{CONF}\n{conf}\n")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be in the file."""
        text = (self.source / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def build(self, *options: str, builder: str = "dummy") -> Built:
        """Run `sphinx-build` on the project, incrementally if it was built before."""
        out, errors = io.StringIO(), io.StringIO()
        folder = self.out / builder
        # Sphinx and gettext keep catalogues for the life of a process, as if all builds were one project's.
        translators.clear()
        gettext._translations.clear()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            # Theirs to mend, before Sphinx 11; ours still raise.
            warnings.filterwarnings("ignore", category=PendingDeprecationWarning, module="myst_(parser|nb)")
            code = main(["-N", "-b", builder, *options, str(self.source), str(folder)])
        ledgers = sorted(folder.glob("ledger*.json"), key=lambda path: path.stat().st_mtime_ns)
        ledger = json.loads(ledgers[-1].read_text(encoding="utf-8")) if ledgers else {}
        return Built(code, out.getvalue(), errors.getvalue(), ledger)


def build_page(folder: Path, text: str, conf: str = "") -> Built:
    """Build a project of one page."""
    project = Project(folder, conf)
    project.write("index.md", text)
    return project.build()
