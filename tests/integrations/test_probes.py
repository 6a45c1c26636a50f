"""The probes on models of transformers: quiet on healthy ones, and each fault found."""

import pytest
import torch

pytest.importorskip("transformers")

from attnbook.probes import batch_dependence, causal_leak, overflow, permutation_equivariance
from tests.integrations import small_models

FAMILIES = ["llama", "qwen3", "gemma2", "gemma3", "mistral", "gpt_oss", "mixtral"]
T = 11


@pytest.fixture(scope="module")
def tokens():
    """Two sequences of 11 tokens."""
    generator = torch.Generator().manual_seed(8)
    return torch.randint(3, small_models.VOCABULARY, (2, T), generator=generator)


@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_models_raise_no_alarm(family, tokens):
    """In float32, as most would run them: no future, no neighbours, nothing beyond the finite range."""
    model = small_models.model(family, "eager", torch.float32).eval()
    leak = causal_leak(model, tokens, vocabulary=small_models.VOCABULARY, draws=1)
    assert leak.ok, leak
    batch = batch_dependence(model, tokens)
    assert batch.ok, batch
    finite = overflow(model, tokens)
    assert finite.ok, finite


def test_a_model_that_sees_its_future(tokens):
    """Llama with a mask that hides nothing."""
    model = small_models.model("llama", "sdpa", torch.float32).eval()
    open_mask = torch.zeros(2, 1, T, T)
    assert not causal_leak(lambda x: model(x, attention_mask=open_mask), tokens, draws=1).ok


def test_order_is_known_to_all_of_them(tokens):
    """They have positions and a causal mask."""
    model = small_models.model("llama", "eager", torch.float32).eval()
    assert not permutation_equivariance(model, tokens, draws=1).ok


def test_a_norm_over_the_batch(tokens):
    """In the place of a norm over features."""
    model = small_models.model("llama", "eager", torch.float32).eval()
    model.model.norm.register_forward_hook(lambda module, inputs, out: out - out.mean(0, keepdim=True))
    report = batch_dependence(model, tokens)
    assert {finding.kind for finding in report.findings} == {"neighbours"}


def test_weights_that_have_grown(tokens):
    """The module is named as the model names it."""
    model = small_models.model("llama", "eager", torch.float16).eval()
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight.mul_(6e4)
    report = overflow(model, tokens)
    if report.findings[0].kind == "parameter":
        assert report.findings[0].module == "model.layers.1.self_attn.q_proj"
    else:
        assert (report.findings[0].module or "").startswith("model.layers.1.self_attn")
