"""Every convention of the notation page holds, and breaking one in the package is seen by its own measurement."""

import pytest
import torch

from attnbook.api import attention
from attnbook.experiments import conventions
from attnbook.reference import causal_mask


def broken(monkeypatch, **changes):
    """The ids that no longer hold when functions that the experiment calls are replaced."""
    for name, function in changes.items():
        monkeypatch.setattr(conventions, name, function)
    return {measured.id.removeprefix("notation.") for measured in conventions.run() if not measured.value}


def test_all_conventions_hold():
    """Each measurement is a boolean, and true, in every implementation."""
    assert all(measured.value is True for measured in conventions.run())


@pytest.mark.parametrize("impl", conventions.IMPLEMENTATIONS)
def test_one_implementation_that_differs_is_enough(monkeypatch, impl):
    """A convention holds where it holds in all: breaking one implementation alone is seen."""

    def one_broken(q, k, v, **options):
        return (no_root if options["impl"] == impl else attention)(q, k, v, **options)

    assert broken(monkeypatch, attention=one_broken) == {"scale", "scale_then_mask"}


def flipped(q, k, v, *, mask=None, **options):
    """True = drop."""
    return attention(q, k, v, mask=~mask if mask is not None and mask.dtype == torch.bool else mask, **options)


def top_left(q, k, v, *, mask=None, is_causal=False, **options):
    """Query i sees key j when j ≤ i, whatever the lengths."""
    t_q, t_kv = q.shape[2], k.shape[2]
    tri = causal_mask(max(t_q, t_kv), like=q)[:t_q, :t_kv] if is_causal else None
    return attention(q, k, v, mask=tri if mask is None else mask if tri is None else mask & tri, **options)


def interleaved(q, k, v, **options):
    """Groups [0, 1, 0, 1] in place of [0, 0, 1, 1]."""
    repeat = q.shape[1] // k.shape[1] if q.shape[1] % k.shape[1] == 0 else 1
    return attention(q, k.repeat(1, repeat, 1, 1), v.repeat(1, repeat, 1, 1), **options)


def no_root(q, k, v, *, scale=None, **options):
    """1/d in place of 1/√d."""
    return attention(q, k, v, scale=1 / q.shape[-1] if scale is None else scale, **options)


def scaled_mask(q, k, v, *, mask=None, scale=None, **options):
    """The scale taken after the mask is added."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    mask = mask * scale if mask is not None and mask.dtype != torch.bool else mask
    return attention(q, k, v, mask=mask, scale=scale, **options)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (flipped, {"true_keeps", "both_must_allow", "empty_row", "empty_row_gradient"}),
        (top_left, {"causal", "causal_short_memory", "both_must_allow"}),
        (interleaved, {"groups"}),
        (no_root, {"scale", "scale_then_mask"}),
        (scaled_mask, {"scale_then_mask", "lowest_hides"}),
    ],
)
def test_another_convention_is_seen(monkeypatch, function, expected):
    """By the measurements that are about it, and by no other."""
    assert broken(monkeypatch, attention=function) == expected


def test_torchs_softmax_breaks_the_convention_for_empty_rows(monkeypatch):
    """It gives NaN for a row of −inf."""
    assert broken(monkeypatch, softmax=lambda x: torch.softmax(x, -1)) == {"empty_softmax", "empty_softmax_gradient"}


def base_two(q, k, v, *, return_lse=False, **options):
    """The log-sum-exp as some kernels keep it inside."""
    out, lse = attention(q, k, v, return_lse=True, **options)
    return (out, lse / 0.6931471805599453) if return_lse else out


def test_a_logarithm_to_base_two_is_seen(monkeypatch):
    """By the one measurement that is about it."""
    assert broken(monkeypatch, attention=base_two) == {"natural_logarithm"}


def test_merging_in_equal_parts_is_seen(monkeypatch):
    """Whatever the two log-sum-exps."""
    monkeypatch.setattr(conventions, "merge", lambda a, lse_a, b, lse_b: ((a + b) / 2, torch.logaddexp(lse_a, lse_b)))
    assert "merge" in broken(monkeypatch)
