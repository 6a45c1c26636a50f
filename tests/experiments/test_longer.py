"""Beyond the trained length: the task and its answers, models side by side, scalings, and the hole in the positions."""

import pytest
import torch

from attnbook.experiments import _latest as task
from attnbook.experiments import longer_smollm2, longer_speeds, longer_stretched, longer_training
from attnbook.models import IGNORE
from attnbook.reference.rope_scaling import LinearScaling
from tests.models.small_gguf import real

FEW = {"models": 2, "steps": 3, "batch": 3, "tested": 2}


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def test_the_answer_is_the_latest_value_of_the_variable():
    """Worked out by hand: a=3 c=1 a? a=5 b? a? c? with the question about b never answerable."""
    variable = torch.tensor([[[0, 2, 0, 0, 1, 0, 2]]])
    value = torch.tensor([[[3, 1, 7, 5, 7, 7, 7]]])
    question = torch.tensor([[[False, False, True, False, True, True, True]]])
    texts = task.answered(variable, value, question)
    assert texts.targets.tolist() == [[[IGNORE, IGNORE, 3, IGNORE, IGNORE, 5, 1]]]
    assert texts.tokens.tolist() == [[[3, 17, 64, 5, 65, 64, 66]]]


def test_far_texts_name_their_variable_at_both_ends_only():
    """The first place assigns what the last one asks, and no place between is about it."""
    texts = task.at_end(task.once(generator(), 2, 5, 40))
    first, last = texts.tokens[..., :1] // task.VALUES, texts.tokens[..., -1:] - 64
    between = texts.tokens[..., 1:-1]
    about = torch.where(between >= 64, between - 64, between // task.VALUES)
    assert torch.equal(first, last)
    assert not (about == last).any()
    assert torch.equal(texts.targets[..., -1:], texts.tokens[..., :1] % task.VALUES)
    assert (texts.targets[..., :-1] == IGNORE).all()


@pytest.mark.parametrize("encoding", task.ENCODINGS)
def test_only_what_is_added_to_the_input_knows_where_the_text_begins(encoding):
    """A start 100 places later changes the logits of sinusoidal and learned positions, and of no other."""
    model = task.Model.fresh(encoding, generator(), 2)
    tokens = task.usual(generator(), 2, 3, 17).tokens
    apart = float((model(tokens) - model(tokens, start=100)).abs().max())
    assert (apart > 0.01) == (encoding in ("sinusoidal", "learned"))


def test_models_side_by_side_do_not_touch_one_another():
    """The second of three models gives alone what it gave among them."""
    model = task.Model.fresh("rope", generator(), 3)
    alone = task.Model("rope", {name: weight[1:2] for name, weight in model.weights.items()})
    tokens = task.usual(generator(), 3, 2, 11).tokens
    torch.testing.assert_close(alone(tokens[1:2]), model(tokens)[1:2], rtol=1e-4, atol=1e-4)


def test_a_linear_scaling_is_a_division_of_positions():
    """Every second position with the turns halved is what it was; without, it is not."""
    model = task.Model.fresh("rope", generator(), 2)
    tokens = task.usual(generator(), 2, 2, 12).tokens
    assert not torch.allclose(model(tokens, scaling=LinearScaling(2)), model(tokens), atol=1e-3)
    torch.testing.assert_close(model(tokens, scaling=LinearScaling(1)), model(tokens))


def test_training_lowers_the_loss():
    """Fifty steps are enough to see it, with ALiBi, whose start knows about recency."""
    texts = task.usual(generator(9), 2, 64, task.TRAINED)
    before = task.losses(task.trained("alibi", 0, 2, 0, 8), texts)
    after = task.losses(task.trained("alibi", 0, 2, 50, 8), texts)
    assert (after < 0.95 * before).all()


def test_every_encoding_and_length_is_measured():
    """With models that know nothing yet: shares between 0 and 1, and a moved start that changes nothing for three."""
    found = longer_training.run(**FEW)
    shares = [found[f"longer.{kind}_{e}_{n}x"] for kind in ("usual", "once") for e in task.ENCODINGS for n in (1, 8)]
    assert all(0 <= share <= 1 for share in shares)
    assert found["longer.moved_changes_nothing"] is True


def test_stretched_models_are_those_that_were_trained():
    """The plain way is the model as it is; a linear scaling moves it."""
    found = longer_stretched.run(**FEW)
    assert set(found.data["long"]) == {"plain", "linear", "ntk", "yarn"}
    assert 0 <= found["longer.long_plain"] <= 1


def test_speeds_of_the_trained_model():
    """The slowest pair turns exactly four times slower in each way; the fastest only with linear interpolation."""
    found = longer_speeds.run()
    assert [found[f"longer.{way}_slowest"] for way in ("linear", "ntk", "yarn")] == pytest.approx([4, 4, 4])
    assert [found[f"longer.{way}_fastest"] for way in ("linear", "ntk", "yarn")] == pytest.approx([4, 1, 1])
    assert found["longer.yarn_kept"] < found["longer.config_wrong_kept"]
    assert found["longer.config_twice"] == pytest.approx(16)


def test_what_was_read_before_is_found_again_near_by_and_not_far_away():
    """Nine English tokens read twice: cheap without a hole, dear behind one of 16 384 positions."""
    model = real()
    text = torch.tensor([model.tokenizer.encode(longer_smollm2.PROSE)[:9]])
    near, far = (float(longer_smollm2.second_half(model, text, gap)) for gap in (0, 16_384))
    assert near < 0.7 * float(longer_smollm2.first_half(model, text)) < far
