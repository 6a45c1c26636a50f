"""How the book's figures look: size, fonts, lines, and the two helpers with which a chapter starts a figure.

Sizes are in inches of 72 units; text of 10 units is drawn at `TEXT_EM` of the page's text, so a figure grows with the
reader's font size. `WIDTH` is chosen so that a phone of 360 px still shows that text at 9 px or more; a wider figure
scrolls sideways there instead of becoming unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attnbook.bookkit import palette

WIDTH: Final = 4.6
HEIGHT: Final = 2.8
TEXT_UNITS: Final = 10.0
TEXT_EM: Final = 0.85


def style() -> None:
    """Make the book's look matplotlib's default for the rest of the running chapter."""
    import matplotlib as mpl
    from cycler import cycler

    ink, muted = palette.INK, palette.MUTED
    mpl.rcParams.update(
        {
            "font.size": TEXT_UNITS,
            "axes.titlesize": TEXT_UNITS, "axes.labelsize": TEXT_UNITS, "legend.fontsize": TEXT_UNITS,
            "xtick.labelsize": TEXT_UNITS, "ytick.labelsize": TEXT_UNITS, "figure.titlesize": TEXT_UNITS,
            "text.color": ink, "axes.labelcolor": ink, "axes.titlecolor": ink,
            "xtick.labelcolor": ink, "ytick.labelcolor": ink,
            "axes.edgecolor": muted, "xtick.color": muted, "ytick.color": muted,
            "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none",
            "axes.spines.top": False, "axes.spines.right": False,
            "axes.grid": True, "axes.axisbelow": True, "grid.color": palette.GRID, "grid.linewidth": 0.8,
            "axes.prop_cycle": cycler(color=palette.CYCLE),
            "lines.linewidth": 1.8, "lines.markersize": 5, "patch.linewidth": 0, "patch.facecolor": palette.BLUE,
            "hatch.color": ink, "errorbar.capsize": 2, "legend.frameon": True,
            "legend.facecolor": palette.PAPER, "legend.edgecolor": palette.PAPER, "legend.framealpha": 0.8,
            "legend.fancybox": False, "figure.figsize": (WIDTH, HEIGHT),
            "image.composite_image": False, "image.interpolation": "none", "image.aspect": "equal",
        }
    )  # fmt: skip


def subplots(
    rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float | None = None, **options: Any
) -> tuple[Any, Any]:
    """A figure of the book and its axes, as `matplotlib.pyplot.subplots` gives them, without pyplot.

    `width` and `height` are inches for the whole figure; the height defaults to `HEIGHT` a row. Other options go to
    `Figure.subplots` (`sharex`, `width_ratios` …). Panels under one another read better on a phone than side by side.
    """
    style()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, HEIGHT * rows if height is None else height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def heatmap(
    axes: Any,
    values: Any,
    *,
    colour: str = palette.BLUE,
    negative: str = palette.ORANGE,
    limit: float | None = None,
    numbers: str | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Draw a matrix (rows, columns) as a heat map that follows the theme: 0 is the page, `limit` is the full colour.

    Negative values take the colour `negative`. `limit` defaults to the largest magnitude. `numbers` is a format such
    as `".2f"` to write each value into its cell, for small matrices; `rows` and `columns` label the ticks.
    NaN cells stay empty. Raises ValueError for an array that is not a matrix.
    """
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    matrix = np.asarray(values, dtype=float)
    if matrix.ndim != 2:
        raise ValueError(f"heatmap: expected a matrix (rows, columns), got {matrix.ndim} axes of shape {matrix.shape}")
    top = float(np.nanmax(np.abs(matrix))) if limit is None else limit
    for sign, tint in ((1, colour), (-1, negative)):
        part = np.where(matrix * sign >= 0, matrix * sign, np.nan)
        if np.nansum(part) > 0:
            # One hue from transparent to opaque: the page's own colour shines through, in either theme.
            shades = LinearSegmentedColormap.from_list(tint, [to_rgba(tint, 0.0), to_rgba(tint, 1.0)])
            axes.imshow(part, cmap=shades, vmin=0, vmax=top or 1.0, interpolation="none")
    axes.set_xlim(-0.5, matrix.shape[1] - 0.5)
    axes.set_ylim(matrix.shape[0] - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.grid(False)
    if rows is not None:
        axes.set_yticks(range(len(rows)), rows)
    if columns is not None:
        axes.set_xticks(range(len(columns)), columns)
    if numbers is not None:
        for (row, column), value in np.ndenumerate(matrix):
            if not np.isnan(value):
                write(axes, column, row, format(value, numbers))


def write(axes: Any, x: float, y: float, text: str, **options: Any) -> None:
    """Write text over whatever is there, legible in both themes by a halo in the page's colour."""
    # The halo is CSS on the group of that id: matplotlib's own path effects would turn the text into outlines.
    axes.text(x, y, text, **{"ha": "center", "va": "center", "gid": "halo", **options})
