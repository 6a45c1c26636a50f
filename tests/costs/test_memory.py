"""Bytes of tensors that exist at once."""

import pytest

from attnbook.costs import attention_memory, bytes_of, dtype_bits


def test_tensors_by_hand():
    """q, k, v and out of their own lengths and heads, the scores in float32, lse a number a query."""
    got = attention_memory(5, 7, n_heads=6, n_kv_heads=2, head_dim=11, d_v=13, b=3, dtype="float16")
    assert (got.q, got.k, got.v, got.out) == (
        2 * 3 * 6 * 5 * 11,
        2 * 3 * 2 * 7 * 11,
        2 * 3 * 2 * 7 * 13,
        2 * 3 * 6 * 5 * 13,
    )
    assert got.scores == 4 * 3 * 6 * 5 * 7
    assert got.lse == 4 * 3 * 6 * 5
    assert got.inputs_and_output == got.q + got.k + got.v + got.out


def test_twice_the_length_is_four_times_the_scores():
    """Scores grow with the square of the length, everything else in proportion."""
    short, long = (attention_memory(t, n_heads=3, head_dim=11) for t in (4096, 8192))
    assert long.scores == 4 * short.scores
    assert long.inputs_and_output == 2 * short.inputs_and_output


def test_bytes_round_up_and_dtypes_are_known():
    """Three numbers of four bits are two bytes; an unknown dtype lists the known ones."""
    assert bytes_of(3, "int4") == 2
    assert bytes_of(0, "int4") == 0
    with pytest.raises(ValueError, match=r"elements: expected a whole number of at least 0, got 2\.5"):
        bytes_of(2.5, "int4")
    assert dtype_bits("torch.bfloat16") == 16
    with pytest.raises(ValueError, match=r"dtype: expected one of float64, .*, got 'bf15'"):
        dtype_bits("bf15")


def test_sizes_below_zero_are_named():
    """A negative size is one clear error."""
    with pytest.raises(ValueError, match="t_kv: expected at least 0, got -1"):
        attention_memory(3, -1, n_heads=1, head_dim=1)
