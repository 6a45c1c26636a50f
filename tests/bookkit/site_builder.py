"""Builds a small Sphinx site in a temporary folder and says what became of it: pages, doctrees, located problems.

Cells are not executed: a page's outputs come with it, so that a test of how a page looks needs no kernel. The claims
domain is replaced by one that only writes problems down, for these tests are about who reports what, and where.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import nbformat
import sphinx.locale
from docutils import nodes
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.util.docutils import docutils_namespace, patch_docutils

PARTS = (
    "maths", "plots", "emphasis", "folded", "printed", "line_breaks", "bibliography", "site", "theme_words", "lints",
    "built_lints", "unchecked",
)  # fmt: skip
FRONT = "---\nfile_format: mystnb\nkernelspec: {name: python3}\n---\n"


class ClaimsStandIn(Domain):
    """The `problem` method of the claims domain, and nothing else of it."""

    name = "claims"
    initial_data: ClassVar[dict[str, Any]] = {"problems": {}}

    def problem(self, docname: str, line: int, status: str, message: str) -> None:
        self.data["problems"].setdefault(docname, []).append((line, status, message))

    def clear_doc(self, docname: str) -> None:
        self.data["problems"].pop(docname, None)

    def resolve_any_xref(self, *arguments: Any) -> list[Any]:
        return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this: an extension of the test sites, with every part of bookkit but the execution of chapters."""
    app.add_domain(ClaimsStandIn)
    for part in PARTS:
        import_module(f"attnbook.bookkit.{part}").setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read_with_outputs(text: str, folder: str = "") -> nbformat.NotebookNode:
    """A page's cells, and for each the outputs that `cell.metadata.outputs` names in the folder's outputs.json."""
    notebook = read_myst_markdown_notebook(text, add_source_map=True)
    # MyST-NB counts a code cell one line too far, and a text cell from the blank lines before it.
    lines, starts = text.splitlines(), notebook.metadata["source_map"]
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            starts[number] = next(n for n in range(starts[number], len(lines)) if lines[n].strip())
        starts[number] -= 1
    given = json.loads((Path(folder) / "outputs.json").read_text("utf-8"))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        data = given.get(cell.source.strip(), [])
        cell.outputs = [nbformat.from_dict(output) for output in data]
    return notebook


@dataclass(frozen=True)
class Built:
    """What a build left: the application, its output folder, its warnings."""

    app: Sphinx
    warnings: str

    def problems(self, docname: str = "index") -> list[tuple[int, str, str]]:
        return self.app.env.get_domain("claims").data["problems"].get(docname, [])

    def html(self, docname: str = "index") -> str:
        return (Path(self.app.outdir) / f"{docname}.html").read_text("utf-8")

    def doctree(self, docname: str = "index") -> nodes.document:
        return self.app.env.get_doctree(docname)


def build(folder: Path, pages: dict[str, str], outputs: dict[str, list[dict[str, Any]]] | None = None,
          builder: str = "html", **config: Any) -> Built:  # fmt: skip
    """Write pages (name without suffix: MyST text), build them, and return what came of it."""
    import io

    for name, text in pages.items():
        path = folder / (name if "." in name else f"{name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "outputs.json").write_text(json.dumps(outputs or {}), encoding="utf-8")
    settings: dict[str, Any] = {
        "extensions": ["myst_nb", "tests.bookkit.site_builder"],
        "language": "ja", "smartquotes": False, "numfig": True, "nb_execution_mode": "off", "html_theme": "basic",
        "myst_enable_extensions": ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"],
        "exclude_patterns": ["_build"],
        "nb_custom_formats": {".md": ["tests.bookkit.site_builder.read_with_outputs", {"folder": str(folder)}, False]},
        "locale_dirs": ["locales"], "gettext_compact": False, **config,
    }  # fmt: skip
    warnings = io.StringIO()
    target = folder / "_build" / builder
    sphinx.locale.translators.clear()  # kept for the life of the process: a page would be translated by another's
    with patch_docutils(None), docutils_namespace():
        app = Sphinx(folder, None, target, folder / "_build" / "doctrees", builder, confoverrides=settings,
                     status=None, warning=warnings)  # fmt: skip
        app.build()
    return Built(app, warnings.getvalue())


def figure_output(name: str, body: str = "<path d='M0 0'/>") -> dict[str, Any]:
    """The output of a cell that published a figure."""
    data = {"application/vnd.attnbook.figure+json": {"name": name, "svg": body, "width": 331.2, "height": 201.6}}
    return {"output_type": "display_data", "data": data, "metadata": {}}
