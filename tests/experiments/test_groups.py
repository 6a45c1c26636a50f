"""Caches and grouped heads: small versions of chapter 9b's experiments, and that each notices what is broken."""

import dataclasses

import pytest
import torch

from attnbook.costs import kv_cache_bytes, model
from attnbook.experiments import groups_bytes, groups_cache, groups_intensity, groups_tuned
from attnbook.experiments._stacked import Stacked
from attnbook.reference import KVCache


def test_a_cache_is_no_approximation():
    """Six tokens one by one: the same logits, 21 tokens through the linear maps without a cache, and fewer products."""
    found = groups_cache.run(t=6, d_model=16, n_heads=4, n_kv_heads=2, n_layers=1)
    assert found["groups.cached_error"] < 1e-12
    assert found["groups.tokens_again"] == 21
    assert found["groups.flops_as_counted"] is True
    assert found.data["again"][0] == found.data["kept"][0]
    assert found["groups.flops_last_again"] == found.data["again"][-1] > 5 * found["groups.flops_last_kept"]


def test_a_forgetful_cache_is_noticed(monkeypatch):
    """A cache that keeps only half of what it is given gives other logits, or fails."""
    whole = KVCache.append
    monkeypatch.setattr(KVCache, "append", lambda self, k, v: whole(self, k, 0 * v))
    found = groups_cache.run(t=3, d_model=16, n_heads=4, n_kv_heads=2, n_layers=1)
    assert found["groups.cached_error"] > 1e-6


@pytest.mark.parametrize("dtype", groups_bytes.DTYPES)
def test_bytes_of_a_real_cache(dtype):
    """2 · heads · head_dim · tokens · requests · bytes of a number, and nothing else."""
    shape = dataclasses.replace(model("Llama-3.1-8B"), n_heads=6, n_kv_heads=3, head_dim=4)
    size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    assert groups_bytes.filled(shape, b=5, t=7, dtype=dtype).nbytes == 2 * 3 * 4 * 7 * 5 * size


def test_keys_alone_are_half():
    """The mistake that the page warns of."""
    shape = model("Llama-3.1-70B")
    assert 2 * groups_bytes.keys_alone(shape, 100) == kv_cache_bytes(shape, tokens=100)


def test_which_models_have_groups():
    """One head each is not grouped, nor is one head for all, nor MLA."""
    llama = model("Llama-3.1-8B")
    assert groups_bytes.has_groups(llama)
    assert not groups_bytes.has_groups(dataclasses.replace(llama, n_kv_heads=1))
    assert not groups_bytes.has_groups(model("Llama-2-7B"))
    assert not groups_bytes.has_groups(model("DeepSeek-V3"))


def test_operations_a_byte_are_the_size_of_a_group():
    """Whatever the length, the components and the number of requests; a linear map's are the rows."""
    for n_kv_heads in (1, 2, 4):
        for b in (1, 3):
            assert groups_intensity.per_byte(4, n_kv_heads, t=10, d=8, b=b) == 4 / n_kv_heads
    assert groups_intensity.linear_per_byte(5, 8) == 5


def test_merging_takes_neighbours():
    """Four heads of one component, 0 1 2 3: two groups' means are ½ and 2½, their first heads 0 and 2."""
    weight = torch.arange(4.0).expand(1, 3, 4)
    assert groups_tuned.merged(weight, 2, "mean")[0, 0].tolist() == [0.5, 2.5]
    assert groups_tuned.merged(weight, 2, 0)[0, 0].tolist() == [0, 2]
    assert groups_tuned.merged(weight, 1, "mean")[0, 0].tolist() == [1.5]
    assert groups_tuned.merged(weight, 1, 3)[0, 0].tolist() == [3]


def test_merging_equal_heads_changes_nothing():
    """Where a group's heads are the same already, the grouped model is the model; with fresh heads it is not."""
    whole = groups_tuned.fresh(2, groups_tuned.HEADS, 8, seed=0)
    test = groups_tuned.repeated(torch.Generator().manual_seed(0), 4)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            if "k_proj" in name or "v_proj" in name:
                pair = groups_tuned.merged(parameter, 2, "mean").view(2, 8, 2, -1)
                parameter.copy_(pair.repeat_interleave(2, 2).flatten(2))
        losses = {way: loss(whole, way, test) for way in ("mean", 0, 1, "fresh")}
        before = whole.losses(test)
    for way in ("mean", 0, 1):
        torch.testing.assert_close(losses[way], before)
    assert (losses["fresh"] - before).abs().max() > 1e-4


def loss(whole: Stacked, way: str | int, test) -> torch.Tensor:
    """The losses of the model with two heads for four."""
    return groups_tuned.regrouped(whole, groups_tuned.fresh(2, 2, 8, seed=1), 2, way).losses(test)


def test_few_steps_run():
    """Every way is measured, with a spread, and the curves are there."""
    found = groups_tuned.run(models=2, steps=2, more=1, width=8)
    assert found.data["losses"][1, "mean"].shape == (1, 2)
    assert found["groups.tuned_more_share"] == 0.5
    spread = {m.id: m.spread for m in found}
    assert all(spread[f"groups.tuned_1_{way}_after"] is not None for way in ("mean", "first", "fresh"))
