"""Calls the reader's tiled attention, and asks whether it holds a table of all queries and all keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from attnbook.experiments._held import held_bytes

QUICK: Final = 0.02
SLOW: Final = 0.2
"""Seconds for `PART`: below the first all of the input is tried, above the second none is: it would take too long."""

PART: Final = (128, 512)
"""Queries and keys of a first try, enough to tell a loop over numbers from a loop over arrays."""

TABLE: Final = 0.75
"""The share of a float32 table (t_q, t_kv) that counts as one; beside its tiles a walk holds far less."""


def tiled(function: Callable[..., Any], q: Any, k: Any, v: Any, block: int, count_tables: bool = False) -> Any:
    """What the function returns; with count_tables, whether it held a table of scores (t_q, t_kv), as (1, 1): 1 or 0.

    A function that is too slow to be watched gets 0.
    """
    if not count_tables:
        return function(q, k, v, block)
    few = (q[: PART[0]], k[: PART[1]], v[: PART[1]])
    start = time.perf_counter()
    function(*few, block)
    seconds = time.perf_counter() - start
    watch = (q, k, v) if seconds < QUICK else few
    held = 0 if seconds > SLOW else held_bytes(lambda: function(*watch, block), like=q)
    return (q[:1, :1] * 0) + float(held >= TABLE * 4 * len(watch[0]) * len(watch[1]))
