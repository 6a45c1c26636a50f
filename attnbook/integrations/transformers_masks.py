"""The masks that transformers asks for, as words where words are enough (`lazy_mask`), as booleans otherwise.

transformers describes a mask by a function of four numbers, (batch, head, query, key) -> bool, and by where the queries
and the keys begin within their sequence. Which function it is cannot be asked; but the functions are made by few
factories, and two functions made by the same factory from the same numbers have the same code and the same enclosed
values. So we ask the factory for one more and compare (`alike`). Any other function, also one that a later release
makes differently, is simply evaluated: slower, never wrong.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import Any

import torch
from torch import Tensor

from attnbook.integrations.lazy_mask import LazyMask, Words


def attention_mask(
    masking: Any,
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Tensor:
    """One mask for all layers of a kind, (b, 1, q_length, kv_length), True = may attend; what transformers calls.

    `masking` is `transformers.masking_utils`. Query i stands at position q_offset + i, key j at kv_offset + j;
    `attention_mask` (b, positions) is False at padding. While a graph is traced, and where transformers wants the
    booleans (it says so by forbidding the two skips), they are made at once.
    """
    from transformers.utils.import_utils import is_tracing

    booleans = functools.partial(
        masking.sdpa_mask,
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, kv_offset=kv_offset, mask_function=mask_function,
        attention_mask=attention_mask, local_size=local_size, device=device,
        allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **others,
    )  # fmt: skip
    if is_tracing(attention_mask):
        return booleans(q_offset=q_offset)  # type: ignore[no-any-return]
    check_uses_the_interface(type(others.get("config")).__module__)
    begin = int(q_offset)  # now: a static cache moves this tensor on, perhaps before a lazy mask is read
    booleans = functools.partial(booleans, q_offset=begin)

    words = None
    if attention_mask is None or (attention_mask.ndim == 2 and attention_mask.dtype == torch.bool):
        is_causal, window = _causal(masking, mask_function, local_size)
        if is_causal and allow_is_causal_skip:
            t_kv = begin - kv_offset + q_length  # the last query's own key is the last that any query sees
            if q_length <= t_kv <= kv_length:
                words = Words(True, window, t_kv, _padding(attention_mask, kv_offset, t_kv))
        elif alike(mask_function, masking.bidirectional_mask_function) and allow_is_bidirectional_skip:
            words = Words(False, None, kv_length, _padding(attention_mask, kv_offset, kv_length))
    if words is None and attention_mask is None and q_length == kv_length and begin == kv_offset:
        words = _packed(masking, mask_function, local_size, kv_length)
    if words is None:
        return booleans()  # type: ignore[no-any-return]
    return LazyMask(words, booleans, shape=(batch_size, 1, q_length, kv_length), device=device)


@functools.cache
def check_uses_the_interface(configuration: str) -> None:
    """Raises ValueError for a model that asks for masks but attends by itself: it would add our booleans to its scores.

    `configuration` is the module of the model's configuration; its models are in the module beside it.
    """
    models = sys.modules.get(configuration.replace(".configuration_", ".modeling_"))
    if ".configuration_" not in configuration or models is None:
        return
    if "ALL_ATTENTION_FUNCTIONS" not in inspect.getsource(models):
        raise ValueError(f"{models.__name__} has an attention of its own and calls no other: use 'eager'")


def alike(one: Any, other: Any, tensors: list[Tensor] | None = None) -> bool:
    """Were both functions made by the same code, with the same functions and numbers enclosed?

    Where `tensors` is given, an enclosed tensor is like every other one, and those of `one` are added to it.
    """
    if isinstance(one, types.FunctionType) and isinstance(other, types.FunctionType):
        return one.__code__ is other.__code__ and alike(_enclosed(one), _enclosed(other), tensors)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(alike(x, y, tensors) for x, y in zip(one, other, strict=True))
    if isinstance(one, Tensor) and isinstance(other, Tensor) and tensors is not None:
        tensors.append(one)
        return True
    return isinstance(one, int) and isinstance(other, int) and one == other


def _enclosed(function: types.FunctionType) -> tuple[Any, ...]:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def _causal(masking: Any, mask_function: Any, local_size: int | None) -> tuple[bool, int | None]:
    """Is it causal, and with which window?"""
    if alike(mask_function, masking.causal_mask_function):
        return True, None
    if local_size is not None and alike(mask_function, masking.sliding_window_causal_mask_function(local_size)):
        return True, local_size
    return False, None


def _packed(masking: Any, mask_function: Any, local_size: int | None, t: int) -> Words | None:
    """The words for several sequences in one row of the batch, each of them causal, if that is what the function is."""
    bases: list[tuple[Any, int | None]] = [(masking.causal_mask_function, None)]
    if local_size is not None:
        bases.append((masking.sliding_window_causal_mask_function(local_size), local_size))
    some = torch.zeros(0)
    # Within a sequence, positions and places in the row differ by a constant: earlier releases did not convert them.
    convert = getattr(masking, "remap_positions_for_packed_sequence", lambda base, _: base)
    for base, window in bases:
        tensors: list[Tensor] = []
        packed = masking.and_masks(convert(base, some), masking.packed_sequence_mask_function(some))
        if alike(mask_function, packed, tensors):
            sequence = tensors[-1]  # (b, t): a number for each sequence of a row, rising
            begins = torch.ones_like(sequence, dtype=torch.bool)
            begins[:, 1:] = sequence[:, 1:] != sequence[:, :-1]
            begin = begins.flatten().nonzero()[:, 0]
            return Words(True, window, t, None, torch.cat([begin, begin.new_tensor([sequence.numel()])]).int())
    return None


def _padding(attention_mask: Tensor | None, begin: int, t_kv: int) -> Tensor | None:
    """Which of the t_kv keys from position `begin` on are tokens, (b, 1, 1, t_kv); None where all are."""
    if attention_mask is None:
        return None
    tokens = attention_mask[:, begin : begin + t_kv]
    if tokens.shape[1] < t_kv:  # positions that the mask does not reach hold no token
        tokens = torch.nn.functional.pad(tokens, (0, t_kv - tokens.shape[1]))
    return None if bool(tokens.all()) else tokens[:, None, None, :]
