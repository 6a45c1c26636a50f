"""The conventions of options hold in every implementation, and each way in which others differ is seen by its own."""

import pytest
import torch

from attnbook.api import attention, attention_varlen
from attnbook.experiments import option_conventions


def broken(monkeypatch, **changes):
    """The ids that no longer hold when functions that the experiment calls are replaced."""
    for name, function in changes.items():
        monkeypatch.setattr(option_conventions, name, function)
    return {measured.id.removeprefix("notation.") for measured in option_conventions.run() if not measured.value}


def test_all_conventions_hold():
    """Each measurement is a boolean, and true."""
    assert all(measured.value is True for measured in option_conventions.run())


def before_itself(q, k, v, *, window=None, **options):
    """The window counts the keys before the query, as flash-attention's does."""
    return attention(q, k, v, window=None if window is None else window + 1, **options)


def no_window(q, k, v, *, window=None, **options):
    """The window is dropped."""
    return attention(q, k, v, **options)


def favours_the_far(q, k, v, *, alibi_slopes=None, **options):
    """The sign of the slopes turned round."""
    return attention(q, k, v, alibi_slopes=None if alibi_slopes is None else -alibi_slopes, **options)


def heads_turned(q, k, v, *, alibi_slopes=None, **options):
    """The last head gets the first slope."""
    return attention(q, k, v, alibi_slopes=None if alibi_slopes is None else alibi_slopes.flip(-1), **options)


def capped_first(q, k, v, *, softcap=None, scale=None, **options):
    """The cap before the scale: scale · c · tanh(q · k / c)."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if softcap is not None:
        softcap = softcap * scale
    return attention(q, k, v, softcap=softcap, scale=scale, **options)


def scaled_sink(q, k, v, *, sinks=None, scale=None, **options):
    """The sink is scaled as the scores are."""
    given = q.shape[-1] ** -0.5 if scale is None else scale
    return attention(q, k, v, sinks=None if sinks is None else sinks * given, scale=scale, **options)


def not_in_lse(q, k, v, *, sinks=None, return_lse=False, **options):
    """The lse of the keys alone."""
    out = attention(q, k, v, sinks=sinks, **options)
    return (out, attention(q, k, v, return_lse=True, **options)[1]) if return_lse else out


def no_sink(q, k, v, *, sinks=None, **options):
    """Dropped."""
    return attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (before_itself, {"window", "window_of_one", "window_aligned", "window_and_mask"}),
        (no_window, {"window", "window_of_one", "window_aligned", "window_and_mask"}),
        (favours_the_far, {"cap_then_slopes", "slopes", "slopes_both_sides", "slopes_of_heads", "slopes_of_keys"}),
        (heads_turned, {"slopes_of_heads"}),
        (capped_first, {"scale_then_cap"}),
        (scaled_sink, {"sinks_as_they_are", "sinks_alone", "sinks_alone_gradient"}),
        (not_in_lse, {"sinks_in_lse", "sinks_once", "sinks_alone", "sinks_alone_gradient"}),
        (no_sink, {"sinks", "sinks_as_they_are", "sinks_in_lse", "sinks_alone", "sinks_alone_gradient"}),
    ],
)
def test_another_convention_is_seen(monkeypatch, function, expected):
    """By the measurements that are about it, and by no other."""
    assert broken(monkeypatch, attention=function) == expected


def across(q, k, v, ends_q, ends_k, **options):
    """All packed rows as one sequence."""
    return attention_varlen(q, k, v, [0, len(q)], [0, len(k)], **options)


def one_row_on(q, k, v, ends_q, ends_k, **options):
    """Every start of keys one row too late."""
    return attention_varlen(q, k.roll(-1, 0), v.roll(-1, 0), ends_q, ends_k, **options)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (across, {"packed_own", "packed_causal", "packed_rest"}),
        (one_row_on, {"packed_own", "packed_causal"}),
        (lambda q, k, v, *ends, return_lse=False, **options: attention_varlen(
            q, k, v, *ends, return_lse=return_lse, **options | {"is_causal": False}), {"packed_causal"}),
    ],
)  # fmt: skip
def test_another_packing_is_seen(monkeypatch, function, expected):
    """By the measurements that are about it."""
    assert broken(monkeypatch, attention_varlen=function) == expected


def test_the_sinks_merged_twice_are_seen(monkeypatch):
    """A merge of two parts that both hold the sink is not the whole."""

    def always(q, k, v, *, sinks=None, **options):
        given = torch.tensor([3.0], dtype=q.dtype) if q.shape[1] == 1 and k.shape[2] == 3 and sinks is None else sinks
        return attention(q, k, v, sinks=given, **options)

    assert "sinks_once" in broken(monkeypatch, attention=always)
