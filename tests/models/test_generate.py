"""Generation: token by token it is what the whole model finds most probable, and it ends where it should."""

import dataclasses

import gguf
import pytest
import torch

from attnbook.models.generate import generate, stream
from attnbook.models.smollm2 import SmolLM2
from tests.models.small_gguf import TOKENS, real, write

PROMPT = [3, 141, 59, 26, 53]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return SmolLM2.load(write(tmp_path_factory.mktemp("gguf") / "small.gguf"))


def by_forward(model, tokens, n):
    """The same without a cache: the whole read again for every token."""
    tokens = list(tokens)
    start = len(tokens)
    for _ in range(n):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[start:]


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_the_most_probable_token_each_time(tmp_path, tied):
    """The fast steps against the readable model, 20 tokens after 5 and after 1; a tensor of tokens does, too."""
    model = SmolLM2.load(write(tmp_path / "a.gguf", tied=tied))
    for prompt in (PROMPT, [7]):
        expected = by_forward(model, prompt, 20)
        assert len(set(expected)) > 3
        assert generate(model, prompt, max_new_tokens=20, stop=()) == expected
        assert generate(model, torch.tensor(prompt), max_new_tokens=20, stop=()) == expected


def test_other_dtypes_generate(tmp_path):
    """float64 finds the same tokens; bfloat16 runs."""
    path = write(tmp_path / "a.gguf", kind=gguf.GGMLQuantizationType.F16)
    expected = by_forward(SmolLM2.load(path), PROMPT, 12)
    assert generate(SmolLM2.load(path, dtype=torch.float64), PROMPT, max_new_tokens=12, stop=()) == expected
    assert len(generate(SmolLM2.load(path, dtype=torch.bfloat16), PROMPT, max_new_tokens=12, stop=())) == 12


def test_it_ends_with_what_stops_it(small):
    """The token itself is there; without one it goes on to the end; the model's own is taken where none is given."""
    expected = by_forward(small, PROMPT, 10)
    token = expected[4]
    first = expected.index(token)
    assert generate(small, PROMPT, max_new_tokens=10, stop={token}) == expected[: first + 1]
    ending = SmolLM2(
        dataclasses.replace(small.config, end=token), small.layers, embedding=small.embedding, norm=small.norm,
        head=small.head, metadata=small.metadata,
    )  # fmt: skip
    assert generate(ending, PROMPT, max_new_tokens=10) == expected[: first + 1]
    endless = SmolLM2(
        dataclasses.replace(small.config, end=None), small.layers, embedding=small.embedding, norm=small.norm,
        head=small.head, metadata=small.metadata,
    )  # fmt: skip
    assert generate(endless, PROMPT, max_new_tokens=10) == expected
    assert generate(small, PROMPT, max_new_tokens=0) == []


def test_tokens_come_one_by_one(small):
    """The stream has room for so many, and may be left before."""
    expected = by_forward(small, PROMPT, 6)
    assert list(stream(small, PROMPT, room=6)) == expected
    coming = stream(small, PROMPT, room=6)
    assert [next(coming), next(coming)] == expected[:2]
    coming.close()
    assert not torch.is_inference_mode_enabled()


def test_wrong_calls_are_refused(small):
    """No tokens, two sequences, a number below 0, a token that does not exist."""
    with pytest.raises(ValueError, match=r"tokens has shape \(0,\): expected \(t,\), at least one token"):
        generate(small, [], max_new_tokens=1)
    with pytest.raises(ValueError, match=r"tokens has shape \(1, 5\)"):
        generate(small, torch.tensor([PROMPT]), max_new_tokens=1)
    with pytest.raises(ValueError, match="max_new_tokens is -1: expected at least 0"):
        generate(small, PROMPT, max_new_tokens=-1)
    with pytest.raises(ValueError, match=f"token {len(TOKENS)} is outside the vocabulary"):
        generate(small, [len(TOKENS)], max_new_tokens=1)


def test_the_real_model_answers():
    """It knows a capital, and ends its answer."""
    model = real()
    prompt = "<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n"
    answer = generate(model, model.tokenizer.encode(prompt), max_new_tokens=20)
    assert model.tokenizer.decode(answer) == "The capital of Japan is Tokyo.<|im_end|>"
