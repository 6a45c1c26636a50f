"""One head shares its weight between two places; which is which takes more."""

import torch

from attnbook.experiments import heads_two_places as heads


def test_a_few_steps_measure_everything():
    """Small: what is learned in 400 steps, the book shows; here the parts fit together, and seeds are kept."""
    found, again = (heads.run(steps=3, models=2, seed=1) for _ in range(2))
    assert [m.value for m in found] == [m.value for m in again]
    assert found["heads.parameters_trained_one"] == found["heads.parameters_trained_two"] == 4 * 32 * 32
    assert set(found.data["right"]) == set(heads.KINDS)
    assert found.data["looks"]["layers"].shape == (2, 2, 1, 2)
    assert found.data["looks"]["one"].shape == (4, 1, 1, 2)
    assert found.data["heads"].shape == (2, heads.T, heads.T)
    torch.testing.assert_close(found.data["heads"].sum(-1), torch.ones(2, heads.T))
    assert (found.data["heads"].triu(1) == 0).all()


def test_one_head_learns_the_sum():
    """Half its weight on each place is enough."""
    trained = heads.Trained.of(heads.KINDS["sum"], steps=150, models=2, seed=0)
    assert float(trained.right.mean()) > 0.5
    assert float(trained.looks.amin()) > 0.25


def test_models_side_by_side_do_not_touch_one_another():
    """Another first model, the same second."""
    stack = heads.Stack(heads.KINDS["two"], 2, torch.Generator().manual_seed(0))
    tokens, _ = heads.draw(torch.Generator().manual_seed(1), 2, 3, stack.kind)
    changed = {name: torch.cat([weight[:1] + 1, weight[1:]]) for name, weight in stack.start.items()}
    before, after = stack(stack.start, tokens), stack(changed, tokens)
    assert not torch.equal(before[0], after[0])
    torch.testing.assert_close(before[1], after[1])


def test_clearness_is_one_where_each_head_has_a_place_of_its_own():
    """In either order; heads that look alike have at most a half."""
    shared_out = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    looks = torch.stack([shared_out, shared_out.flip(0), torch.full((2, 2), 0.5)])[:, None]
    assert heads.clearness(looks).tolist() == [1, 1, 0.5]
