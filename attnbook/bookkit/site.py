"""What a page needs beside its text: a description for search engines, no empty boxes, labels in its language."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

_DESCRIPTION_LENGTH: Final = 120

_CODE: Final = {"ja": "コード", "ko": "코드", "en": "Code"}


class DropEmptyOutputs(SphinxTransform):
    """A cell that published only measurements and figures has nothing to show below it: no empty box there."""

    default_priority = 14  # after plots (12) took their figures

    def apply(self, **kwargs: Any) -> None:
        """See the class."""
        for node in list(self.document.findall(nodes.container)):
            if node.get("nb_element") == "cell_code_output" and not node.children:
                node.parent.remove(node)


def describe(doctree: nodes.document) -> str:
    """A page's description: its first paragraph outside any box, cut at a sentence where there is one."""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):
            text = " ".join(_plain(paragraph).split())
            if len(text) <= _DESCRIPTION_LENGTH:
                return text
            cut = max(text.rfind(end, 0, _DESCRIPTION_LENGTH) for end in "。.다")
            return text[: cut + 1] if cut > 0 else text[: _DESCRIPTION_LENGTH - 1] + "…"
    return ""


def _plain(node: nodes.Node) -> str:
    """A node's text without maths, whose LaTeX nobody wants to read in a list of search results."""
    if isinstance(node, nodes.Text):
        return node.astext()
    return "" if isinstance(node, nodes.math) else "".join(map(_plain, node.children))


def add_description(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put the description into the page's head."""
    if doctree is not None and (text := describe(doctree)):
        context["metatags"] = f'{context.get("metatags", "")}\n<meta name="description" content="{escape(text)}" />'


def name_code(app: Sphinx, config: Config) -> None:
    """The label of folded code follows the language of the build; it stays when the code opens: the mark turns."""
    config.nb_code_prompt_show = config.nb_code_prompt_hide = _CODE.get(config.language, _CODE["en"])


def visit_hidden(translator: Any, node: nodes.Element) -> None:
    """MyST-NB's folded code; its own summary hides the words that are seen behind an English label."""
    translator.body.append(f'<details class="admonition hide {" ".join(node["classes"])}">\n')
    translator.body.append(f'<summary class="admonition-title">{escape(node["prompt_show"])}</summary>\n')


def depart_hidden(translator: Any, node: nodes.Element) -> None:
    """Close it."""
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> None:
    """Add the transform, the writer of folded code and the two handlers."""
    from myst_nb.sphinx_ import HideCodeCellNode  # type: ignore[import-untyped]

    app.add_node(HideCodeCellNode, override=True, html=(visit_hidden, depart_hidden))
    app.add_transform(DropEmptyOutputs)
    app.connect("html-page-context", add_description)
    app.connect("config-inited", name_code)
