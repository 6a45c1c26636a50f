"""Blocks: torch's encoder layer with copied weights, both orders of the norms, and what residuals carry."""

import copy
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.errors import ShapeError
from attnbook.reference.attention import attention
from attnbook.reference.block import MLP, TransformerBlock
from attnbook.reference.kv_cache import KVCache
from attnbook.reference.masks import causal_mask, padding_mask
from attnbook.reference.norms import LayerNorm
from attnbook.reference.positions import LearnedPositions, positions_from_mask, sinusoidal_positions

D, H, T = 12, 3, 7


def block(**options):
    """A block in float64, the same in every run."""
    torch.manual_seed(3)
    return TransformerBlock(D, H, dtype=torch.float64, **options)


def tokens(b=2, t=T, seed=1):
    """Random tokens (b, t, d) in float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((b, t, D)))


# The small network


def test_mlp_by_the_formula():
    """gelu with erf, relu, and swiglu with its gate; each with and without bias."""
    x = tokens()
    for activation, function in (("gelu", F.gelu), ("relu", F.relu)):
        mlp = MLP(D, 17, activation=activation, bias=True, dtype=torch.float64)
        hidden = x @ mlp.up_proj.weight.T + mlp.up_proj.bias
        expected = function(hidden) @ mlp.down_proj.weight.T + mlp.down_proj.bias
        torch.testing.assert_close(mlp(x), expected)
    mlp = MLP(D, 17, activation="swiglu", dtype=torch.float64)
    gate, up, down = (getattr(mlp, f"{name}_proj").weight.T for name in ("gate", "up", "down"))
    torch.testing.assert_close(mlp(x), ((x @ gate) * torch.sigmoid(x @ gate) * (x @ up)) @ down)


def test_mlp_widths():
    """Four times as wide; with a gate 8/3, so that it has about as many weights."""
    assert MLP(D).up_proj.out_features == 4 * D
    assert MLP(D, activation="swiglu").up_proj.out_features == 32
    count = [sum(p.numel() for p in MLP(D, activation=a).parameters()) for a in ("relu", "swiglu")]
    assert count[0] == count[1] == 8 * D * D
    assert MLP(D, 5).down_proj.in_features == 5


# Equal to torch's layer


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_torchs_encoder_layer_with_copied_weights(norm, is_causal, activation):
    """Both orders: outputs and gradients of the input and of every parameter."""
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        D, H, 17, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    ours = block(norm=norm, d_ff=17, activation=activation, bias=True, is_causal=is_causal)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    state = theirs.state_dict()
    copied = {f"norm{i}.{part}": state[f"norm{i}.{part}"] for i in (1, 2) for part in ("weight", "bias")}
    for part in ("weight", "bias"):
        for name, chunk in zip("qkv", state[f"self_attn.in_proj_{part}"].chunk(3), strict=True):
            copied[f"attention.{name}_proj.{part}"] = chunk
        copied[f"attention.o_proj.{part}"] = state[f"self_attn.out_proj.{part}"]
        copied[f"mlp.up_proj.{part}"] = state[f"linear1.{part}"]
        copied[f"mlp.down_proj.{part}"] = state[f"linear2.{part}"]
    ours.load_state_dict(copied)
    x = tokens().requires_grad_()
    expected = theirs(x, src_mask=~causal_mask(T, like=x) if is_causal else None)
    torch.testing.assert_close(ours(x), expected)
    one, two = (torch.autograd.grad(y.square().sum(), x, retain_graph=True)[0] for y in (ours(x), expected))
    torch.testing.assert_close(one, two)
    other = block(norm="post" if norm == "pre" else "pre", d_ff=17, activation=activation, bias=True)
    other.load_state_dict(copied)
    assert (other(x) - expected).abs().max() > 0.1


# What the options mean


@pytest.mark.parametrize("residual", [True, False])
def test_the_two_orders_as_they_are_written(residual):
    """Pre: x + f(norm(x)); post: norm(x + f(x)); without residuals the `x +` is gone."""
    x = tokens()

    def plus(x, change):
        return x + change if residual else change

    pre = block(residual=residual)
    middle = plus(x, pre.attention(pre.norm1(x)))
    torch.testing.assert_close(pre(x), plus(middle, pre.mlp(pre.norm2(middle))))
    post = block(norm="post", residual=residual)
    middle = post.norm1(plus(x, post.attention(x)))
    torch.testing.assert_close(post(x), post.norm2(plus(middle, post.mlp(middle))))


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "post"},
        {"norm_type": "rms"},
        {"norm_type": "batch"},
        {"residual": False},
        {"d_ff": 5},
        {"activation": "relu"},
        {"activation": "swiglu"},
        {"bias": True},
        {"eps": 0.5},
        {"is_causal": True},
        {"n_kv_heads": 1},
        {"rope": True},
        {"qk_norm": True},
    ],
    ids=str,
)
def test_each_option_changes_the_output(options):
    """With all weights that both blocks have in common equal, flipping one option is seen."""
    plain, other = block(), block(**options)
    known, state = plain.state_dict(), other.state_dict()
    other.load_state_dict({k: known[k] if k in known and known[k].shape == v.shape else v for k, v in state.items()})
    assert (other(tokens()) - plain(tokens())).abs().max() > 1e-4


def test_mask_and_positions_reach_attention():
    """Both are seen in the output: a hidden key, and positions three times as far apart."""
    made, x = block(rope=True, head_dim=4, is_causal=True), tokens()
    plain = made(x)
    stretched = made(x, positions=torch.arange(T) * 3)
    assert (stretched - plain).abs().max() > 1e-4
    torch.testing.assert_close(made(x, positions=torch.arange(T) + 50), plain)
    hidden = made(x, mask=torch.arange(T) != 2)
    assert (hidden - plain)[:, 3:].abs().amax(-1).min() > 1e-6
    assert torch.equal(hidden[:, :2], plain[:, :2])


def test_the_end_of_a_post_block_is_normed_and_of_a_pre_block_is_not():
    """Mean 0 and variance 1 for each token after post; pre carries x itself through."""
    x = tokens() * 30
    y = block(norm="post")(x)
    torch.testing.assert_close(y.mean(-1), torch.zeros(2, T, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(y.var(-1, correction=0), torch.ones(2, T, dtype=torch.float64), atol=1e-3, rtol=0)
    assert block()(x).var(-1).min() > 100


def test_a_residual_carries_x_and_its_gradient_where_the_rest_is_silent():
    """With the last maps 0, a pre block is the identity and its Jacobian too; without residuals it is 0."""
    for residual in (True, False):
        silent = block(residual=residual)
        with torch.no_grad():
            silent.attention.o_proj.weight.zero_()
            silent.mlp.down_proj.weight.zero_()
        x = tokens().requires_grad_()
        y = silent(x)
        assert torch.equal(y, x if residual else torch.zeros_like(x))
        y.sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, float(residual)))


def test_batch_norm_in_a_block_mixes_sequences():
    """With LayerNorm a sequence does not see the others of its batch; with BatchNorm in training it does."""
    x = tokens()
    other = x.clone()
    other[0] += 3 * tokens(seed=9)[0]
    for norm_type, sees in (("layer", False), ("rms", False), ("batch", True)):
        change = (block(norm_type=norm_type)(other) - block(norm_type=norm_type)(x))[1].abs().max()
        assert (change > 1e-3) == sees
        assert (change == 0) == (not sees)


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal", "rope"])
def test_left_padded_rows_equal_the_rows_alone(encoding):
    """Positions come from the mask: then each row, whatever its filling, gives what it gives alone."""
    made = block(is_causal=True, rope=encoding == "rope", head_dim=4)
    table = LearnedPositions(T, D, dtype=torch.float64)

    def embed(x, positions):
        if encoding == "rope":
            return x
        return x + (table(positions) if encoding == "learned" else sinusoidal_positions(positions, D, like=x))

    lengths = torch.tensor([3, 7, 5])
    mask = padding_mask(lengths, T, side="left")
    x, positions = tokens(b=3), positions_from_mask(mask)
    y = made(embed(x, positions), mask=mask, positions=positions)
    naive = made(embed(x, torch.arange(T)), mask=mask)
    for b, length in enumerate(lengths.tolist()):
        alone = made(embed(x[b : b + 1, T - length :], torch.arange(length)))
        torch.testing.assert_close(y[b, T - length :], alone[0])
        if length < T and encoding != "rope":  # counted from the left, a padded row sits elsewhere
            assert (naive[b, T - length :] - alone[0]).abs().max() > 1e-3


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoding_through_blocks_is_the_full_forward(norm):
    """Two blocks, a cache for each, one token at a time: equal at every position."""
    first, second = (block(norm=norm, is_causal=True, rope=True, head_dim=4, norm_type="rms") for _ in range(2))
    x, caches = tokens(), (KVCache(), KVCache())
    with torch.no_grad():
        full = second(first(x))
        for i in range(T):
            y = second(first(x[:, i : i + 1], cache=caches[0]), cache=caches[1])
            torch.testing.assert_close(y, full[:, i : i + 1])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradcheck(norm):
    """Differentiable as a whole."""
    made = block(norm=norm, norm_type="rms", activation="swiglu", is_causal=True, n_kv_heads=1, rope=True, d_ff=5)
    assert torch.autograd.gradcheck(made, tokens(b=1, t=3).requires_grad_(), fast_mode=True)
    made(tokens()).square().sum().backward()
    assert all((p.grad != 0).any() for p in made.parameters())


def test_another_attention_in_a_subclass_reaches_the_layer():
    """`attend` replaced in a subclass of the block is what its attention layer calls; copies keep it."""
    calls = []

    class Recorded(TransformerBlock):
        @staticmethod
        def attend(q, k, v, **options):
            calls.append("attend")
            return attention(q, k, v, **options)

        @staticmethod
        def attend_cached(q, cache, **options):
            calls.append("attend_cached")
            return TransformerBlock.attend_cached(q, cache, **options)

    torch.manual_seed(3)
    made = Recorded(D, H, is_causal=True, dtype=torch.float64)
    torch.testing.assert_close(made(tokens()), block(is_causal=True)(tokens()))
    copy.deepcopy(made)(tokens())
    assert calls == ["attend", "attend"]
    made(tokens(), cache=KVCache())
    assert calls[2:] == ["attend_cached", "attend"]


def test_repr_and_dtype():
    """Order and residual are shown; half precision stays half precision."""
    made = TransformerBlock(D, H, norm="post", residual=False)
    assert repr(made).splitlines()[1].strip() == "norm='post', residual=False"
    assert isinstance(made.norm1, LayerNorm)
    assert made.bfloat16()(tokens().bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: block(norm="sandwich"), ValueError, "norm is 'sandwich': expected 'pre' or 'post'"),
        (lambda: block(norm_type="group"), ValueError, "norm_type is 'group': expected one of 'layer', 'rms', 'batch'"),
        (
            lambda: block(activation="tanh"),
            ValueError,
            "activation is 'tanh': expected one of 'gelu', 'relu', 'swiglu'",
        ),
        (lambda: block(d_ff=0), ShapeError, "d_ff is 0: expected at least 1"),
        (lambda: TransformerBlock(10, 4), ShapeError, "d_model is 10 and n_heads 4: expected a multiple of n_heads"),
        (
            lambda: block(dropout=0.1),
            TypeError,
            "TransformerBlock has no option 'dropout': expected one of d_model, n_heads, norm, norm_type, residual, "
            "d_ff, activation, bias, eps, device, dtype, n_kv_heads, head_dim, d_v, d_context, qk_norm, rope, ",
        ),
        (lambda: block(attention=0.1), TypeError, "TransformerBlock has no option 'attention'"),
        (lambda: block()(torch.ones(2, 3, 7)), ShapeError, "x has 7 components (axis d): expected d_model 12"),
        (
            lambda: block(is_causal=True)(tokens(), cache={}),
            TypeError,
            "cache is a dict: expected a KVCache, RingKVCache or PagedKVCache",
        ),
        (lambda: block()(tokens()[0]), ShapeError, "x has 2 axes (7, 12): expected 3, (b, t, d)"),
    ],
)
def test_bad_input_is_named(call, error, text):
    """One error, with what was expected and what came."""
    with pytest.raises(error, match=re.escape(text)):
        call()
