"""What chapter 9c says of mixtures of experts, on small ones; and that a broken input is noticed."""

import math

import pytest
import torch

from attnbook.experiments import (
    experts_balance,
    experts_capacity,
    experts_counts,
    experts_router,
    experts_sorted,
    experts_trained,
)
from attnbook.experiments._experts import busiest, explained, routed
from attnbook.reference.router import route


def test_a_property_that_decides_explains_everything_and_one_that_does_not_nothing():
    """All of a copy, nothing of a coin, half of a choice of four by one that tells two of its two bits."""
    choice = torch.arange(4).repeat(8)
    assert explained(choice, choice) == pytest.approx(1)
    assert explained(choice, 3 - choice) == pytest.approx(1)
    assert explained(choice, torch.arange(32) // 16) == pytest.approx(0, abs=1e-12)
    assert explained(choice, choice // 2) == pytest.approx(0.5)
    assert explained(torch.zeros(4, dtype=torch.int64), torch.arange(4)) == 0


def test_routing_given_logits_is_routing_by_a_router():
    """A token that is its own logits."""
    x, router = torch.randn(7, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    ours, theirs = routed(x @ router.T, 2, renormalize=False), route(x, router, top_k=2, renormalize=False)
    assert torch.equal(ours.experts, theirs.experts)
    torch.testing.assert_close(ours.weights, theirs.weights)
    assert busiest(torch.tensor([3, 1, 0, 0])) == 3


def test_counts_are_of_the_table():
    """A model uses less than it has; more tokens visit more experts, up to all."""
    found = experts_counts.run(repeats=3, seed=5)
    for key in experts_counts.MODELS:
        assert found[f"experts.active_{key}"] < found[f"experts.total_{key}"] / 3
    visited = [found[f"experts.visited_{b}"] for b in experts_counts.BATCHES]
    assert visited[0] < visited[1] < visited[2] <= found["experts.n_qwen"]


def test_orders_differ_in_one_of_three():
    """Also for three of eight."""
    found = experts_router.run(repeats=3, seed=5)
    assert found["experts.order_error"] < 1e-12 < found["experts.raw_off"]
    three = experts_router.run(top_k=3, repeats=3, seed=5)
    assert three["experts.raw_sum"] > found["experts.raw_sum"]
    assert three["experts.hand_first_raw"] == pytest.approx(5 / 8)  # all three are chosen
    assert three["experts.hand_first_renormalised"] == pytest.approx(5 / 8)


def test_losses_follow_the_number_of_experts():
    """1 and k for uniform routing, e / k and e for the same few, for other sizes too."""
    found = experts_balance.run(n_experts=6, top_k=3, steps=3, t=16, repeats=2, seed=5)
    values = [found[f"experts.loss_{name}"] for name in ("uniform", "few", "flat")]
    assert values == pytest.approx([1, 2, 1])
    assert found["experts.loss_per_token_uniform"] == pytest.approx(3)
    assert found["experts.loss_per_token_few"] == pytest.approx(6)
    assert found.data["crowded"]["bias"].shape == (4, 2)


def test_a_crowd_thins_out_either_way():
    """The loss moves the router, the bias does not."""
    generator = torch.Generator().manual_seed(5)
    fell = []
    for _ in range(4):
        draw, router = experts_balance.crowd(generator, 6, 64)
        by_loss, moved = experts_balance.mended_by_loss(draw, router, 1, 60)
        by_bias, bias = experts_balance.mended_by_bias(draw, router, 1, 60, 0.03)
        assert not torch.equal(moved, router)
        assert bias.abs().max() > 0
        fell.append([float(crowded[0] - crowded[-10:].mean()) for crowded in (by_loss, by_bias)])
    assert (torch.tensor(fell).mean(0) > 0.2).all()


def test_less_room_drops_more_and_only_late_tokens():
    """Shares fall with the factor; a fourth of the tokens cannot fill an expert."""
    found = experts_capacity.run(t=32, n_experts=4, top_k=2, repeats=4, seed=5)
    for kind in ("even", "crowded"):
        tight, usual, loose = (found[f"experts.dropped_{kind}_{name}"] for name in experts_capacity.FACTORS)
        assert tight >= usual >= loose
    assert found["experts.dropped_early"] == 0 < found["experts.dropped_late"]


def test_sorting_saves_operations_in_the_ratio_of_experts():
    """e / k, for other sizes too; all experts at once agree with the loop, wrong shares do not."""
    found = experts_sorted.run(t=12, d=4, n_experts=6, f=5, top_k=3, seed=5)
    assert found["experts.operations_ratio"] == 2
    assert found["experts.operations_as_formula"] is True
    assert found["experts.all_error"] < 1e-12
    x, weights = torch.randn(5, 3), [torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 4, 3)]
    shares = torch.tensor([[1.0, 0.0]]).expand(5, 2)
    assert not torch.allclose(experts_sorted.everyone(x, shares, *weights),
                              experts_sorted.everyone(x, shares.flip(1), *weights))  # fmt: skip


def test_answers_are_what_the_rule_makes_of_the_number_before():
    """Token by token; the first is not asked for."""
    generator = torch.Generator().manual_seed(5)
    rules = experts_trained.permutations(generator)
    assert all(sorted(rule.tolist()) == list(range(experts_trained.NUMBERS)) for rule in rules)
    tokens, answers = experts_trained.draw(generator, rules, 3)
    for row, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
        assert answer[0] == experts_trained.IGNORE
        for i in range(1, len(row)):
            assert answer[i] == rules[row[i] // experts_trained.NUMBERS][row[i - 1] % experts_trained.NUMBERS]


def test_experts_are_looked_at_before_and_after():
    """Shares of four experts, a table of rows that sum to 1; those not switched off stay as they were."""
    found = experts_trained.run(models=2, steps=2, batch=2, seed=5)
    assert found.data["shares"]["plain"].shape == (2, experts_trained.EXPERTS)
    torch.testing.assert_close(found.data["table"]["untrained"].sum(1), torch.ones(8, dtype=torch.float64))
    assert found["experts.switched_off_others"] is True
    assert found["experts.untrained_own"] > found["experts.untrained_before"]
    assert math.isfinite(found["experts.balanced_rule"])
