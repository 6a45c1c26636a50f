"""Figures."""

from __future__ import annotations

from typing import Any


class FigureRenderer:
    """Takes figures out of outputs."""

    mime_priority_overrides: tuple[tuple[str, str, int | None], ...] = ()

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """Nothing yet."""
        return None
