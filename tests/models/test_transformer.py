"""The small transformer: every choice does what it says, and a seed fixes where it starts."""

import pytest
import torch

from attnbook.api import MultiHeadAttention
from attnbook.errors import DTypeError, ShapeError
from attnbook.models import SparseMLP, Transformer, attention_weights
from attnbook.reference.kv_cache import KVCache, RingKVCache

VOCAB, B, T = 11, 2, 7
CHOICES = {
    "none": {"positions": "none"},
    "sinusoidal": {"positions": "sinusoidal"},
    "learned": {"positions": "learned", "max_positions": 13},
    "rope": {"positions": "rope"},
    "alibi": {"positions": "alibi"},
    "post": {"norm": "post", "norm_type": "rms"},
    "grouped": {"n_kv_heads": 1, "mlp": "none"},
    "window": {"window": 3},
    "experts": {"mlp": "experts", "n_experts": 5, "top_k": 2, "d_ff": 3},
}


def small(**options):
    return Transformer(VOCAB, **{"d_model": 12, "n_layers": 3, "n_heads": 2} | options).eval()


@pytest.fixture
def tokens():
    return torch.randint(VOCAB, (B, T), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("choice", CHOICES)
def test_it_looks_at_the_past_alone(tokens, choice):
    """Another last token changes the last place's logits and no other's."""
    model, other = small(**CHOICES[choice]), tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % VOCAB
    before, after = model(tokens), model(other)
    assert before.shape == (B, T, VOCAB)
    torch.testing.assert_close(before[:, :-1], after[:, :-1], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)


def test_an_encoder_looks_ahead(tokens):
    """Without the mask the first place sees the last token."""
    model, other = small(is_causal=False), tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % VOCAB
    assert not torch.allclose(model(tokens)[:, 0], model(other)[:, 0], atol=1e-4)


@pytest.mark.parametrize("choice", CHOICES)
def test_token_by_token_with_caches_is_the_whole_at_once(tokens, choice):
    """Positions go on where the caches end, also those of the table and of the waves."""
    model = small(**CHOICES[choice])
    caches = [RingKVCache(3) if choice == "window" else KVCache() for _ in model.blocks]
    with torch.no_grad():
        steps = [model(tokens[:, i : i + 1], caches=caches) for i in range(T)]
        torch.testing.assert_close(torch.cat(steps, 1), model(tokens), rtol=1e-4, atol=1e-5)


def test_without_positions_and_mask_the_order_says_nothing(tokens):
    """An encoder without positions: permuted tokens, permuted logits; with any positions they are others."""
    order = torch.randperm(T, generator=torch.Generator().manual_seed(3))
    for choice, same in (("none", True), ("sinusoidal", False), ("learned", False), ("rope", False), ("alibi", False)):
        model = small(is_causal=False, **CHOICES[choice])
        assert torch.allclose(model(tokens)[:, order], model(tokens[:, order]), atol=1e-5) == same, choice


def test_a_seed_is_a_start_whatever_else_was_drawn():
    """The same seed gives the same weights, another one others; the process's own generator is left alone."""
    torch.manual_seed(1)
    first = small(seed=4).state_dict()
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    second, third = small(seed=4).state_dict(), small(seed=5).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head.weight"], third["head.weight"])


def test_options_without_weights_change_no_start():
    """Two models to be compared start from the same weights."""
    plain = small().state_dict()
    for options in ({"norm": "post"}, {"residual": False}, {"window": 2}, {"positions": "alibi"}, CHOICES["learned"]):
        other = small(**options).state_dict()
        assert all(torch.equal(plain[name], other[name]) for name in plain if name in other), options
        assert set(other) - set(plain) == ({"table.weight"} if "max_positions" in options else set())


def test_weights_are_those_that_the_layers_use(tokens):
    """Rows sum to 1 and see no future; a layer's output is their average of its values."""
    model = small(n_kv_heads=1)
    layer: MultiHeadAttention = model.blocks[0].attention
    seen = {}
    handle = layer.register_forward_hook(lambda _, args, out: seen.update(x=args[0], y=out))
    weights = attention_weights(model, tokens)
    model(tokens)
    handle.remove()
    assert [w.shape for w in weights] == 3 * [(B, 2, T, T)]
    for w in weights:
        torch.testing.assert_close(w.sum(-1), torch.ones(B, 2, T))
        assert not w.triu(1).any()
    average = weights[0] @ layer.project(seen["x"])[2]  # one head of values for both
    torch.testing.assert_close(layer.o_proj(average.transpose(1, 2).flatten(2)), seen["y"], rtol=1e-5, atol=1e-6)
    assert not layer._forward_hooks


def test_layers_are_what_was_asked_for():
    """Heads, experts, norms and residuals reach the blocks."""
    model = small(n_kv_heads=1, residual=False, **CHOICES["experts"])
    block = model.blocks[2]
    assert (block.attention.n_kv_heads, block.residual, block.norm) == (1, False, "pre")
    assert isinstance(block.mlp, SparseMLP)
    model(torch.zeros(1, 3, dtype=torch.long))
    assert block.mlp.routing.experts.shape == (1, 3, 2)
    torch.testing.assert_close(block.mlp.routing.weights.sum(-1), torch.ones(1, 3))
    scored = small(n_kv_heads=1, residual=False, renormalize=False, **CHOICES["experts"])
    scored(torch.tensor([[1, 2, 3]]))
    assert (scored.blocks[0].mlp.routing.weights.sum(-1) < 0.99).all()
    assert isinstance(small(norm="post").norm, torch.nn.Identity)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"positions": "both"},
            r"positions is 'both': expected one of 'none', 'sinusoidal', 'learned', 'rope'",
        ),
        ({"positions": "learned"}, r"max_positions is None with positions 'learned': expected the length of the table"),
        ({"max_positions": 5}, r"max_positions is 5 with positions 'rope': only 'learned' has a table"),
        ({"mlp": "wide"}, r"mlp is 'wide': expected 'dense', 'experts' or 'none'"),
        ({"mlp": "experts"}, r"top_k is None of n_experts None: expected 1 to n_experts"),
        ({"mlp": "experts", "n_experts": 3, "top_k": 4}, r"top_k is 4 of n_experts 3: expected 1 to n_experts"),
        ({"n_experts": 3}, r"n_experts is 3 and top_k None with mlp 'dense': expected mlp='experts'"),
    ],
)
def test_what_does_not_go_together_is_an_error(options, message):
    """Each says which option, what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_tokens_that_are_none(tokens):
    """Axes, kind of number, vocabulary, table and caches."""
    model = small(**CHOICES["learned"])
    with pytest.raises(ShapeError, match="tokens"):
        model(tokens[0])
    with pytest.raises(DTypeError, match=r"tokens has dtype torch.float32: expected whole numbers"):
        model(tokens.float())
    for token in (VOCAB, -1):
        with pytest.raises(ValueError, match=rf"token {token} is outside the vocabulary: expected 0 to 10"):
            model(torch.full((1, 2), token))
    with pytest.raises(ShapeError, match=r"14 positions \(axis t\) are more than the learned table has: 13"):
        model(torch.zeros(1, 14, dtype=torch.long))
    with pytest.raises(ValueError, match=r"2 caches for 3 layers: expected one a layer"):
        model(tokens, caches=[KVCache(), KVCache()])
    with pytest.raises(ValueError, match=r"caches are given: expected none"):
        attention_weights(model, tokens, caches=[])
    with pytest.raises(ShapeError, match=r"vocab is 0"):
        Transformer(0)
