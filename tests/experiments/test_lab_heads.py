"""Heads of the lab as black boxes: what is shaken shows who reads what, and functions that are wrong are seen."""

import numpy as np

from attnbook.experiments import lab_heads


def test_the_reference_reads_what_the_formula_says():
    """Neighbouring query heads share; what one number moves is one head of one token, or one component of every."""
    found = lab_heads.run(repeats=3)
    assert (found["lab.heads_output_numbers"], found["lab.heads_moved_by_query"]) == (7 * 18, 3)
    assert found["lab.heads_moved_by_value"] == 7
    assert found["lab.heads_moved_there"] is True
    assert found.data["reads"].argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2]
    assert found.data["reads_in_turn"].argmax(axis=1).tolist() == [0, 1, 2, 0, 1, 2]
    assert found["lab.groups_still_right"] == 2
    for name in ("same_shape", "ones", "order_of_keys", "reads_as_formula", "reads_in_turn_noticed", "own_are_heads"):
        assert found[f"lab.groups_{name}"] is True
    assert found["lab.groups_in_turn_off"] > 0.5


def test_the_wrong_order_is_that_of_repeating_the_whole():
    """It is what comes out where key and value heads are repeated all together."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((5, heads * 2)) for heads in (6, 3, 3))
    repeated = [np.concatenate([x, x], axis=1) for x in (k, v)]
    wrong = lab_heads.in_turn(lab_heads.grouped_heads)(q, k, v, 6, 3)
    assert np.abs(wrong - lab_heads.multi_head(q, *repeated, 6)).max() < 1e-14


def test_heads_that_are_not_cut_are_seen():
    """One head over all components: a number of the queries moves the whole row, and the formula is missed."""

    def uncut(q, k, v, n_heads, n_kv_heads=0):
        k, v = (np.tile(x, (1, n_heads // (n_kv_heads or n_heads))) for x in (k, v))
        return lab_heads.multi_head(q, k, v, 1)

    found = lab_heads.run(uncut, uncut, repeats=2)
    assert found["lab.heads_gap"] > 0.1
    assert found["lab.heads_moved_by_query"] == 18
    assert found["lab.heads_moved_there"] is False
    assert found["lab.groups_gap"] > 0.1
    assert found["lab.groups_reads_as_formula"] is False
