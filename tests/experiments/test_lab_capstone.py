"""What SmolLM2 writes with an attention from outside: the same with a right one, another text with a wrong one."""

from functools import partial

import numpy as np
import pytest
import torch

from attnbook.experiments import _smollm2 as shared
from attnbook.experiments.lab_capstone import MISTAKES, PROMPT, mistaken, own, run, surprise, written
from attnbook.lab import solution
from attnbook.lab.steps import capstone
from attnbook.models import generate


def test_with_the_solution_the_model_writes_the_same():
    """Three tokens, the same as without; logits as near as rounding; the mistakes part from the beginning."""
    found = run(*solution("capstone"), new=3)
    assert found["lab.capstone_same"] is True
    assert found["lab.capstone_tokens"] == 3
    assert found["lab.capstone_gap"] < 10 * found["lab.capstone_rounding"] < 1e-2 < found["lab.capstone_lead"]
    assert found["lab.capstone_no_mask_needed"] is True
    assert [found[f"lab.capstone_{name}_same"] for name in MISTAKES] == [0, 1, 0, 0]
    assert all(found[f"lab.capstone_{name}_surprise"] > found["lab.capstone_surprise"] for name in MISTAKES)
    assert found.data["texts"][""] == " a different aspect"
    assert len(set(found.data["texts"].values())) == 1 + len(MISTAKES)


def test_with_a_wrong_function_it_does_not():
    """The measurement of the function itself, not of ours."""
    found = run(partial(mistaken, mistake="top_left"), new=2)
    assert found["lab.capstone_same"] is False
    assert found["lab.capstone_tokens"] == 1
    assert found["lab.capstone_gap"] > 1


def test_a_text_surprises_by_its_mean_loss():
    """Against probabilities taken one by one."""
    read = torch.tensor(shared.model().tokenizer.encode(PROMPT))
    new = generate(shared.model(), read, max_new_tokens=2, stop=())
    logits = shared.model()(torch.cat([read, torch.tensor(new)])[None])[0].double()
    by_hand = [-float(logits[len(read) - 1 + i].log_softmax(0)[token]) for i, token in enumerate(new)]
    assert surprise(read, new) == pytest.approx(np.mean(by_hand), rel=1e-4)
    assert written(read, 2, "") == new


def test_without_a_mistake_it_is_our_attention():
    """For as many queries as keys, fewer, and one; the lab asks the same prompt."""
    rng = np.random.default_rng(3)
    for t_q, t_kv in ((5, 5), (3, 7), (1, 7)):
        q, k, v = (rng.standard_normal((n, t, 11)) for n, t in ((6, t_q), (2, t_kv), (2, t_kv)))
        np.testing.assert_allclose(mistaken(q, k, v), own(q, k, v), rtol=1e-12, atol=1e-12)
    assert capstone.PROMPT == PROMPT
