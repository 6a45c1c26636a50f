"""An admonition with the class `dropdown` becomes `<details>`: solutions fold without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


class folded(nodes.General, nodes.Element):
    """A folded block; its first child is a `folded_title`."""


class folded_title(nodes.TextElement):
    """What shows while the block is folded."""


class FoldAdmonitions(SphinxPostTransform):
    """Replace admonitions of the class `dropdown`, for HTML only: other formats have nothing that folds."""

    default_priority = 300
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """See the class."""
        for node in list(self.document.findall(nodes.admonition)):
            if "dropdown" in node["classes"] and isinstance(node.children[0], nodes.title):
                title, *body = node.children
                label = folded_title("", "", *title.children, classes=["admonition-title"])
                classes = ["admonition", *(name for name in node["classes"] if not name.startswith("admonition-"))]
                node.replace_self(folded("", label, *body, ids=node["ids"], names=node["names"], classes=classes))


def visit_folded(translator: HTML5Translator, node: folded) -> None:
    """Open the block; the class `open` unfolds it from the start."""
    opened: dict[str, Any] = {"open": "open"} if "open" in node["classes"] else {}
    translator.body.append(translator.starttag(node, "details", **opened))


def depart_folded(translator: HTML5Translator, node: folded) -> None:
    """Close the block."""
    translator.body.append("</details>\n")


def visit_title(translator: HTML5Translator, node: folded_title) -> None:
    """Open its title."""
    translator.body.append(translator.starttag(node, "summary", ""))


def depart_title(translator: HTML5Translator, node: folded_title) -> None:
    """Close its title."""
    translator.body.append("</summary>\n")


def setup(app: Sphinx) -> None:
    """Add the two nodes and the transform."""
    app.add_node(folded, html=(visit_folded, depart_folded))
    app.add_node(folded_title, html=(visit_title, depart_title))
    app.add_post_transform(FoldAdmonitions)
