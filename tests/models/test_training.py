"""The training loop and its tasks."""

import math

import pytest
import torch
from torch.nn import functional as F

from attnbook.errors import ShapeError
from attnbook.models import IGNORE, Transformer, mean_token_loss, right_tokens, tasks, train
from attnbook.models.training import to_stderr


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def copying(seed=0, b=16):
    source = generator(seed)
    return lambda: tasks.copied(source, b, half=3, symbols=5)


def model(**options):
    return Transformer(6, **{"d_model": 16, "n_layers": 2, "n_heads": 2} | options)


def test_a_loss_is_the_mean_over_tokens_not_over_micro_batches():
    """Losses 2, 2, 2 and nine 1s: 15 over 12 tokens (transformers#34191 had the mean of 2 and 1)."""

    def with_loss(loss, n):  # p of the target is e^−loss
        rest = math.log1p(-math.exp(-loss))
        return torch.tensor([[[-loss, rest]]]).expand(1, n, 2), torch.zeros(1, n, dtype=torch.long)

    assert float(mean_token_loss([with_loss(2.0, 3), with_loss(1.0, 9)])) == pytest.approx(1.25)


def test_micro_batches_are_one_batch_in_parts():
    """Parts with different numbers of tokens give the weights of the whole."""
    tokens, targets = copying()()
    targets = targets.masked_fill(torch.arange(16)[:, None] < 5, IGNORE)  # the first part has fewer tokens
    parts = iter([(tokens[:8], targets[:8]), (tokens[8:], targets[8:])])
    one, two = model(), model()
    whole = train(one, lambda: (tokens, targets), steps=1, rate=0.01)
    halves = train(two, lambda: next(parts), steps=1, rate=0.01, micro_batches=2)
    torch.testing.assert_close(whole, halves)
    for x, y in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_a_small_model_learns_to_copy():
    """From chance to nearly all right, and the same again from the same seeds."""
    runs = []
    for _ in range(2):
        trained = model()
        losses = train(trained, copying(), steps=120, rate=0.01)
        tokens, targets = copying(seed=9, b=64)()
        runs.append(losses)
        assert float(right_tokens(trained.eval()(tokens), targets)) > 0.9
    assert torch.equal(*runs)
    assert float(runs[0][0]) > 0.8 * math.log(5)
    assert float(runs[0][-10:].mean()) < 0.3


def test_warmup_takes_shorter_steps_first():
    """Adam's first step moves a weight by the rate: a third of it with two steps of warm-up."""
    steps = []
    for warmup in (0, 2):
        trained = model()
        before = trained.head.weight.detach().clone()
        train(trained, copying(), steps=1, rate=0.01, warmup=warmup)
        steps.append((trained.head.weight.detach() - before).abs().max())
    assert float(steps[1] / steps[0]) == pytest.approx(1 / 3, rel=1e-3)


def test_balance_is_minimised_and_not_reported():
    """The routers' loss changes the gradient, not the loss that is returned."""
    options = {"mlp": "experts", "n_experts": 4, "top_k": 1, "d_ff": 8}
    one, two = model(**options), model(**options)
    losses = [train(m, copying(), steps=1, rate=0.01, balance=b) for m, b in ((one, 0.0), (two, 1.0))]
    assert torch.equal(*losses)
    assert not torch.equal(one.blocks[0].mlp.router, two.blocks[0].mlp.router)


def test_a_long_gradient_is_clipped():
    """Adam would undo a mere factor, so the gradients themselves are looked at."""
    trained = model()
    train(trained, copying(), steps=1, rate=0.01, clip=1e-12)
    length = torch.stack([p.grad.norm() for p in trained.parameters()]).norm()
    assert float(length) == pytest.approx(1e-12, rel=1e-3)


def test_a_loss_that_is_no_number_ends_the_training():
    """With the step, and before the weights are spoilt."""
    trained = model()
    with torch.no_grad():
        trained.head.weight[0, 0] = torch.nan
    before = trained.embedding.weight.detach().clone()
    with pytest.raises(FloatingPointError, match=r"the loss of step 0 is nan"):
        train(trained, copying(), steps=2, rate=0.01)
    assert torch.equal(before, trained.embedding.weight)


def test_bad_numbers(capsys):
    """Ranges, axes, and what progress says."""
    with pytest.raises(ValueError, match=r"steps is -1, micro_batches 1, warmup 0, rate 0.1: expected"):
        train(model(), copying(), steps=-1, rate=0.1)
    with pytest.raises(ShapeError, match=r"targets has axes \(2, 4\) and logits \(2, 3, 5\)"):
        mean_token_loss([(torch.zeros(2, 3, 5), torch.zeros(2, 4, dtype=torch.long))])
    assert len(train(model(), copying(), steps=0, rate=0.1)) == 0
    train(model(), copying(), steps=3, rate=0.01, progress=to_stderr(3, every=2))
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["step 0 of 3", "step 2 of 3"]


def test_copied_asks_for_the_second_half():
    """What stands behind the mark is what stood before it."""
    tokens, targets = tasks.copied(generator(), 3, half=4, symbols=7)
    assert tokens.shape == targets.shape == (3, 8)
    assert (tokens[:, 4] == 7).all()
    assert torch.equal(targets[:, 4:], tokens[:, :4])
    assert (targets[:, :4] == IGNORE).all()


def test_repeated_asks_for_what_can_be_known():
    """Each target is the token one period before the place it fills; nothing is asked before a period is seen."""
    tokens, targets = tasks.repeated(generator(), 40, 20, symbols=9, periods=(3, 7))
    found = set()
    for row, asked in zip(tokens, targets, strict=True):
        period = int((asked == IGNORE).sum())
        found.add(period)
        assert torch.equal(row[period:], row[:-period])
        assert torch.equal(asked[period:], row[1 : 21 - period])
        assert torch.equal(asked[period:-1], row[period + 1 :])
    assert found == set(range(3, 8))
    with pytest.raises(ValueError, match=r"periods are 3 to 11 with t 20"):
        tasks.repeated(generator(), 1, 20, symbols=9, periods=(3, 11))


def test_token_losses_are_torchs():
    """Against cross_entropy over the asked-for tokens alone."""
    logits, targets = torch.randn(2, 5, 3, generator=generator()), torch.tensor([[0, 1, IGNORE, 2, 0], 5 * [IGNORE]])
    asked = targets != IGNORE
    torch.testing.assert_close(mean_token_loss([(logits, targets)]), F.cross_entropy(logits[asked], targets[asked]))


def test_two_places_asks_for_the_difference_or_the_sum_of_two_tokens():
    """Each place asks about the tokens one and three places before it, and the first three ask nothing."""
    tokens, difference = tasks.two_places(generator(), 3, 8, symbols=5)
    same, total = tasks.two_places(generator(), 3, 8, symbols=5, answer="sum")
    assert torch.equal(tokens, same)
    assert (difference[:, :3] == IGNORE).all()
    assert (total[:, :3] == IGNORE).all()
    assert torch.equal(difference[:, 3:], tokens[:, 2:-1] - tokens[:, :-3] + 4)
    assert torch.equal(total[:, 3:], tokens[:, 2:-1] + tokens[:, :-3])
    _, turned = tasks.two_places(generator(), 3, 8, symbols=5, back=(3, 1))
    assert torch.equal(turned[:, 3:], 8 - difference[:, 3:])


@pytest.mark.parametrize("back", [(2, 2), (0, 1), (1, 8)])
def test_two_places_are_two_and_lie_before(back):
    """The same place twice, the place itself, or one that no sequence reaches."""
    with pytest.raises(ValueError, match=r"back is \(\d, \d\) with t 8: expected two different"):
        tasks.two_places(generator(), 1, 8, symbols=5, back=back)


def test_two_places_have_two_answers():
    """The difference and the sum."""
    with pytest.raises(ValueError, match=r"answer is 'product': expected 'difference' or 'sum'"):
        tasks.two_places(generator(), 1, 8, symbols=5, answer="product")
