"""The plan of tiles against the definition of who sees whom, pair by pair."""

import itertools

import numpy as np
import pytest

from attnbook.tiled.plan import KeyTile, QueryTile, band, plan, seen_by_all, seen_by_some
from tests.tolerance import visible

RULES = [(False, None), (True, None), (True, 1), (True, 2), (True, 4), (True, 5), (True, 99)]
LENGTHS = [(0, 3), (3, 0), (1, 1), (1, 11), (11, 1), (7, 7), (5, 11), (11, 5), (13, 13)]
TILES = [(1, 1), (2, 3), (3, 2), (4, 4), (5, 99), (99, 5)]


@pytest.mark.parametrize(("is_causal", "window"), RULES)
@pytest.mark.parametrize(("t_q", "t_kv"), LENGTHS)
def test_every_pair_is_visited_once_and_hidden_where_it_should(is_causal, window, t_q, t_kv):
    """All pairs that may see each other lie in one tile, those that may not are in its edges or in no tile."""
    seen = visible((t_q, t_kv), is_causal=is_causal, window=window)
    for tile_q, tile_k in TILES:
        visits = np.zeros((t_q, t_kv), int)
        stop = 0
        for tile in plan(t_q, t_kv, is_causal, window, tile_q, tile_k):
            assert tile.start == stop  # no query is left out
            stop = tile.stop
            assert 0 < tile.stop - tile.start <= tile_q
            for keys in tile.keys:
                assert 0 < keys.stop - keys.start <= tile_k
                part = seen[tile.start : tile.stop, keys.start : keys.stop]
                visits[tile.start : tile.stop, keys.start : keys.stop] += 1
                edge = np.zeros(keys.stop - keys.start, bool)
                for first, last in keys.edges:
                    assert keys.start <= first < last <= keys.stop
                    edge[first - keys.start : last - keys.start] = True
                np.testing.assert_array_equal(edge, ~part.all(0))  # exactly the columns where something is hidden
        assert stop == t_q
        np.testing.assert_array_equal(visits[seen], 1)
        assert visits.max(initial=0) <= 1


@pytest.mark.parametrize(("is_causal", "window"), RULES)
def test_no_tile_is_visited_in_vain(is_causal, window):
    """Every key of every tile is seen by some query of it."""
    for (t_q, t_kv), (tile_q, tile_k) in itertools.product(LENGTHS, TILES):
        seen = visible((t_q, t_kv), is_causal=is_causal, window=window)
        for tile in plan(t_q, t_kv, is_causal, window, tile_q, tile_k):
            for keys in tile.keys:
                assert seen[tile.start : tile.stop, keys.start : keys.stop].any(0).all()


def test_the_drawing_of_the_module():
    """Window 4, queries 3 to 5: keys 0 to 5, of which 2 and 3 are seen by all."""
    _, tile, _ = plan(9, 9, True, 4, 3, 9)
    assert tile == QueryTile(3, 6, (KeyTile(0, 6, ((0, 2), (4, 6))),))
    assert seen_by_some(3, 6, 9, 9, True, 4) == (0, 6)
    assert seen_by_all(3, 6, 9, 9, True, 4) == (2, 4)


def tiles_visited(query_tiles):
    return sum(len(tile.keys) for tile in query_tiles)


def test_work_is_what_is_seen():
    """Causal costs about half of all tiles, and a window a number for each tile of queries, whatever the length."""
    assert tiles_visited(plan(4096, 4096, False, None, 128, 128)) == 32 * 32
    assert tiles_visited(plan(4096, 4096, True, None, 128, 128)) == 32 * 33 / 2
    for tiles in (8, 64):
        assert tiles_visited(plan(128 * tiles, 128 * tiles, True, 256, 128, 128)) == 3 * tiles - 3


@pytest.mark.parametrize(("t_q", "t_kv"), [(64, 64), (16, 64)])
def test_a_window_longer_than_the_keys_is_no_window(t_q, t_kv):
    """The same plan; a window that is one shorter than the sequence differs in the last tile."""
    assert list(plan(t_q, t_kv, True, t_kv, 16, 16)) == list(plan(t_q, t_kv, True, None, 16, 16))
    assert list(plan(t_q, t_kv, True, t_kv - 1, 16, 16)) != list(plan(t_q, t_kv, True, None, 16, 16))


@pytest.mark.parametrize("window", [1, 7, 64, 100, 257])
@pytest.mark.parametrize(("t_q", "t_kv"), [(1031, 1031), (600, 1031), (1031, 700), (40, 1031)])
def test_a_band_is_the_middle_of_a_window(t_q, t_kv, window):
    """Each of its tiles, moved along the diagonal, has all keys that its queries see, and its edges hide the others."""
    seen = visible((t_q, t_kv), is_causal=True, window=window)
    middle = band(t_q, t_kv, window)
    if middle is None:
        assert t_q == 40 or window == 257
        return
    assert 0 <= middle.start < middle.stop <= t_q
    assert middle.stop + middle.rows > t_q  # what is left behind it is less than a tile
    assert middle.columns % 16 == 0
    (keys,) = middle.tile.keys
    assert (keys.start, keys.stop) == (0, middle.columns)
    free = np.ones(middle.columns, bool)
    for start, stop in keys.edges:
        free[start:stop] = False
    for start in range(middle.start, middle.stop, middle.rows):
        stop = start + middle.rows
        last = stop + t_kv - t_q
        assert last - middle.columns >= 0
        part = seen[start:stop, last - middle.columns : last]
        assert part.sum() == seen[start:stop].sum()  # nothing that is seen is left out
        np.testing.assert_array_equal(part.all(0), free)


def test_no_band_without_a_window_or_with_one_too_long():
    """Then tiles of keys are merged."""
    assert band(4096, 4096, None) is None
    assert band(9999, 9999, 4000) is None
