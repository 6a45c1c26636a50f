"""How a measurement in a cell's output reaches the claims domain: a renderer plugged into MyST-NB.

What a cell published is in its stored output, so a page built from a cache has its measurements too. Nothing is drawn.
MyST-NB does not hand over the outputs of a cell tagged `remove-output` or `remove-cell`: hide such a cell instead.
"""

from __future__ import annotations

from typing import Any

from attnbook.measure import EXPERIMENT, MEASUREMENT, Measurement

CELLS_SEEN = "attnbook_claims_cells"
"""While a page is read: the number of each cell that measured, by MyST-NB's index (which counts text cells too)."""


class MeasurementRenderer:
    """Takes measurements out of a page's outputs and into `ClaimsDomain`."""

    mime_priority_overrides: tuple[tuple[str, str, int | None], ...] = ()

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """No nodes for our two MIME types; None for every other, which leaves it to the next renderer."""
        if data.mime_type not in (MEASUREMENT, EXPERIMENT):
            return None
        env = renderer.renderer.sphinx_env
        if data.mime_type == MEASUREMENT and env is not None and "claims" in env.domains:
            _note(env, data, renderer.renderer.nb_client.notebook)
        return []


def _note(env: Any, data: Any, notebook: Any) -> None:
    domain = env.domains["claims"]
    # Cells are counted as a reader counts them: code cells only, from 1.
    cell = None
    if data.cell_index is not None:
        cell = sum(1 for before in notebook.cells[: data.cell_index + 1] if before["cell_type"] == "code")
        env.temp_data.setdefault(CELLS_SEEN, {})[data.cell_index] = cell
    try:
        measurement = Measurement.from_json(data.content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"cell {cell} published a measurement that cannot be read ({error!r}): run the cell again"
        domain.problem(env.docname, data.line or 1, "unreadable measurement", message)
        return
    domain.note_measurement(env.docname, measurement, cell=cell, line=data.line)
