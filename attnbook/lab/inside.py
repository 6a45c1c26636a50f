"""The capstone's driver: the reader's attention writes a text inside SmolLM2, beside ours. In the reader's process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbook.lab.step import Told, Unavailable
from attnbook.lab.worker import MEGABYTES_TO_LOAD, limit_memory

if TYPE_CHECKING:
    from attnbook.experiments._inside import Compared
    from attnbook.models import SmolLM2, Tokenizer

MEGABYTES = 2048
"""How far the process may grow while the model writes."""

INSTALL = "run `python -m pip install 'attnbook[models]'`"


def write(function: Callable[..., Any], prompt: Any, n: int) -> Told:
    """Go on with `prompt` (t,) by n tokens: (2, n), all 0 where `function` does what our attention does.

    The first row is how far the reader's tokens lie from ours, the second has a 1 where logits differ by more than
    rounding, up to the first token that differs. Words: see `_words`. `prompt` is a tensor for who wants tensors.
    Raises Unavailable where the model's file, or what reads it, is not installed.
    """
    limit_memory(MEGABYTES_TO_LOAD)  # torch maps gigabytes, and the model is half a one
    with _two_threads():
        model = _opened()
        limit_memory(MEGABYTES)
        import torch

        from attnbook.experiments._inside import compare

        found = compare(model, function, torch.as_tensor(prompt), n, tensors=not isinstance(prompt, np.ndarray))
    apart = np.zeros((2, n), np.int64)
    apart[0] = (found.tokens[1] - found.tokens[0]).numpy()
    apart[1, : found.comparable] = (found.off() > found.allowed).numpy()
    return Told(apart, _words(found, model.tokenizer, [int(token) for token in prompt]))


def _opened() -> SmolLM2:
    """The model, read once a process. Raises Unavailable."""
    try:
        from attnbook.experiments._smollm2 import model
        from attnbook.models import MissingModel
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed: {INSTALL}") from error
    try:
        return model()
    except MissingModel as error:
        raise Unavailable(str(error)) from error
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed: {INSTALL}") from error


@contextmanager
def _two_threads() -> Iterator[None]:
    """Two threads of torch: they read and write faster, and need no more memory than one."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # on a busy machine, a thread that waits should not spin
    try:
        import torch
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed: {INSTALL}") from error
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _words(found: Compared, tokenizer: Tokenizer, prompt: list[int]) -> dict[str, str]:
    """What a message may say: texts and tokens of both, where they part, where attention first differed, logits."""
    ours, yours = found.tokens[0].tolist(), found.tokens[1].tolist()
    words = {
        "prompt": repr(tokenizer.decode(prompt)),
        "ours": repr(tokenizer.decode(ours)),
        "yours": repr(tokenizer.decode(yours)),
        "our_tokens": " ".join(map(str, ours)),
        "your_tokens": " ".join(map(str, yours)),
        "difference": f"{float(found.off().max()):.2g}",
        "allowed": f"{found.allowed:.2g}",
    }
    if found.parted is not None:
        words |= {
            "number": str(found.parted + 1),
            "our_token": repr(tokenizer.decode(ours[found.parted : found.parted + 1])),
            "your_token": repr(tokenizer.decode(yours[found.parted : found.parted + 1])),
        }
    if found.apart is not None:
        words |= {
            "reading": str(found.apart.reading),
            "layer": str(found.apart.layer),
            "head": str(found.apart.head),
            "error": f"{found.apart.error:.2g}",
        }
    return words
