"""`{api}`: the public names of a module, each with its live signature and its docstring, which is Markdown.

    ```{api} attnbook.reference
    :defined-in: positions rope rope_scaling
    ```

documents every name of `attnbook.reference.__all__` that is defined in one of those modules below it; without the
option, the names that stand in the directive, one a line; without either, all. A name goes by its shortest public
path. Descriptions are marked as English, are no messages for translation, and say by their source that they are
docstrings, so that the claims gate knows them for text that no page's author wrote. A page is read again when a source
file that it shows has changed. A name that is missing, or a docstring, is a located failure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from attnbook.bookkit import api_sources, problems
from attnbook.bookkit.api_objects import Described, describe, missing, public_names

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_LINE_LENGTH = 72
"""Longer signatures are written with one parameter a line."""


class english(nodes.General, nodes.Element):
    """What is in English whatever the language of the page."""


class Api(SphinxDirective):
    """The `{api}` directive; see the module."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"defined-in": lambda text: (text or "").split()}

    def run(self) -> list[nodes.Node]:
        """The descriptions, one after the other."""
        module = self.arguments[0].strip()
        found: list[nodes.Node] = []
        try:
            for name in self._names(module):
                if said := missing(module, name):
                    self._problem(said)
                else:
                    found += self._described(describe(module, name))
        except ImportError as error:
            self._problem(f"{module} cannot be imported: {error}")
        return found

    def _names(self, module: str) -> list[str]:
        given = [line.strip() for line in self.content if line.strip()]
        below = self.options.get("defined-in")
        if given and below:
            self._problem("give either names or :defined-in:, not both")
        if given:
            return given
        names = public_names(module, below)
        if not names:
            where = f" defined in {', '.join(below)}" if below else ""
            self._problem(f"{module}.__all__ has no name{where}")
        return names

    def _described(self, entry: Described) -> list[nodes.Node]:
        everything = list(entry.with_members())
        for item in everything:
            if not item.docstring:
                self._problem(f"{item.path} has no docstring ({item.place})")
            for file in item.files:
                self.env.note_dependency(file)
        holder = nodes.Element()
        lines = StringList(_markdown(entry, ticks=8), source=str(self.env.doc2path(self.env.docname)))
        self.state.nested_parse(lines, self.content_offset, holder)
        for item, node in zip(everything, list(holder.findall(addnodes.desc)), strict=True):
            _mark(node, item)
            api_sources.note(self.env, item.defined_in, item.files[0])
            signature = next(child for child in node.children if isinstance(child, addnodes.desc_signature))
            signature += api_sources.source_link("", module=item.defined_in, anchor=item.qualified)
        return holder.children

    def _problem(self, message: str) -> None:
        problems.report(self.env, self.lineno, "api", message)


def _markdown(entry: Described, ticks: int) -> list[str]:
    """A description as a directive of Sphinx's Python domain, its members inside."""
    fence = "`" * ticks
    options = [f":{key}: {value}".rstrip() for key, value in entry.options.items()]
    inside = [line for member in entry.members for line in ["", *_markdown(member, ticks - 2)]]
    return [
        f"{fence}{{py:{entry.kind}}} {entry.signature}", *options, "",
        *entry.docstring.splitlines(), *inside, fence,
    ]  # fmt: skip


def _mark(desc: addnodes.desc, item: Described) -> None:
    """Make a description's text English, untranslatable, a docstring by its source; link the names that it mentions."""
    (content,) = (child for child in desc.children if isinstance(child, addnodes.desc_content))
    for node in content.findall(nodes.Element):
        node.source = f"{item.files[0]}:docstring of {item.path}"
        if isinstance(node, nodes.TextElement) and not isinstance(node, nodes.Inline):
            node["translatable"] = False  # no part of a line may have it: Sphinx takes such parts apart
    own = [child for child in content.children if not isinstance(child, addnodes.desc)]
    for text in [text for child in own for text in child.findall(nodes.literal)]:
        name = text.astext().removesuffix("()")
        if _NAME.fullmatch(name) and name not in item.parameters and not f".{item.path}".endswith(f".{name}"):
            reference = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=name, refexplicit=False, refwarn=False, api_page=True
            )
            reference["py:module"] = item.module
            text.replace_self(reference)
            reference += text
    members = [child for child in content.children if child not in own]
    content.children = []
    content += [english("", *own), *members]


def resolve_short(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement
) -> nodes.Element | None:
    """Link a name that a docstring mentions without its path, if only one documented name ends in it."""
    if not node.get("api_page"):
        return None
    domain: Any = env.get_domain("py")
    ending = f".{node['reftarget']}"
    fitting = [name for name in domain.objects if name.endswith(ending)]
    if len(fitting) != 1:
        return None
    target = domain.objects[fitting[0]]
    uri = app.builder.get_relative_uri(node.get("refdoc", env.docname), target.docname)
    return nodes.reference("", "", contnode, internal=True, refuri=f"{uri}#{target.node_id}")


def visit_english(translator: Any, node: english) -> None:
    """Open the block."""
    translator.body.append('<div lang="en">\n')


def depart_english(translator: Any, node: english) -> None:
    """Close the block."""
    translator.body.append("</div>\n")


def nothing(translator: Any, node: english) -> None:
    """In plain text the block leaves no trace."""


def wrap_signatures(app: Sphinx, config: Config) -> None:
    """Long signatures get a line for each parameter, unless the book's configuration says how long is long."""
    if config.python_maximum_signature_line_length is None:
        config.python_maximum_signature_line_length = _LINE_LENGTH
        config.python_trailing_comma_in_multi_line_signatures = False


def setup(app: Sphinx) -> None:
    """Add the directive and its node."""
    app.add_node(english, html=(visit_english, depart_english), text=(nothing, nothing))
    app.add_directive("api", Api)
    app.connect("missing-reference", resolve_short)
    app.connect("config-inited", wrap_signatures)
