"""How many bytes a function of NumPy, torch or plain Python holds at its worst moment: every allocation is counted.

Only what is allocated while it runs, so that no other memory of the process is in the sum. torch's storages are counted
from the call that returns them, without what an operation needs inside; `_peak` counts that, too, at a thousand times
the cost.
"""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def held_bytes(call: Callable[[], object], *, like: Any) -> int:
    """The most bytes at a time that `call()` allocated and had not yet released. like: an input, NumPy's or torch's."""
    tensors = _watched_torch() if type(like).__module__.partition(".")[0] == "torch" else nullcontext()
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
    """Inside it, torch's storages are counted from the call that returns them until they are released."""
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
