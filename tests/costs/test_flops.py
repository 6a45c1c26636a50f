"""Operations: pairs equal a mask written out, products equal hand counts, and what changes nothing changes nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbook.costs import attention_flops, count_pairs

LENGTHS = st.integers(0, 19)


def written_out(t_q, t_kv, is_causal, window):
    """The pairs that see each other, counted one by one from the conventions."""
    last = t_kv - t_q
    return sum(
        (not is_causal or j <= i + last) and (window is None or j > i + last - window)
        for i in range(t_q)
        for j in range(t_kv)
    )


@given(t_q=LENGTHS, t_kv=LENGTHS, window=st.none() | st.integers(1, 23))
def test_pairs_are_the_sum_of_the_mask(t_q, t_kv, window):
    """Causal and window, for any two lengths: the closed form counts what a mask holds."""
    assert count_pairs(t_q, t_kv) == written_out(t_q, t_kv, False, None)
    assert count_pairs(t_q, t_kv, is_causal=True, window=window) == written_out(t_q, t_kv, True, window)


def test_pairs_by_hand():
    """Seven rows of a triangle are 28; a window of three leaves 1 + 2 + 3 · 5; one query sees all that came before."""
    assert count_pairs(7, 7, is_causal=True) == 28
    assert count_pairs(7, 7, is_causal=True, window=3) == 18
    assert count_pairs(1, 5, is_causal=True) == 5
    assert count_pairs(5, 2, is_causal=True) == 3
    assert count_pairs(10**9, 10**9, is_causal=True) == 10**9 * (10**9 + 1) // 2


def test_products_count_two_for_each_multiplication_and_addition():
    """Scores cost 2 · head_dim a pair, values 2 · d_v, for every head and sequence."""
    got = attention_flops(5, 7, n_heads=3, head_dim=11, d_v=13, b=2)
    assert got.pairs == 2 * 3 * 5 * 7
    assert got.scores == 2 * 11 * got.pairs
    assert got.values == 2 * 13 * got.pairs
    assert got.projections == 0
    assert got.forward == got.scores + got.values
    assert got.total == got.forward + got.backward


def test_backward_is_two_and_a_half_times_forward():
    """Five products against two where all have one length; four without calculating the scores again."""
    equal = {"n_heads": 3, "head_dim": 11}
    got = attention_flops(7, **equal)
    assert got.backward * 2 == got.forward * 5
    assert attention_flops(7, **equal, recompute=False).backward == got.forward * 2
    apart = attention_flops(5, 7, n_heads=1, head_dim=11, d_v=13)
    products = {"S again": (11,), "dP": (13,), "dV": (13,), "dQ": (11,), "dK": (11,)}
    assert apart.backward == sum(2 * 35 * d for (d,) in products.values())


def test_shared_heads_change_the_projections_and_no_score():
    """Grouped heads leave scores and values as they were; k and v of fewer heads cost fewer operations to make."""
    many = attention_flops(7, n_heads=6, head_dim=11, d_model=17)
    few = attention_flops(7, n_heads=6, n_kv_heads=2, head_dim=11, d_model=17)
    assert (few.scores, few.values, few.backward) == (many.scores, many.values, many.backward)
    assert many.projections == 2 * 7 * 17 * 11 * (6 + 6 + 6 + 6)
    assert few.projections == 2 * 7 * 17 * 11 * (6 + 2 + 2 + 6)
    assert few.projections_backward == 2 * few.projections


def test_keys_of_another_sequence_are_projected_once_each():
    """Cross-attention: q and the output for t_q tokens, k and v for t_kv."""
    got = attention_flops(5, 7, n_heads=2, head_dim=11, d_v=13, d_model=17)
    assert got.projections == 2 * 17 * 2 * (5 * 11 + 7 * 11 + 7 * 13 + 5 * 13)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"window": 3}, "window: expected is_causal=True with it, got is_causal=False and window 3"),
        ({"window": 0, "is_causal": True}, "window: expected at least 1, got 0"),
        ({"n_kv_heads": 4}, "n_heads: expected a multiple of n_kv_heads 4, got 6"),
        ({"n_kv_heads": 0}, "n_heads: expected a multiple of n_kv_heads 0, got 6"),
        ({"head_dim": -1}, "head_dim: expected at least 0, got -1"),
        ({"t_kv": -2}, "t_kv: expected at least 0, got -2"),
        ({"t_kv": 2.0}, "t_kv: expected a whole number of at least 0, got 2.0"),
        ({"b": True}, "b: expected a whole number of at least 0, got True"),
        ({"d_model": "64"}, "d_model: expected a whole number of at least 0, got '64'"),
        ({"window": 2.5, "is_causal": True}, "window: expected a whole number of at least 1, got 2.5"),
    ],
)
def test_wrong_sizes_are_named(wrong, text):
    """Each wrong option is one error with its name, what was expected and what came."""
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        attention_flops(**{"t_q": 5, "n_heads": 6, "head_dim": 7, **wrong})
