"""What the check and the reader's process tell each other: one line of JSON a message, arrays as bytes in base64.

JSON and not pickle, so that what comes back is data, whatever the reader's code has done to its process.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnbook.lab.step import Argument, Array, Failure, Given, Outcome


def pack(argument: Argument) -> Any:
    """JSON for one argument."""
    if isinstance(argument, Given):
        return {"given": argument.path, "settings": dict(argument.settings)}
    if isinstance(argument, np.ndarray):
        return pack_array(argument)
    return argument


def pack_array(array: Array) -> dict[str, Any]:
    """JSON for an array of numbers or booleans, in C order."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"array": data, "dtype": array.dtype.name, "shape": list(array.shape)}


def unpack_array(data: Mapping[str, Any]) -> Array:
    """The array, writable and its own."""
    flat = np.frombuffer(base64.b64decode(data["array"]), dtype=np.dtype(data["dtype"]))
    return flat.reshape(data["shape"]).copy()


def pack_outcome(outcome: Outcome) -> dict[str, Any]:
    """JSON for what a call did."""
    failure = outcome.failure
    return {
        "value": None if outcome.value is None else pack_array(outcome.value),
        "dtype": outcome.dtype,
        "failure": None if failure is None else {"kind": failure.kind, "text": failure.text, "line": failure.line},
        "changed": list(outcome.changed),
        "seconds": outcome.seconds,
        "told": dict(outcome.told),
    }


def unpack_outcome(data: Mapping[str, Any]) -> Outcome:
    """The outcome, in the parent."""
    return Outcome(
        value=None if data["value"] is None else unpack_array(data["value"]),
        dtype=data["dtype"],
        failure=None if data["failure"] is None else Failure(**data["failure"]),
        changed=tuple(data["changed"]),
        seconds=data["seconds"],
        told=data["told"],
    )
