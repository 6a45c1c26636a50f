"""What a chapter's cell calls to make a figure, and how it leaves the cell's output for the `{plot}` that places it.

    from attnbook.bookkit.figures import figure, subplots
    fig, ax = subplots()
    ax.plot(found.data["x"], found.data["y"])
    figure("scaling-scores", fig)

Nothing shows below the cell: the prose places the figure by name, with its caption and its alternative text.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from attnbook.bookkit.figure_style import heatmap, style, subplots, write

__all__ = ["FIGURE", "FigureRenderer", "figure", "heatmap", "style", "subplots", "write"]

FIGURE: Final = "application/vnd.attnbook.figure+json"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def figure(name: str, drawn: Any) -> None:
    """Publish a matplotlib figure under a name, for the page's `{plot}` directive; outside a kernel only check it.

    Raises ValueError for a name that is not lower-case words joined by hyphens, or a colour outside the palette.
    """
    from attnbook.bookkit import figure_svg

    if not _NAME.fullmatch(name):
        raise ValueError(f"figure name {name!r}: expected lower-case words joined by hyphens, such as scaling-scores")
    drawing = figure_svg.draw(name, drawn)
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close(drawn)  # or the inline backend would show it again below the cell, as an image without alt
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        payload = {"name": name, "svg": drawing.body, "width": drawing.width, "height": drawing.height}
        shell.display_pub.publish(data={FIGURE: payload}, metadata={})


class FigureRenderer:
    """MyST-NB's door for the figure MIME type: keeps the figure for the page's `{plot}`, shows nothing in place."""

    mime_priority_overrides: tuple[tuple[str, str, int | None], ...] = ()

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """The figure goes to the document under its name; None for any other MIME type."""
        if data.mime_type != FIGURE:
            return None
        page = renderer.renderer
        # Cells are counted as a reader counts them: those with code, from 1.
        before = page.nb_client.notebook.cells[: (data.cell_index or 0) + 1]
        number = sum(cell["cell_type"] == "code" for cell in before)
        made = page.document.attributes.setdefault("attnbook_figures", [])
        made.append((dict(data.content), data.line or 1, number))
        return []
