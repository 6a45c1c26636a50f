"""Multi-head attention as a layer: torch's layer with copied weights, every option, caches, crossing sequences."""

import copy
import pickle
import re
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from attnbook.errors import ShapeError
from attnbook.reference.attention import attention
from attnbook.reference.heads import MultiHeadAttention, merge_heads, next_positions, split_heads
from attnbook.reference.kv_cache import KVCache, PagedKVCache, RingKVCache
from attnbook.reference.masks import causal_mask, padding_mask
from attnbook.reference.positions import alibi_slopes, positions_from_mask
from attnbook.reference.rope import permute_rope_rows, rope

D, H, T = 30, 6, 7  # d_model, n_heads, tokens


def layer(**options):
    """A layer in float64, the same in every run."""
    torch.manual_seed(3)
    options = {"n_kv_heads": 3, "dtype": torch.float64, "is_causal": True, **options}
    return MultiHeadAttention(D, H, head_dim=options.pop("head_dim", 4), **options)


def tokens(b=2, t=T, d=D, seed=1):
    """Random tokens (b, t, d) in float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((b, t, d)))


# Cutting into heads


def test_heads_are_contiguous_components(make):
    """Head 0 has the first d components, and merging undoes splitting."""
    x = make(np.arange(2 * 3 * 20).reshape(2, 3, 20).astype(float))
    heads = split_heads(x, 4)
    assert tuple(heads.shape) == (2, 4, 3, 5)
    for h in range(4):
        assert (heads[:, h] == x[:, :, 5 * h : 5 * h + 5]).all()
    assert (merge_heads(heads) == x).all()
    assert type(merge_heads(heads)) is type(x)


# Equal to torch's layer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["plain", "causal", "padding", "context"])
def test_equals_torch_with_copied_weights(bias, kind):
    """Output, weights of every head and gradients are those of torch.nn.MultiheadAttention."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, bias=bias, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(D, H, bias=bias, is_causal=kind == "causal", dtype=torch.float64)
    with torch.no_grad():
        for name, part in zip("qkv", theirs.in_proj_weight.chunk(3), strict=True):
            getattr(ours, f"{name}_proj").weight.copy_(part)
        ours.o_proj.weight.copy_(theirs.out_proj.weight)
        if bias:
            nn.init.normal_(theirs.in_proj_bias)
            nn.init.normal_(theirs.out_proj.bias)
            for name, part in zip("qkv", theirs.in_proj_bias.chunk(3), strict=True):
                getattr(ours, f"{name}_proj").bias.copy_(part)
            ours.o_proj.bias.copy_(theirs.out_proj.bias)
    x = tokens().requires_grad_()
    context = tokens(t=11, seed=2) if kind == "context" else None
    source = x if context is None else context
    mask = padding_mask(torch.tensor([5, 7]), T) if kind == "padding" else None
    expected, expected_weights = theirs(
        x,
        source,
        source,
        attn_mask=~causal_mask(T, like=x) if kind == "causal" else None,
        key_padding_mask=None if mask is None else ~mask[:, 0, 0],
        average_attn_weights=False,
    )
    got, weights = ours(x, context=context, mask=mask, return_weights=True)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (got, expected)))
    if kind in ("padding", "context"):
        assert (ours(x) - expected).abs().max() > 1e-3


def test_shapes_of_grouped_heads_and_wider_values():
    """n_kv_heads, head_dim, d_v and d_context each set the size they name."""
    heads = MultiHeadAttention(D, H, 2, 4, d_v=3, d_context=11)
    shapes = {name: tuple(p.shape) for name, p in heads.named_parameters()}
    assert shapes == {
        "q_proj.weight": (H * 4, D),
        "k_proj.weight": (2 * 4, 11),
        "v_proj.weight": (2 * 3, 11),
        "o_proj.weight": (D, H * 3),
    }
    assert heads(torch.randn(2, 5, D), context=torch.randn(2, 3, 11)).shape == (2, 5, D)
    default = MultiHeadAttention(D, H)
    assert (default.n_kv_heads, default.head_dim, default.d_v) == (H, D // H, D // H)


def test_grouped_heads_equal_repeated_ones():
    """Sharing keys and values is multi-head attention whose key and value maps are repeated."""
    grouped = layer()
    full = layer(n_kv_heads=H)
    with torch.no_grad():
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weight = getattr(grouped, name).weight
            if name[0] in "kv":
                weight = weight.reshape(3, 4, D).repeat_interleave(2, dim=0).reshape(H * 4, D)
            getattr(full, name).weight.copy_(weight)
    torch.testing.assert_close(grouped(tokens()), full(tokens()))


# Every option reaches attention


OPTIONS = {
    "bias": True,
    "qk_norm": True,
    "rope": True,
    "is_causal": False,
    "window": 2,
    "softcap": 0.5,
    "alibi": True,
    "sinks": True,
    "scale": 2.0,
    "n_kv_heads": 2,
    "d_v": 3,
    "head_dim": 6,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_changes_the_output(name):
    """With all weights that both layers have in common equal, flipping one option is seen."""
    plain, other = layer(), layer(**{name: OPTIONS[name]})
    known, state = plain.state_dict(), other.state_dict()
    assert len(known) > 3
    other.load_state_dict({k: known[k] if k in known and known[k].shape == v.shape else v for k, v in state.items()})
    assert (other(tokens()) - plain(tokens())).abs().max() > 1e-4


def test_options_are_those_of_attention():
    """The layer is its four maps around one call of attention, with norms, then turns, before it."""
    heads = layer(qk_norm=True, rope=True, window=4, softcap=3.0, alibi=True, sinks=True, scale=0.3)
    with torch.no_grad():
        for parameter in (heads.sinks, heads.q_norm.weight, heads.k_norm.weight):
            nn.init.normal_(parameter)
    x = tokens()
    q, k, v = (getattr(heads, f"{name}_proj")(x).reshape(2, T, -1, 4).transpose(1, 2) for name in "qkv")
    q = rope(nn.functional.rms_norm(q, (4,), heads.q_norm.weight, 1e-6))
    k = rope(nn.functional.rms_norm(k, (4,), heads.k_norm.weight, 1e-6))
    out = attention(
        q,
        k,
        v,
        is_causal=True,
        window=4,
        softcap=3.0,
        scale=0.3,
        sinks=heads.sinks,
        alibi_slopes=alibi_slopes(H, like=x),
    )
    expected = out.transpose(1, 2).reshape(2, T, H * 4) @ heads.o_proj.weight.T
    torch.testing.assert_close(heads(x), expected)


def test_the_rope_function_may_be_any():
    """`rope` takes a function too: other theta, other layout, other output."""
    x = tokens()
    plain = layer(rope=True)(x)
    torch.testing.assert_close(layer(rope=rope)(x), plain)
    for options in ({"theta": 100.0}, {"layout": "interleaved"}, {"rotary_dim": 2}):
        assert (layer(rope=partial(rope, **options))(x) - plain).abs().max() > 1e-4


def test_weights_of_the_interleaved_layout_serve_the_half_layout():
    """A layer trained with interleaved pairs, rows of W_q and W_k permuted head by head, gives the same output."""
    trained = layer(rope=partial(rope, layout="interleaved"), bias=True)
    moved = layer(rope=True, bias=True)
    state = trained.state_dict()
    moved.load_state_dict(state)
    assert (moved(tokens()) - trained(tokens())).abs().max() > 1e-4  # garbage, and nothing says so
    for name, n_heads in (("q_proj", H), ("k_proj", 3)):
        for part in ("weight", "bias"):
            state[f"{name}.{part}"] = permute_rope_rows(state[f"{name}.{part}"], n_heads, to="half")
    moved.load_state_dict(state)
    torch.testing.assert_close(moved(tokens()), trained(tokens()))


def test_weights_are_those_that_average_the_values():
    """Rows sum to 1, look at no future, and weigh v into the output; with a sink they sum to less."""
    heads = layer(rope=True)
    x = tokens()
    y, weights = heads(x, return_weights=True)
    assert weights.shape == (2, H, T, T)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, H, T, dtype=torch.float64))
    assert (weights[:, :, ~causal_mask(T, like=x)] == 0).all()
    _, _, v = heads.project(x)
    averaged = weights @ v.repeat_interleave(2, dim=1)
    torch.testing.assert_close(heads.o_proj(merge_heads(averaged)), y)
    torch.testing.assert_close(y, heads(x))
    _, with_sink = layer(sinks=True)(x, return_weights=True)
    assert (with_sink.sum(-1) < 0.999).all()


def test_the_future_does_not_matter_when_causal():
    """Changing a token leaves every earlier output alone, and changes its own."""
    heads = layer(rope=True, alibi=True)
    x = tokens()
    moved = x.clone()
    moved[:, 4] += 1
    change = (heads(moved) - heads(x)).abs().amax(-1)
    assert (change[:, :4] == 0).all()
    assert (change[:, 4:] > 1e-6).all()


def test_without_positions_a_permutation_goes_through():
    """Not causal and with no positions, tokens are a set; RoPE or ALiBi makes them a sequence."""
    x, order = tokens(), torch.randperm(T, generator=torch.Generator().manual_seed(2))
    heads = layer(is_causal=False)
    torch.testing.assert_close(heads(x[:, order]), heads(x)[:, order])
    for name in ("rope", "alibi"):
        heads = layer(is_causal=False, **{name: True})
        assert (heads(x[:, order]) - heads(x)[:, order]).abs().max() > 1e-4


@pytest.mark.parametrize("positions", ["from the mask", "counted from the left"])
def test_left_padded_rows_equal_the_rows_alone(positions):
    """With the mask, each row is what it is alone: RoPE needs differences only, so any common start will do.

    With a learned table or a sinusoid the start matters, and the positions must come from the mask (see test_block).
    """
    heads = layer(rope=True)
    lengths = torch.tensor([3, 7, 5])
    mask = padding_mask(lengths, T, side="left")
    given = positions_from_mask(mask) if positions == "from the mask" else None
    x = tokens(b=3)
    x[~mask[:, 0, 0]] = torch.nan  # filling may be anything
    y = heads(x, mask=mask, positions=given)
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[b, T - length :], heads(x[b : b + 1, T - length :])[0])


def test_positions_reach_rope():
    """Stretched positions change the output, a common shift does not."""
    heads, x = layer(rope=True), tokens()
    torch.testing.assert_close(heads(x, positions=torch.arange(T) + 1000), heads(x))
    assert (heads(x, positions=torch.arange(T) * 3) - heads(x)).abs().max() > 1e-4


def test_cross_attention_takes_keys_and_values_from_the_context():
    """Permuting the context changes nothing, changing it does; x decides the queries alone."""
    heads = layer(is_causal=False, d_context=11)
    x, context = tokens(), tokens(t=5, d=11, seed=4)
    y = heads(x, context=context)
    torch.testing.assert_close(heads(x, context=context.flip(1)), y)
    assert (heads(x, context=context + 1) - y).abs().max() > 1e-3
    torch.testing.assert_close(heads(x[:, 2:3], context=context), y[:, 2:3])


@pytest.mark.parametrize("shape", [(0, 7), (2, 0)])
def test_no_sequences_and_no_tokens(shape):
    """An empty batch and empty sequences go through, turns and weights included."""
    y, weights = layer(rope=True, alibi=True)(tokens(*shape), return_weights=True)
    assert y.shape == (*shape, D)
    assert weights.shape == (shape[0], H, shape[1], shape[1])


def test_gradcheck():
    """The layer differentiates rightly, with everything switched on."""
    heads = layer(qk_norm=True, rope=True, window=3, softcap=3.0, alibi=True, sinks=True)
    assert torch.autograd.gradcheck(heads, tokens(b=1, t=4).requires_grad_(), fast_mode=True)
    heads(tokens()).square().sum().backward()
    assert all((p.grad != 0).any() for p in heads.parameters())


# With a cache


CACHES = {
    "contiguous": lambda: KVCache(),
    "fixed": lambda: KVCache(capacity=11),
    "paged": lambda: PagedKVCache(n_pages=20, page_size=2),
    "ring": lambda: RingKVCache(window=3),
}


@pytest.mark.parametrize("chunks", [[1] * 11, [5, 1, 1, 4], [11]], ids=str)
@pytest.mark.parametrize("kind", CACHES)
def test_decoding_with_a_cache_is_the_full_forward_at_every_position(kind, chunks):
    """Token by token, in chunks, or at once: positions count on, and every option means the same."""
    window = 3 if kind == "ring" else None
    heads = layer(qk_norm=True, rope=True, alibi=True, sinks=True, softcap=2.0, window=window)
    x, cache = tokens(t=11), CACHES[kind]()
    with torch.no_grad():
        full = heads(x)
        parts = [heads(part, cache=cache) for part in x.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), full)
    if window is None:  # without the cache a token on its own is another thing
        assert (heads(x[:, -1:]) - full[:, -1:]).abs().max() > 1e-3


def test_decoding_a_left_padded_batch_is_each_row_alone():
    """The mask grows by a column a token; filling in the cache may be anything."""
    heads, lengths, t = layer(rope=True), torch.tensor([3, 7, 5]), 7
    x, new = tokens(b=3, t=t), tokens(b=3, t=2, seed=5)
    mask = padding_mask(lengths, t, side="left")
    x[~mask[:, 0, 0]] = torch.nan
    cache = KVCache()
    with torch.no_grad():
        heads(x, mask=mask, positions=positions_from_mask(mask), cache=cache)
        for i in range(2):
            mask = torch.cat([mask, torch.ones(3, 1, 1, 1, dtype=torch.bool)], dim=-1)
            y = heads(new[:, i : i + 1], mask=mask, positions=(lengths + i)[:, None], cache=cache)
            for b, length in enumerate(lengths.tolist()):
                alone = heads(torch.cat([x[b : b + 1, t - length :], new[b : b + 1, : i + 1]], dim=1))
                torch.testing.assert_close(y[b, 0], alone[0, -1])


def test_positions_count_on_in_each_sequence():
    """From 0 in an empty cache, then from what each sequence has had; given positions go first."""
    cache, k = KVCache(), torch.zeros(2, 1, 3, 4)
    assert next_positions(cache, 2).tolist() == [0, 1]
    cache.append(k, k)
    assert next_positions(cache, 2).tolist() == [[3, 4], [3, 4]]
    heads, x = layer(rope=True), tokens(t=4)
    outputs = []
    for positions in (None, torch.tensor([3]), torch.tensor([9])):
        cache = KVCache()
        heads(x[:, :3], cache=cache)
        outputs.append(heads(x[:, 3:], cache=cache, positions=positions).detach())
    assert torch.equal(outputs[0], outputs[1])
    assert (outputs[0] - outputs[2]).abs().max() > 1e-4


# Another implementation in its place


def test_attend_is_an_attribute_of_the_class():
    """A subclass brings another attention, and is called with every option by name; it pickles and copies."""
    calls = []

    class Recorded(MultiHeadAttention):
        @staticmethod
        def attend(q, k, v, **options):
            calls.append(options)
            return attention(q, k, v, **options)

    torch.manual_seed(3)
    heads = Recorded(D, H, 3, 4, is_causal=True, window=2, dtype=torch.float64)
    torch.testing.assert_close(heads(tokens()), layer(window=2)(tokens()))
    expected = {"mask", "is_causal", "window", "softcap", "scale", "sinks", "alibi_slopes"}
    assert [set(options) for options in calls] == [expected]
    plain = layer(rope=True)
    for twin in (copy.deepcopy(plain), pickle.loads(pickle.dumps(plain))):
        assert torch.equal(twin(tokens()), plain(tokens()))


def test_dtypes_and_repr():
    """Half precision stays half precision, also with slopes and turns; the options are shown."""
    heads = MultiHeadAttention(D, H, rope=partial(rope, rotary_dim=2), alibi=True, is_causal=True, window=2)
    assert heads.bfloat16()(tokens().bfloat16()).dtype == torch.bfloat16
    assert "n_heads=6, n_kv_heads=6, head_dim=5, is_causal=True, window=2, alibi=True" in repr(heads)
    heads = MultiHeadAttention(D, H, scale=0.0, rope=lambda x, positions: x, sinks=True)
    assert "head_dim=5, scale=0.0, rope=True, sinks=True" in repr(heads)
    heads = MultiHeadAttention(D, H, d_v=7, rope=partial(rope, theta=5e5), qk_norm=True)
    assert "head_dim=5, d_v=7, rope={'theta': 500000.0}, qk_norm=True" in repr(heads)
    assert "rope" not in repr(MultiHeadAttention(D, H))


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: MultiHeadAttention(10, 4), ShapeError, "d_model is 10 and n_heads 4: expected a multiple of n_heads"),
        (lambda: MultiHeadAttention(12, 6, 4), ShapeError, "n_heads is 6 and n_kv_heads 4: expected a multiple of n_k"),
        (lambda: MultiHeadAttention(12, 0), ShapeError, "n_heads is 0 and n_kv_heads 0: expected at least 1 of each"),
        (lambda: MultiHeadAttention(12, 2, 0, 4), ShapeError, "n_heads is 2 and n_kv_heads 0: expected at least 1"),
        (lambda: MultiHeadAttention(12, 2, window=3), ValueError, "window is 3 but is_causal is False"),
        (
            lambda: MultiHeadAttention(12, 2, softcap=-1.0),
            ValueError,
            "softcap is -1.0: expected a finite number above",
        ),
        (lambda: layer()(tokens()[0]), ShapeError, "x has 2 axes (7, 30): expected 3, (b, t, d)"),
        (lambda: layer()(tokens(d=29)), ShapeError, "x has 29 components (axis d): expected d_model 30"),
        (lambda: layer(d_context=9)(tokens()), ValueError, "context is missing: the keys come from tokens of 9 comp"),
        (
            lambda: layer()(tokens(), context=tokens(d=9)),
            ShapeError,
            "context has 9 components (axis d): expected 30",
        ),
        (
            lambda: layer(rope=True)(tokens(), context=tokens()),
            ValueError,
            "context is given to a layer with rope: two sequences have no common positions",
        ),
        (
            lambda: layer(is_causal=True)(tokens(), cache=[]),
            TypeError,
            "cache is a list: expected a KVCache, RingKVCache or PagedKVCache",
        ),
        (lambda: layer()(tokens(), context=tokens(), cache=KVCache()), ValueError, "context and cache are both given"),
        (
            lambda: layer()(tokens(), cache=KVCache(), return_weights=True),
            ValueError,
            "return_weights is True and there is a cache: expected one of them",
        ),
        (lambda: layer(rope=True, head_dim=5)(tokens()), ShapeError, "x has head_dim 5 (axis d): expected an even"),
        (lambda: split_heads(np.ones((1, 2, 7)), 2), ShapeError, "x has 7 components (axis d): expected a multiple of"),
        (lambda: merge_heads(np.ones((1, 2, 7))), ShapeError, "x has 3 axes (1, 2, 7): expected 4, (b, h, t, d)"),
    ],
)
def test_bad_input_is_named(call, error, text):
    """One error, with the axis, what was expected and what came."""
    with pytest.raises(error, match=re.escape(text)):
        call()
