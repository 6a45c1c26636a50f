"""Whether a function holds a table of all queries and all keys: what it allocates is counted while it runs.

Every allocation counts that Python, NumPy or torch makes for it, so that no other memory of the process is in the sum,
and no function is thought to hold what it does not. It runs in the reader's process.
"""

from __future__ import annotations

import time
import tracemalloc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

QUICK, SLOW = 0.02, 0.2
"""Seconds for `PART`: below the first all of the input is tried, above the second none is: it would take too long."""

PART = (128, 512)
"""Queries and keys of a first try, enough to tell a loop over numbers from a loop over arrays."""

TABLE = 0.75
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


def held_bytes(call: Callable[[], object], *, like: Any) -> int:
    """The most bytes at a time that `call()` allocated and had not yet released. like: an input, NumPy's or torch's."""
    tensors = _watched_torch() if type(like).__module__.startswith("torch") else nullcontext()
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with tensors as watched:
            call()
        held = tracemalloc.get_traced_memory()[1] - before
    finally:
        if not already:
            tracemalloc.stop()
    return max(held, watched.most if watched is not None else 0)


def _watched_torch() -> AbstractContextManager[Any]:
    """Inside it, torch's storages are counted from the operation that returns them until they are released."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.now = self.most = 0
            self.known: dict[int, tuple[int, object]] = {}

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            for each in found if isinstance(found, tuple | list) else (found,):
                if isinstance(each, Tensor):
                    self.count(each.untyped_storage())
            return found

        def count(self, storage: Any) -> None:
            key = storage._cdata
            if key not in self.known:
                self.known[key] = storage.nbytes(), weakref.ref(storage, lambda _: self.release(key))
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)

        def release(self, key: int) -> None:
            self.now -= self.known.pop(key)[0]

    return Watch()
