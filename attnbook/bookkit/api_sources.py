"""The source text behind the API pages: one page a module, and a link to it from every description.

`sphinx.ext.viewcode` does this too, but imports every module again in every build, torch among them. Here a page is
made from the file alone, and only when the file is newer than the page.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from docutils import nodes
from sphinx.environment import CONFIG_OK
from sphinx.util.osutil import relative_uri

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.builders.html import StandaloneHTMLBuilder
    from sphinx.environment import BuildEnvironment

_WORD: Final = {"ja": "ソース", "ko": "소스", "en": "source"}
_FOLDER: Final = "_modules"


class source_link(nodes.General, nodes.Inline, nodes.Element):
    """A link to where an object is defined. Attributes: module, anchor (its name within the module)."""


def note(env: BuildEnvironment, module: str, file: str) -> None:
    """Say that the page being read shows something from a module."""
    _shown(env).setdefault(env.current_document.docname, {})[module] = file


def _shown(env: BuildEnvironment) -> dict[str, dict[str, str]]:
    """For each page the modules that it shows, with their files."""
    kept: dict[str, dict[str, str]] = vars(env).setdefault("api_sources", {})
    return kept


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The pages of source text that are older than their file, or not there yet."""
    if app.builder.format != "html":
        return
    builder = cast("StandaloneHTMLBuilder", app.builder)
    files = {module: file for modules in _shown(app.env).values() for module, file in modules.items()}
    for module, file in sorted(files.items()):
        name = _page(module)
        page, source = Path(app.outdir, name + builder.out_suffix), Path(file)
        if app.env.config_status == CONFIG_OK and page.is_file() and page.stat().st_mtime > source.stat().st_mtime:
            continue
        text = source.read_text(encoding="utf-8")
        body = builder.highlighter.highlight_block(text, "python")
        context = {"title": module, "body": f"<h1>{escape(module)}</h1>\n{anchored(body, text)}", "parents": []}
        yield name, context, "page.html"


def anchored(highlighted: str, text: str) -> str:
    """Highlighted code with an anchor before every function and class, by its name within the module."""
    lines = highlighted.split("\n")
    for name, line in definitions(text):
        lines[line - 1] = f'<span id="{escape(name)}"></span>{lines[line - 1]}'
    return "\n".join(lines)


def definitions(text: str) -> list[tuple[str, int]]:
    """The functions and classes of a module with their first lines, decorators included; methods as `Class.method`."""
    found: list[tuple[str, int]] = []

    def visit(body: Iterable[ast.stmt], inside: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                found.append((inside + node.name, first))
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{inside}{node.name}.")

    visit(ast.parse(text).body, "")
    return found


def _page(module: str) -> str:
    return f"{_FOLDER}/{module.replace('.', '/')}"


def visit_link(translator: Any, node: source_link) -> None:
    """Write the link in the language of the build."""
    builder = translator.builder
    here = builder.get_target_uri(builder.current_docname)
    address = relative_uri(here, _page(node["module"]) + builder.link_suffix)
    word = _WORD.get(builder.config.language, _WORD["en"])
    translator.body.append(f'<a class="source-link" href="{escape(address)}#{escape(node["anchor"])}">[{word}]</a>')
    raise nodes.SkipNode


def skip(translator: Any, node: source_link) -> None:
    """Plain text has no pages of source."""
    raise nodes.SkipNode


def _purge(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _shown(env).pop(docname, None)


def _merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str], other: BuildEnvironment) -> None:
    for docname in docnames:
        if docname in _shown(other):
            _shown(env)[docname] = _shown(other)[docname]


def setup(app: Sphinx) -> None:
    """Add the link, and the pages that it leads to."""
    app.add_node(source_link, html=(visit_link, None), text=(skip, None))
    app.connect("html-collect-pages", pages)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
