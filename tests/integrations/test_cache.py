"""With a cache, growing or of fixed capacity, step by step or by `generate`, every logit is that of the whole text."""

import inspect

import pytest
import torch
from transformers import StaticCache

from tests.integrations.small_models import CONFIGS, WINDOW, in_float64, model, padded, tokens
from tests.tolerance import as_float64, assert_refuses, assert_right

FAMILIES = list(CONFIGS)
B, T = 3, 23
# A prompt longer than the window, single tokens until every cache of a window is full, then several at once.
STEPS = [7, 1, 1, 1, 4, 1, 1, 5, 1, 1]


def step_by_step(made, ids, mask, *, static):
    """All logits, from calls of `STEPS` tokens each that see the past in a cache only."""
    assert sum(STEPS) == T
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    # The name changed within transformers 5.
    name = "cache" if "cache" in inspect.signature(made.forward).parameters else "past_key_values"
    cache = StaticCache(config=made.config, max_cache_len=T + 4) if static else None
    logits, begin = [], 0
    for t in STEPS:
        now = slice(begin, begin + t)
        out = made(
            ids[:, now], attention_mask=mask[:, : begin + t], position_ids=positions[:, now], use_cache=True,
            **{name: cache},
        )  # fmt: skip
        cache, begin = getattr(out, name), begin + t
        logits.append(out.logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("static", [False, True], ids=["growing", "fixed capacity"])
@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_step_by_step_gives_the_logits_of_the_whole(family, side, static):
    """Against eager's full forward, and a window that is dropped in the cached steps is noticed."""
    ids, mask = tokens(B, T), padded(B, T, side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    keep = mask.bool()
    with torch.no_grad():
        with in_float64():
            exact = model(family, "eager")(ids, attention_mask=mask, position_ids=positions).logits[keep]
        plain = model(family, "eager", torch.float32)(ids, attention_mask=mask, position_ids=positions).logits[keep]
        ours = model(family, "attnbook")
        assert_right(step_by_step(ours, ids, mask, static=static)[keep], as_float64(exact), plain)
        if side == "left":
            ours.set_attn_implementation("forgets-padding")
            wrong = step_by_step(ours, ids, mask, static=static)[keep]
            assert_refuses({"padding forgotten": wrong}, as_float64(exact), plain)


@pytest.mark.parametrize("implementation", [None, "static"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generate_writes_the_same_text(family, implementation):
    """Greedy, left-padded, more new tokens than the window holds; the prompt is longer than the window too."""
    prompt, mask = tokens(B, 11), padded(B, 11, "left")
    options = {"max_new_tokens": WINDOW + 4, "do_sample": False, "eos_token_id": None}
    options |= {} if implementation is None else {"cache_implementation": implementation}
    with in_float64():
        expected = model(family, "eager").generate(prompt, attention_mask=mask, **options)
    written = model(family, "attnbook").generate(prompt, attention_mask=mask, **options)
    assert written.shape == (B, 11 + WINDOW + 4)
    assert torch.equal(written, expected)
    for what in ("scale", "heads"):
        other = model(family, f"broken-{what}").generate(prompt, attention_mask=mask, **options)
        assert not torch.equal(written, other)
