"""Another attention beside ours, in lockstep: the same text, and where another one first differs."""

import numpy as np
import pytest
import torch

from attnbook.experiments._inside import EXACT, MARGIN, OURS, THEIRS, Apart, compare
from attnbook.experiments.lab_capstone import mistaken, own
from attnbook.models import SmolLM2, generate
from tests.models.small_gguf import HEAD_DIM, HEADS, KV_HEADS, LAYERS, write

PROMPT = torch.tensor([3, 141, 59, 26, 53])
N = 7


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return SmolLM2.load(write(tmp_path_factory.mktemp("gguf") / "small.gguf"))


def wrong(name):
    """The right attention with a mistake."""
    return lambda q, k, v: mistaken(q, k, v, mistake=name)


@pytest.mark.parametrize("tensors", [False, True])
def test_a_right_function_writes_what_the_model_writes(small, tensors):
    """Arrays or tensors, lists or float64: the tokens of `generate`, and logits as near as float64's are."""

    def function(q, k, v):
        assert isinstance(q, torch.Tensor if tensors else np.ndarray)
        assert q.shape[0] == HEADS
        assert k.shape == v.shape == (KV_HEADS, k.shape[1], HEAD_DIM)
        return own(q.double(), k.double(), v.double()) if tensors else own(q, k, v).tolist()

    found = compare(small, function, PROMPT, N, tensors=tensors)
    assert found.tokens.shape == (3, N)
    assert found.tokens[OURS].tolist() == generate(small, PROMPT, max_new_tokens=N, stop=())
    assert torch.equal(found.tokens[THEIRS], found.tokens[OURS])
    assert (found.parted, found.apart, found.comparable) == (None, None, N)
    assert 0 < float(found.off().max()) < found.allowed < 1e-3
    assert found.allowed == pytest.approx(MARGIN * float((found.logits[EXACT] - found.logits[OURS]).abs().max()))


@pytest.mark.parametrize(("name", "reading"), [("no_mask", 0), ("top_left", 1), ("groups_in_turn", 0), ("no_scale", 0)])
def test_a_wrong_function_is_found_out_where_it_first_differs(small, name, reading):
    """While the prompt is read, or with the first token after it; in layer 0; the text before is the same."""
    found = compare(small, wrong(name), PROMPT, N)
    assert found.apart is not None
    assert found.apart[:2] == (reading, 0)
    assert found.apart.error > 1e-2
    assert found.parted is not None
    assert found.parted >= reading
    assert torch.equal(found.tokens[THEIRS, : found.parted], found.tokens[OURS, : found.parted])
    assert len(found.off()) == found.parted + 1
    assert float(found.off()[-1]) > found.allowed


def test_the_layer_and_the_head_that_differ_are_named(small):
    """A head that goes wrong in layer 2 only, with the third new token: what follows from it is not blamed."""
    calls = []

    def late(q, k, v):
        out = own(q, k, v)
        layer, reading = len(calls) % LAYERS, len(calls) // LAYERS
        calls.append(q.shape)
        if layer == 2 and reading >= 3:
            out[1] *= 1.5
        return out

    apart = compare(small, late, PROMPT, N).apart
    assert apart is not None
    assert apart[:3] == (3, 2, 1)
    assert len(calls) == N * LAYERS


def test_what_is_no_number_is_a_difference(small):
    """NaN from the beginning: not within any tolerance."""
    found = compare(small, lambda q, k, v: q * np.nan, PROMPT, 2)
    assert found.apart == Apart(0, 0, 0, float("inf"))
    assert float(found.off().min()) == float("inf") > found.allowed


def test_a_function_may_write_into_what_it_is_given(small):
    """It gets copies: the cache of the model is not touched, and another check says that it should not."""

    def scribbling(q, k, v):
        out = own(q, k, v)
        for x in (q, k, v):
            x[:] = 7
        return out

    assert compare(small, scribbling, PROMPT, N).apart is None


def test_another_shape_is_an_error(small):
    """Named with what was expected."""
    with pytest.raises(ValueError, match=r"attention returned \(5, 4, 8\) inside the model: expected \(4, 5, 8\)"):
        compare(small, lambda q, k, v: q.transpose(1, 0, 2), PROMPT, 2)
