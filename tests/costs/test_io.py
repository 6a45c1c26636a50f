"""Traffic between two memories: a loop that really loads tiles counts the same, and theorem 2's growth is seen."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbook.costs import attention_io, tile_lengths
from attnbook.costs.io import needed


class SlowMemory:
    """A memory that counts the numbers that are read from it and written to it."""

    def __init__(self):
        self.reads = self.writes = 0

    def read(self, rows, *widths):
        self.reads += rows * sum(widths)

    def write(self, rows, *widths):
        self.writes += rows * sum(widths)


def sees(i, j, t_q, t_kv, is_causal, window):
    last = i + t_kv - t_q
    return not is_causal or (j <= last and (window is None or j > last - window))


def tiled(t_q, t_kv, d, d_v, tile_q, tile_k, is_causal, window, order):
    """The tiled algorithm with its loads and stores, skipping tiles in which no query sees a key."""
    slow, tiles = SlowMemory(), 0
    q_tiles = [range(a, min(a + tile_q, t_q)) for a in range(0, t_q, tile_q)]
    k_tiles = [range(a, min(a + tile_k, t_kv)) for a in range(0, t_kv, tile_k)]

    def visible(queries, keys):
        return any(sees(i, j, t_q, t_kv, is_causal, window) for i in queries for j in keys)

    if order == "queries":
        for queries in q_tiles:
            slow.read(len(queries), d)
            for keys in k_tiles:
                if visible(queries, keys):
                    tiles += 1
                    slow.read(len(keys), d, d_v)
            slow.write(len(queries), d_v, 1)
    else:
        slow.write(t_q, d_v, 2)  # zeros, and the statistics of a row that has seen nothing
        for keys in k_tiles:
            if not any(visible(queries, keys) for queries in q_tiles):
                continue
            slow.read(len(keys), d, d_v)
            for queries in q_tiles:
                if visible(queries, keys):
                    tiles += 1
                    slow.read(len(queries), d, d_v, 2)  # q, and out with a row's maximum and sum, to go on from
                    slow.write(len(queries), d_v, 2)
    return slow, tiles


@given(
    t_q=st.integers(0, 17),
    t_kv=st.integers(0, 17),
    tile_q=st.integers(1, 7),
    tile_k=st.integers(1, 7),
    is_causal=st.booleans(),
    window=st.none() | st.integers(1, 19),
    order=st.sampled_from(["queries", "keys"]),
)
def test_a_loop_that_loads_tiles_counts_the_same(t_q, t_kv, tile_q, tile_k, is_causal, window, order):
    """Reads, writes and visited tiles equal those of the algorithm run on a counting memory, masks included."""
    window = window if is_causal else None
    options = {"is_causal": is_causal, "window": window, "tile_q": tile_q, "tile_k": tile_k, "order": order}
    got = attention_io(t_q, t_kv, head_dim=3, d_v=5, **options)
    slow, tiles = tiled(t_q, t_kv, 3, 5, tile_q, tile_k, is_causal, window, order)
    assert (got.tiled_reads, got.tiled_writes, got.tiles) == (slow.reads, slow.writes, tiles)


def test_the_closed_form_without_a_mask():
    """t_q·d + ⌈t_q/tile_q⌉·t_kv·(d + d_v) + t_q·(d_v + 1), a head."""
    got = attention_io(23, 31, head_dim=3, d_v=5, n_heads=2, b=7, tile_q=4, tile_k=9)
    assert got.tiled == 14 * (23 * 3 + 6 * 31 * 8 + 23 * 6)
    assert got.tiles == got.tiles_in_all == 14 * 6 * 4


def test_standard_attention_stores_and_reads_every_score():
    """Three passes: S written, read, P written, read; q, k, v read and out written once."""
    slow = SlowMemory()
    slow.read(23, 3)  # S = Q Kᵀ
    slow.read(31, 3)
    slow.write(23, 31)
    slow.read(23, 31)  # P = softmax(S)
    slow.write(23, 31)
    slow.read(23, 31)  # O = P V
    slow.read(31, 5)
    slow.write(23, 5)
    got = attention_io(23, 31, head_dim=3, d_v=5, tile_q=4, tile_k=9)
    assert (got.standard_reads, got.standard_writes) == (slow.reads, slow.writes)
    assert got.standard == slow.reads + slow.writes
    masked = attention_io(23, 31, head_dim=3, d_v=5, tile_q=4, tile_k=9, is_causal=True)
    assert masked.standard == got.standard
    assert masked.tiled < got.tiled


def test_traffic_falls_as_fast_memory_grows_as_theorem_two_says():
    """Twice the fast memory halves the traffic, within a tenth; four times the length takes sixteen times as much."""
    d, n = 64, 8192
    sizes = [4 * d * rows for rows in (16, 32, 64)]
    small, middle, large = (attention_io(n, head_dim=d, fast_memory=size, order="keys").tiled for size in sizes)
    assert small / middle == pytest.approx(2, rel=0.1)
    assert middle / large == pytest.approx(2, rel=0.1)
    longer = attention_io(4 * n, head_dim=d, fast_memory=sizes[0], order="keys").tiled
    assert longer / small == pytest.approx(16, rel=0.02)
    assert small == pytest.approx(4 * n * n * d * d / sizes[0] * 3, rel=0.05)  # Θ(n²d²/M); q, out in and out: 3 of d


def test_tile_lengths_are_line_one_of_the_paper():
    """⌈M / 4d⌉ keys and at most d queries; the larger of the two lengths counts."""
    assert tile_lengths(1000, 64) == (4, 4)
    assert tile_lengths(100_000, 64) == (64, 391)
    assert tile_lengths(1000, 32, 64) == (4, 4)
    got = attention_io(97, head_dim=64, fast_memory=100_000)
    assert (got.tile_q, got.tile_k) == (64, 391)


def test_what_a_step_needs_at_once():
    """q, out, k, v, the scores, and two statistics a query."""
    assert needed(4, 9, 3, 5) == 4 * 3 + 4 * 5 + 9 * 3 + 9 * 5 + 4 * 9 + 2 * 4
    assert attention_io(23, 31, head_dim=3, d_v=5, tile_q=4, tile_k=9).fast_memory == needed(4, 9, 3, 5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({}, "tile_q and tile_k: expected both, or fast_memory, got neither"),
        ({"tile_k": 4}, "tile_q and tile_k: expected both, or fast_memory, got tile_k"),
        ({"tile_q": 4, "tile_k": 0}, "tile_k: expected at least 1, got 0"),
        ({"tile_q": 4, "fast_memory": 9}, "fast_memory: expected no tile lengths with it, got tile_q"),
        ({"fast_memory": 0}, "fast_memory: expected at least 1, got 0"),
        ({"fast_memory": 1e5}, "fast_memory: expected a whole number of at least 1, got 100000.0"),
        ({"fast_memory": 9, "head_dim": 0}, "head_dim: expected at least 1, got 0"),
        ({"tile_q": 4, "tile_k": "9"}, "tile_k: expected a whole number of at least 1, got '9'"),
        ({"fast_memory": 9, "order": "rows"}, "order: expected 'queries' or 'keys', got 'rows'"),
        ({"fast_memory": 9, "window": 2}, "window: expected is_causal=True with it, got is_causal=False and window 2"),
        ({"fast_memory": 9, "n_heads": -1}, "n_heads: expected at least 0, got -1"),
    ],
)
def test_wrong_options_are_named(wrong, text):
    """Each wrong option is one error with its name, what was expected and what came."""
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        attention_io(5, **{"head_dim": 3, **wrong})
