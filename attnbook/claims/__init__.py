"""Claims: numbers and statements in prose, bound to measurements and judged at every build, in any language.

A Sphinx extension: `extensions = ["attnbook.claims"]`. Nothing here is loaded before `setup` is called, so that the
parser of numbers and the ledger can be used where Sphinx is not installed.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def code_version() -> int:
    """A number that changes with the code of this package.

    What a page's reading found is kept; where the code that found it has changed, every page is read again.
    """
    folder = Path(__file__).parent
    sources = [*sorted(folder.rglob("*.py")), folder.parent / "measure.py"]
    return zlib.crc32(b"".join(path.read_bytes() for path in sources))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register roles, domain, transforms and the gate with Sphinx."""
    from attnbook.claims import gate, html, ledger_page, roles, settings, sources, transforms
    from attnbook.claims.domain import ClaimsDomain
    from attnbook.claims.pot import Templates

    settings.add_settings(app)
    app.connect("config-inited", settings.resolve_paths)
    for role in sources.ROLES:
        app.add_role(role, roles.ClaimRole())
    app.add_domain(ClaimsDomain)
    for transform in (transforms.ReadSource, transforms.CompareTranslations, transforms.CollectClaims):
        app.add_transform(transform)
    html.setup(app)  # registers nodes.claim_node with its HTML
    ledger_page.setup(app)
    app.add_event(gate.EVENT)
    app.connect("env-updated", gate.judge_book, priority=900)
    templates = Templates()
    app.connect("builder-inited", templates.remember)
    app.connect("build-finished", templates.finish)
    app.connect("build-finished", gate.closing_line, priority=900)
    return {"version": "1", "env_version": code_version(), "parallel_read_safe": True, "parallel_write_safe": True}
