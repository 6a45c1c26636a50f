"""How a measurement in a cell's output reaches the claims domain."""

from __future__ import annotations

from typing import Any


class MeasurementRenderer:
    """Takes measurements out of a page's outputs."""

    mime_priority_overrides: tuple[tuple[str, str, int | None], ...] = ()

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """Nothing yet."""
        return None
