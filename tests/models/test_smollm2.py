"""The opened model: the same logits as transformers on the same file, and everything inside it can be watched."""

import mmap

import gguf
import pytest
import torch
from torch.nn.functional import silu

from attnbook.errors import DTypeError, ShapeError
from attnbook.models.generate import generate
from attnbook.models.gguf_file import GGUFFile
from attnbook.models.smollm2 import WATCHED, SmolLM2
from attnbook.models.weights import in_large_pages
from attnbook.reference import attention as plain_attention
from attnbook.reference import permute_rope_rows, rms_norm, rope, window_mask
from attnbook.reference.heads import merge_heads, split_heads
from attnbook.reference.rope_scaling import LinearScaling
from tests.models.small_gguf import (
    D_FF,
    END,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LAYERS,
    TOKENS,
    WIDTH,
    real,
    real_path,
    write,
)

T = 11


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("gguf") / "small.gguf")
    model = SmolLM2.load(path)
    model.path = path
    return model


@pytest.fixture
def tokens():
    return torch.randint(len(TOKENS), (2, T), generator=torch.Generator().manual_seed(5))


def test_logits_and_greedy_tokens_are_those_of_transformers():
    """On the same file: logits of an English and a Japanese text, 24 greedy tokens, and q's rows reordered."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    path, ours = real_path(), real()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()
    for text in ("When Mary and John went to the store, John gave a drink to", "注意は重みつき平均である。1 + 2 = "):
        read = torch.tensor([ours.tokenizer.encode(text)])
        with torch.no_grad():
            expected = theirs(read).logits
        apart = (ours(read) - expected).abs().max()
        assert float(expected.abs().max()) > 10
        assert float(apart) < 3e-4
    prompt = ours.tokenizer.encode("<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n")
    with torch.no_grad():
        expected = theirs.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=24, do_sample=False,
            pad_token_id=2, eos_token_id=2,
        )[0, len(prompt) :]  # fmt: skip
    assert generate(ours, prompt, max_new_tokens=24) == expected.tolist()
    for i in (0, 17, 29):
        attention = theirs.model.layers[i].self_attn
        for name, n_heads in (("q_proj", 9), ("k_proj", 3)):
            reordered = permute_rope_rows(getattr(ours.layers[i], name), n_heads, to="half")
            torch.testing.assert_close(reordered, getattr(attention, name).weight.data, rtol=0, atol=0)
        torch.testing.assert_close(ours.layers[i].v_proj, attention.v_proj.weight.data, rtol=0, atol=0)


def test_the_sizes_are_those_of_the_real_model():
    """30 layers, 9 heads over 3, and 134.5 million weights."""
    model = real()
    c = model.config
    assert (c.n_layers, c.d_model, c.n_heads, c.n_kv_heads, c.head_dim, c.d_ff) == (30, 576, 9, 3, 64, 1_536)
    assert (c.vocab, c.context, c.theta, c.end) == (49_152, 8_192, 100_000, 2)
    assert c.eps == pytest.approx(1e-5)
    assert str(model) == "SmolLM2(30 layers, d_model=576, 9 heads over 3, vocab=49152)"
    assert (model.embedding.shape, model.head.data_ptr()) == ((49_152, 576), model.embedding.data_ptr())
    layer = model.layers[0]
    per_layer = sum(x.numel() for x in (layer.qkv, layer.out, layer.gate_up, layer.down_proj)) + 2 * 576
    assert 30 * per_layer + 49_152 * 576 + 576 == 134_515_008


def test_it_is_llama_written_out(small, tokens):
    """The same from the file's tensors by the reference's parts, in float64."""
    file = GGUFFile.open(small.path)
    x = torch.from_numpy(file.tensor("token_embd.weight")).double()
    table = x
    x = x[tokens]

    def w(name):
        return torch.from_numpy(file.tensor(f"{name}.weight")).double()

    for i in range(LAYERS):
        h = rms_norm(x, w(f"blk.{i}.attn_norm"), eps=1e-5)
        q, k, v = (
            split_heads(h @ w(f"blk.{i}.attn_{name}").mT, n)
            for name, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
        )
        q, k = (rope(y, theta=1000.0, layout="interleaved") for y in (q, k))
        x = x + merge_heads(plain_attention(q, k, v, is_causal=True)) @ w(f"blk.{i}.attn_output").mT
        h = rms_norm(x, w(f"blk.{i}.ffn_norm"), eps=1e-5)
        x = x + (silu(h @ w(f"blk.{i}.ffn_gate").mT) * (h @ w(f"blk.{i}.ffn_up").mT)) @ w(f"blk.{i}.ffn_down").mT
    expected = rms_norm(x, w("output_norm"), eps=1e-5) @ table.mT
    torch.testing.assert_close(small(tokens), expected.float(), rtol=1e-4, atol=1e-4)
    assert float(expected.std()) > 1


def test_named_weights_are_the_files(small):
    """Views of what is fused, in the shape (out, in)."""
    file = GGUFFile.open(small.path)
    names = {
        "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
        "up_proj": "ffn_up", "down_proj": "ffn_down",
    }  # fmt: skip
    for i, layer in enumerate(small.layers):
        for ours, theirs in names.items():
            expected = torch.from_numpy(file.tensor(f"blk.{i}.{theirs}.weight"))
            torch.testing.assert_close(getattr(layer, ours), expected, rtol=0, atol=0)
    assert small.layers[0].q_proj.data_ptr() == small.layers[0].qkv.data_ptr()


def test_with_caches_it_is_the_whole_at_once(small, tokens):
    """Three tokens, then one, then the rest; and the caches are as long as what was read."""
    cache = small.new_cache(T)
    parts = [small(part, cache=cache) for part in tokens.split((3, 1, T - 4), dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), small(tokens), rtol=1e-4, atol=1e-4)
    assert {len(one) for one in cache} == {T}


def test_a_mask_hides_more_than_the_future(small, tokens):
    """A window of two keys in three layers reaches four tokens, caches or not; a mask that hides nothing is none."""
    window = window_mask(T, T, 2, like=torch.zeros(0))
    other = tokens.clone()
    other[:, 4] = (other[:, 4] + 1) % len(TOKENS)
    read = small(tokens, mask=window)
    changed = (small(other, mask=window) != read).any(-1).any(0)
    assert changed.tolist() == [4 <= i < 4 + LAYERS * (2 - 1) + 1 for i in range(T)]
    torch.testing.assert_close(small(tokens, mask=torch.ones(T, T, dtype=torch.bool)), small(tokens))
    cache = small.new_cache(T)
    parts = [(tokens[:, :5], window[:5, :5]), (tokens[:, 5:], window[5:])]
    cached = torch.cat([small(part, mask=mask, cache=cache) for part, mask in parts], 1)
    torch.testing.assert_close(cached, read, rtol=1e-4, atol=1e-4)


def test_sinks_take_weight_away(small, tokens):
    """One of −inf takes none; one far above all scores takes all, and the layer's attention adds nothing."""
    none = torch.full((LAYERS, HEADS), -torch.inf)
    torch.testing.assert_close(small(tokens, sinks=none), small(tokens), rtol=1e-4, atol=1e-4)
    all_of_it, seen = none.clone(), {}
    all_of_it[1] = 1e4
    small(tokens, sinks=all_of_it, watch=lambda layer, name, x: seen.setdefault((layer, name), x))
    assert not seen[1, "attention"].any()
    assert all(seen[i, "attention"].any() for i in (0, 2))
    with pytest.raises(ShapeError, match=r"sinks has shape \(4,\): expected \(n_layers, n_heads\) = \(3, 4\)"):
        small(tokens, sinks=none[0])


def test_what_is_watched(small, tokens):
    """Every name for every layer in order, with its shape; what is added to x is what was watched."""
    seen = []
    small(tokens, watch=lambda layer, name, x: seen.append((layer, name, x.clone())))
    assert [(layer, name) for layer, name, _ in seen] == [(i, name) for i in range(LAYERS) for name in WATCHED]
    shapes = {
        "q": (2, HEADS, T, HEAD_DIM), "k": (2, KV_HEADS, T, HEAD_DIM), "v": (2, KV_HEADS, T, HEAD_DIM),
        "heads": (2, HEADS, T, HEAD_DIM), "attention": (2, T, WIDTH), "mlp": (2, T, WIDTH), "x": (2, T, WIDTH),
    }  # fmt: skip
    assert all(x.shape == shapes[name] for _, name, x in seen)
    found = {(layer, name): x for layer, name, x in seen}
    x = small.embedding[tokens]
    for i in range(LAYERS):
        x = x + found[i, "attention"] + found[i, "mlp"]
        torch.testing.assert_close(x, found[i, "x"], rtol=1e-5, atol=1e-5)
        x = found[i, "x"]
        by_hand = merge_heads(found[i, "heads"]) @ small.layers[i].o_proj.mT
        torch.testing.assert_close(by_hand, found[i, "attention"], rtol=1e-5, atol=1e-5)


def test_a_head_that_is_off_adds_nothing(small, tokens):
    """Its columns of o_proj set to 0 do the same; the others and the layers before are as they were."""
    off = {(1, 2), (2, 0)}
    seen = {}
    logits = small(tokens, heads_off=off, watch=lambda layer, name, x: seen.setdefault((layer, name), x))
    assert not seen[1, "heads"][:, 2].any()
    assert seen[1, "heads"][:, [0, 1, 3]].abs().min() > 0
    whole = small(tokens)
    assert not torch.allclose(whole, logits, atol=1e-2)
    kept = [(layer, layer.out.clone()) for layer in small.layers]
    try:
        for i, head in off:
            small.layers[i].o_proj[:, head * HEAD_DIM : (head + 1) * HEAD_DIM] = 0
        torch.testing.assert_close(small(tokens), logits, rtol=1e-5, atol=1e-5)
    finally:
        for layer, out in kept:
            layer.out.copy_(out)
    torch.testing.assert_close(small(tokens, heads_off=set()), whole, rtol=0, atol=0)


def test_each_sequence_can_have_heads_of_its_own_off(small, tokens):
    """Three variants of one sequence in a batch, from the layer where they part, are the three one by one."""
    seen = {}
    small(tokens[:1], watch=lambda layer, name, x: seen.setdefault((layer, name), x))
    off = torch.zeros(3, LAYERS, HEADS, dtype=torch.bool)
    off[1, 1, 2] = off[2, 1, 3] = off[2, 2, 0] = True
    together = small.from_layer(1, seen[0, "x"].expand(3, -1, -1), heads_off=off)
    for variant, pairs in enumerate(([], [(1, 2)], [(1, 3), (2, 0)])):
        alone = small.hidden(tokens[:1], heads_off=pairs)
        torch.testing.assert_close(together[variant : variant + 1], alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[1], together[2], atol=1e-2)


def test_attention_weights_are_what_the_heads_average_by(small, tokens):
    """Rows sum to 1, no future, and weights times v are the heads' output; (t,) is (1, t)."""
    seen = {}
    small(tokens[:1], watch=lambda layer, name, x: seen.setdefault((layer, name), x))
    weights = small.attention_weights(tokens[0])
    assert weights.shape == (LAYERS, HEADS, T, T)
    torch.testing.assert_close(weights.sum(-1), torch.ones(LAYERS, HEADS, T))
    assert not weights.triu(1).any()
    for i in range(LAYERS):
        v = seen[i, "v"].repeat_interleave(HEADS // KV_HEADS, dim=1)
        torch.testing.assert_close(weights[i] @ v[0], seen[i, "heads"][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(small.attention_weights(tokens[:1]), weights, rtol=0, atol=0)
    with pytest.raises(ShapeError, match=r"2 sequences \(axis b\): expected 1"):
        small.attention_weights(tokens)


def test_other_files_of_the_kind(tmp_path, tokens):
    """A head of its own, half precision in the file or in memory, quantised numbers."""
    untied = SmolLM2.load(write(tmp_path / "untied.gguf", tied=False))
    assert untied.embedding.data_ptr() != untied.head.data_ptr()
    assert not torch.allclose(untied.head.mT, untied.embedding, atol=0.1)
    assert untied(tokens).shape == (2, T, len(TOKENS))
    half = SmolLM2.load(write(tmp_path / "half.gguf", kind=gguf.GGMLQuantizationType.F16), dtype=torch.bfloat16)
    assert half(tokens).dtype == torch.bfloat16
    quantised = SmolLM2.load(write(tmp_path / "q.gguf", kind=gguf.GGMLQuantizationType.Q8_0))
    whole = SmolLM2.load(write(tmp_path / "whole.gguf"))
    apart = (quantised(tokens) - whole(tokens)).abs().max() / whole(tokens).abs().max()
    assert 0 < float(apart) < 0.2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"general__architecture": "qwen2"}, r"general\.architecture is 'qwen2': expected 'llama'"),
        ({"llama__rope__scaling__type": "yarn"}, r"llama\.rope\.scaling\.type is 'yarn': expected 'none'"),
        ({"llama__rope__dimension_count": 4}, r"dimension_count is 4: expected the whole head_dim 8"),
        (
            {"more": ("blk.0.attn_q.bias", "rope_freqs.weight")},
            r"has tensors that a plain Llama does not: blk\.0\.attn_q",
        ),
    ],
)
def test_models_with_other_parts_are_refused(tmp_path, changed, said):
    """Rather than read without them."""
    with pytest.raises(ValueError, match=said):
        SmolLM2.load(write(tmp_path / "other.gguf", **changed))


def test_wrong_calls_are_refused(small, tokens):
    """Axes, dtypes, tokens, heads, caches: each named."""
    with pytest.raises(ShapeError, match="tokens has"):
        small(tokens[0])
    with pytest.raises(DTypeError, match=r"tokens has dtype torch\.float32"):
        small(tokens.float())
    with pytest.raises(ValueError, match=f"token {len(TOKENS)} is outside the vocabulary"):
        small(torch.full((1, 1), len(TOKENS)))
    with pytest.raises(ValueError, match=r"heads_off has \(0, 4\): expected a layer below 3 and a head below 4"):
        small(tokens, heads_off={(0, HEADS)})
    with pytest.raises(ValueError, match=r"heads_off has \(-1, 0\)"):
        small(tokens, heads_off={(-1, 0)})
    with pytest.raises(ShapeError, match=r"heads_off is torch\.bool \(2, 3, 5\): expected bool .* = \(b, 3, 4\)"):
        small(tokens, heads_off=torch.zeros(2, LAYERS, HEADS + 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="first is 3: expected a layer below 3"):
        small.from_layer(LAYERS, small.embedding[tokens])
    with pytest.raises(ValueError, match="2 caches for 3 layers"):
        small(tokens, cache=small.new_cache()[:2])
    assert small.config.end == END
    assert small.config.d_ff == D_FF


def test_copies_in_large_pages_are_copies(monkeypatch):
    """Of any layout and dtype, contiguous and writable; and where the system knows no such pages."""
    x = torch.randn(7, 5).mT
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        copy = in_large_pages(x.to(dtype))
        assert copy.is_contiguous()
        torch.testing.assert_close(copy, x.to(dtype), rtol=0, atol=0)
        copy[0, 0] = 3
    assert in_large_pages(torch.empty(0, 3)).shape == (0, 3)
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert in_large_pages(x).is_contiguous()
    torch.testing.assert_close(in_large_pages(x), x, rtol=0, atol=0)


def test_only_distances_between_positions_matter_and_a_scaling_divides_them(small, tokens):
    """Positions moved by 1000 give the same logits, spread by 4 others; a linear scaling by 4 takes the spread back."""
    plain, at = small(tokens), torch.arange(T)
    torch.testing.assert_close(small(tokens, positions=at + 1000), plain, rtol=1e-3, atol=1e-3)
    spread = small(tokens, positions=4 * at)
    assert float((spread - plain).abs().max()) > 1e-2
    slowed = small.with_scaling(LinearScaling(4))
    torch.testing.assert_close(slowed(tokens, positions=4 * at), plain, rtol=1e-5, atol=1e-5)
    assert small.config.scaling is None
    assert slowed.layers[0].qkv.data_ptr() == small.layers[0].qkv.data_ptr()


def test_given_positions_serve_a_cache_too(small, tokens):
    """Two calls with a gap between their positions give what one call with the same positions gives."""
    at = torch.arange(T)
    at[5:] += 700
    cache = small.new_cache()
    parts = [small(tokens[:, s], positions=at[s], cache=cache) for s in (slice(0, 5), slice(5, T))]
    torch.testing.assert_close(torch.cat(parts, 1), small(tokens, positions=at), rtol=1e-4, atol=1e-4)
