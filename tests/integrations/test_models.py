"""Small random models give the logits and gradients of transformers' eager attention, whatever their attention asks."""

import pytest
import torch

from tests.integrations.small_models import CONFIGS, OPTIONS, WINDOW, in_float64, model, padded, tokens
from tests.tolerance import as_float64, assert_refuses, assert_right

FAMILIES = list(CONFIGS)
TILE = 128  # the tiles of `attnbook.tiled` hold at most so many queries
B, T = 3, 29
SIDES = [None, "left", "right"]


def run(family, implementation, dtype, ids, mask, **changes):
    """Logits of the tokens that are no padding, and the gradients of a sum of them in which each has its own weight."""
    made = model(family, implementation, dtype, **changes)
    keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    with in_float64():
        logits = made(ids, attention_mask=mask).logits[keep]
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    (logits * weight.to(dtype)).sum().backward()
    return logits.detach(), {name: x.grad for name, x in made.named_parameters() if x.grad is not None}


def batch(side, t=T, b=B):
    return tokens(b, t), None if side is None else padded(b, t, side)


def what_can_break(family, side):
    """No token sees the padding on its right anyway."""
    return sorted({"scale", "heads", *OPTIONS[family]} | ({"padding"} if side == "left" else set()))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", FAMILIES)
def test_float64_logits_and_gradients_are_those_of_eager(family, side):
    """Nearer to eager's float64 than eager's own float32 is, and with one option less it is not."""
    ids, mask = batch(side)
    exact, exact_gradients = run(family, "eager", torch.float64, ids, mask)
    plain, plain_gradients = run(family, "eager", torch.float32, ids, mask)
    out, gradients = run(family, "attnbook", torch.float64, ids, mask)
    assert out.dtype == torch.float64
    assert_right(out, as_float64(exact), plain)
    assert gradients.keys() == exact_gradients.keys()
    for name in gradients:
        assert_right(gradients[name], as_float64(exact_gradients[name]), plain_gradients[name])

    wrong = {what: run(family, f"broken-{what}", torch.float64, ids, mask) for what in what_can_break(family, side)}
    assert_refuses({what: logits for what, (logits, _) in wrong.items()}, as_float64(exact), plain)
    name = "model.layers.0.self_attn.k_proj.weight"
    assert_refuses(
        {what: gradient[name] for what, (_, gradient) in wrong.items()},
        as_float64(exact_gradients[name]), plain_gradients[name],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_lower_precision_is_no_further_from_the_truth_than_eager(family, dtype):
    """The error against float64 is at most twice that of eager in the same dtype; every broken option is more."""
    # All experts: which of them are chosen can hang on the last bit of a score.
    changes = {"num_experts_per_tok": 3} if family == "mixtral" else {}
    ids, mask = batch("left")
    exact, _ = run(family, "eager", torch.float64, ids, mask, **changes)
    plain, _ = run(family, "eager", dtype, ids, mask, **changes)
    out, _ = run(family, "attnbook", dtype, ids, mask, **changes)
    assert out.dtype == dtype
    assert_right(out, as_float64(exact), plain)
    assert_refuses(
        {what: run(family, f"broken-{what}", torch.float64, ids, mask, **changes)[0]
         for what in what_can_break(family, "left")},
        as_float64(exact), plain,
    )  # fmt: skip


@pytest.mark.parametrize("implementation", ["attnbook", "attnbook-tiled"])
@pytest.mark.parametrize("family", [name for name, options in OPTIONS.items() if "window" in options])
def test_a_window_holds_beyond_the_first_tile(family, implementation):
    """A sequence longer than the window by one tile and one, where a window that is dropped would be seen."""
    ids, mask = batch("left", WINDOW + TILE + 1, 2)
    exact, exact_gradients = run(family, "eager", torch.float64, ids, mask)
    plain, plain_gradients = run(family, "eager", torch.float32, ids, mask)
    out, gradients = run(family, implementation, torch.float64, ids, mask)
    assert_right(out, as_float64(exact), plain)
    for name in gradients:
        assert_right(gradients[name], as_float64(exact_gradients[name]), plain_gradients[name])
    wrong, _ = run(family, "broken-window", torch.float64, ids, mask)
    assert_refuses({"no window": wrong}, as_float64(exact), plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_alone_is_the_same_row_in_a_padded_batch(family):
    """Left-padded with positions that begin at its first token, every row gives the logits that it gives alone."""
    ids, mask = batch("left")
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    ours, plain = model(family, "attnbook"), model(family, "eager", torch.float32)
    together = ours(ids, attention_mask=mask, position_ids=positions).logits
    for row in range(B):
        own = ids[row : row + 1, mask[row].bool()]
        alone = ours(own).logits[0]
        assert_right(together[row, mask[row].bool()], as_float64(alone), plain(own).logits[0])


def test_rows_of_padding_are_zero_where_eager_averages():
    """A query that is padding on the left sees nothing: attention gives it 0; eager gives it the average of values."""
    ids, mask = batch("left")
    found = {}
    for implementation in ("attnbook", "eager"):
        made = model("llama", implementation)
        # What goes into the projection is what came out of the attention.
        made.model.layers[0].self_attn.o_proj.register_forward_pre_hook(
            lambda _, args, name=implementation: found.__setitem__(name, args[0].detach())
        )
        with in_float64():
            made(ids, attention_mask=mask)
    filling = ~mask.bool()
    assert filling.any()
    assert found["attnbook"].shape == (B, T, 6 * 14)
    assert (found["attnbook"][filling] == 0).all()
    assert (found["eager"][filling] != 0).all()


def test_eager_itself_needs_the_wide_softmax():
    """Why the truth is made `in_float64`: a row of padding is NaN in eager otherwise, and reaches every token."""
    ids, mask = batch("left")
    assert model("llama", "eager")(ids, attention_mask=mask).logits[1].isnan().all()
    assert model("llama", "attnbook")(ids, attention_mask=mask).logits.isfinite().all()
