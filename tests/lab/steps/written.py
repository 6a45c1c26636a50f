"""Source text of solutions, put together from what is written into the hole."""

from __future__ import annotations

import textwrap
from collections.abc import Callable


def function(signature: str) -> Callable[[str], str]:
    """What writes a function with that signature around a body."""

    def written(body: str) -> str:
        return f"def {signature}:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"

    return written


def with_numpy(source: str) -> str:
    """The source of a file that imports NumPy."""
    return f"import numpy as np\n{source}"


def with_torch(source: str) -> str:
    """The source of a file that imports torch."""
    return f"import torch\n{source}"
