"""Masks of numbers: the right ones, and memory that is used again without anybody's numbers changing."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnbook.api import attention, flash, float_mask

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
T_Q, T_KV = 67, 71


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Each test begins without memory of another's."""
    kept: list[Tensor] = []
    monkeypatch.setattr(float_mask, "_kept", kept)
    return kept


def booleans(seed: int = 0, *shape: int) -> Tensor:
    return torch.rand(shape or (T_Q, T_KV), generator=torch.Generator().manual_seed(seed)) < 0.6


def inputs(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(1, 3, t, 13, generator=generator).to(dtype) for t in (T_Q, T_KV, T_KV)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_booleans_made_of_bits(dtype):
    """0 and −inf, in every dtype and layout, in fresh memory and in memory that held something else."""
    seen = booleans()
    for mask in (seen, seen.T, seen[::2, 1:], seen[:, :1].expand(T_Q, 5), seen[:0], seen[0, 0]):
        expected = torch.where(mask, torch.zeros((), dtype=dtype), -torch.inf)
        place = torch.full(mask.shape, torch.nan, dtype=dtype)
        for found in (float_mask.hidden_by(mask, dtype), float_mask.hidden_by(mask, dtype, place)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert float_mask.hidden_by(mask, dtype, place) is place


def test_on_a_device_without_values():
    """The shape is all that there is."""
    found = float_mask.hidden_by(booleans().to("meta"), torch.float32)
    assert (found.shape, found.dtype) == ((T_Q, T_KV), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_call_reads_its_own_mask(dtype, nothing_kept):
    """Masks one after another, of the same axes and of others, also changed in place between two calls."""
    q, k, v = inputs(dtype)
    changing = booleans(1)
    for turn, mask in enumerate([changing, booleans(2), changing, booleans(3, 1, 3, T_Q, T_KV), changing]):
        changing[turn + 5] = changing[turn + 5].logical_not()
        out = attention(q, k, v, mask=mask)
        numbers = torch.where(mask, torch.zeros((), dtype=dtype), -torch.inf)
        expected, _ = flash.FORWARD(q, k, v, 0.0, False, attn_mask=numbers[None, None] if mask.ndim == 2 else numbers)
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
        assert len(nothing_kept) == 1


def test_the_memory_is_used_again(nothing_kept):
    """The same for masks of the same axes; and no more than one is kept."""
    q, k, v = inputs()
    attention(q, k, v, mask=booleans(1))
    kept = nothing_kept[0].data_ptr()
    attention(q, k, v, mask=booleans(2))
    assert [x.data_ptr() for x in nothing_kept] == [kept]


def test_a_mask_of_numbers_stays_its_owners(nothing_kept):
    """It is read where it is, and never kept."""
    q, k, v = inputs()
    mask = torch.randn(T_Q, T_KV)
    before = mask.clone()
    attention(q, k, v, mask=mask)
    attention(q, k, v, mask=booleans())
    torch.testing.assert_close(mask, before, rtol=0, atol=0)
    assert nothing_kept[0].data_ptr() != mask.data_ptr()


def test_a_backward_pass_reads_the_mask_of_its_forward_pass():
    """Other calls have come between the two."""
    seen, other = booleans(1), booleans(2)
    seen[:, 0] = True

    def gradients(between: bool) -> tuple[Tensor, ...]:
        leaves = [x.requires_grad_() for x in inputs()]
        out = attention(*leaves, mask=seen)
        if between:
            with torch.no_grad():
                attention(*leaves, mask=other)
        return torch.autograd.grad(out.square().sum(), leaves)

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_in_inference_and_out_of_it(nothing_kept):
    """A tensor of inference could not be written to outside: what is kept is none."""
    q, k, v = inputs()
    with torch.inference_mode():
        attention(q, k, v, mask=booleans(1))
    assert not nothing_kept[0].is_inference()
    first = attention(q, k, v, mask=booleans(2))
    with torch.inference_mode():
        torch.testing.assert_close(attention(q, k, v, mask=booleans(2)), first, rtol=0, atol=0)


def test_nothing_is_kept_under_a_mode_or_above_the_limit(nothing_kept, monkeypatch):
    """A mode sees each operation and may make other tensors of them; a large mask is not worth it."""
    q, k, v = inputs()
    with FlopCounterMode(display=False):
        attention(q, k, v, mask=booleans())
    assert not nothing_kept
    monkeypatch.setattr(float_mask, "KEPT", 4 * T_Q * T_KV - 1)
    attention(q, k, v, mask=booleans())
    assert not nothing_kept


def test_threads_do_not_share_it():
    """Each gets what it gets alone, though all run at once."""
    q, k, v = inputs()
    masks = [booleans(seed) for seed in range(4)]
    alone = [attention(q, k, v, mask=mask) for mask in masks]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not torch.equal(attention(q, k, v, mask=masks[i]), alone[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
