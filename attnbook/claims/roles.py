"""The two roles, `claim` for a number and `holds` for a statement, in MyST and in reStructuredText alike.

A role records nothing. In a translated message it runs two or three times, and in the page of another language first
on the source's text, so that only the finished document tree tells what a page claims (see `transforms`).
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from attnbook.claims.nodes import claim_node

_FORM = re.compile(r"(?P<text>.*\S)\s*<(?P<ident>[^<>]*)>", re.DOTALL)


class ClaimRole(SphinxRole):
    """`text <id>`: text that a reader reads, and the id of the measurement that must bear it out."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """One claim node; a malformed role keeps its text and says what is wrong with it."""
        text, ident, malformed = read_role(self.text)
        node = claim_node(self.rawtext, text, role=self.name, ident=ident, malformed=malformed)
        node["raw"] = " ".join(self.text.split())
        node["support_smartquotes"] = False  # what is written is what is judged: no `--` turned into a dash
        node["classes"] = [self.name]
        self.set_source_info(node)
        return [node], []


def read_role(content: str) -> tuple[str, str, str]:
    """Split a role's content into text, id and what is wrong with it ("" where nothing is).

    The last `<…>` is the id, so that a bound such as `<1e-6 <softmax.error>` keeps its own sign.
    """
    content = content.strip()
    match = _FORM.fullmatch(content)
    if match is None:
        wrong = "no text before the id" if re.fullmatch(r"<[^<>]*>", content) else "no <id> at its end"
        return content, "", wrong
    text, ident = match["text"].strip(), match["ident"].strip()
    if not is_ident(ident):
        return text, "", f"<{ident}> is not the id of a measurement (dotted words such as scaling.max_prob)"
    return text, ident, ""


def is_ident(text: str) -> bool:
    """Could this be a measurement's id: dotted words?"""
    return all(part.isidentifier() for part in text.split("."))
