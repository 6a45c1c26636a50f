"""`register`, what the names mean that it gives, and everything that is refused rather than left out."""

import ast
import importlib.util
import inspect
import pathlib
import subprocess
import sys

import pytest
import torch
from transformers import AttentionInterface, BloomConfig, BloomForCausalLM, masking_utils

import attnbook.api
import attnbook.integrations.transformers as integration
from attnbook.errors import BackendUnavailable, ShapeError
from attnbook.integrations.lazy_mask import LazyMask, Words
from attnbook.integrations.transformers import register
from attnbook.integrations.transformers_attention import attention_forward
from tests.integrations.small_models import in_float64, model, padded, tokens
from tests.tolerance import as_float64, assert_right


def test_the_example_of_the_module_runs():
    """The five lines at the top of the module make a model that uses attnbook."""
    example = integration.__doc__.split("```python\n")[1].split("```")[0]
    names = {}
    exec(compile(example, "example", "exec"), names)
    made = names["model"]
    assert made.config._attn_implementation == "attnbook"
    assert made(tokens(1, 5)).logits.shape == (1, 5, 97)


def in_a_fresh_interpreter(source):
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)


def test_the_package_needs_neither_transformers_nor_torch():
    """Importing attnbook.integrations, and the module that registers, loads neither."""
    done = in_a_fresh_interpreter(
        "import sys; sys.modules.update(transformers=None, torch=None)\n"
        "import attnbook.integrations, attnbook.integrations.transformers\n"
    )
    assert done.returncode == 0, done.stderr


def test_without_transformers_the_error_says_what_to_install():
    """One line, with the command."""
    done = in_a_fresh_interpreter(
        "import sys; sys.modules.update(transformers=None)\n"
        "import attnbook.integrations.transformers as ours\n"
        "ours.register()\n"
    )
    assert done.stderr.endswith("ImportError: transformers is not installed: pip install 'attnbook[hf]'\n")


def test_too_old_a_transformers_is_named_with_its_version(monkeypatch):
    """Before 5.4 mask functions were handed something else; before 4.53 there was no module for them."""

    def sdpa_mask(batch_size, cache_position, kv_length):
        """As in 5.3."""

    # Not the module that was imported above: transformers puts another in its place when it loads its first model.
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "5.3.0")
    with monkeypatch.context() as patch:
        patch.setattr(masking_utils, "sdpa_mask", sdpa_mask)
        with pytest.raises(
            ImportError, match=r"^transformers is 5\.3\.0: expected 5\.4 or newer, pip install -U 'attn"
        ):
            register()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "transformers.masking_utils", None)
        patch.delattr(sys.modules["transformers"], "masking_utils", raising=False)
        with pytest.raises(ImportError, match=r"^transformers is 5\.3\.0: expected 5\.4 or newer"):
            register()


@pytest.mark.parametrize("name", ["", "eager", "paged", "flash_of_mine", "my-sdpa", "me/kernel", "paged|x", "a:b"])
def test_a_name_with_a_meaning_of_its_own_is_refused(name):
    """transformers reads some names."""
    with pytest.raises(
        ValueError, match=r"^name is '.*': transformers gives 'eager', 'paged' and names that contain 'flash', "
    ):
        register(name)


def test_a_name_that_is_taken_is_refused():
    """Other implementations are not replaced, our own are."""
    AttentionInterface.register("somebody-else", print)
    with pytest.raises(
        ValueError, match=r"^name is 'somebody-else': transformers has that attention implementation al"
    ):
        register("somebody-else")
    assert AttentionInterface._global_mapping["somebody-else"] is print
    register("attnbook-twice", impl="reference")
    register("attnbook-twice", impl="tiled")
    assert AttentionInterface._global_mapping["attnbook-twice"].keywords == {"impl": "tiled"}


def test_an_unknown_implementation_is_refused_at_once():
    """Not at the first forward."""
    with pytest.raises(ValueError, match="impl is 'flex': expected one of"):
        register("attnbook-flex", impl="flex")
    assert "attnbook-flex" not in AttentionInterface._global_mapping


def test_the_implementation_is_the_one_that_was_asked_for():
    """An explicit choice never falls back: torch's attention has no sinks, and says so."""
    register("attnbook-torch", impl="sdpa")
    with pytest.raises(BackendUnavailable, match="sdpa has no sinks"):
        model("gpt_oss", "attnbook-torch")(tokens(1, 5))
    register("attnbook-reference", impl="reference")
    ids = tokens(2, 7)
    one, other = (model("gpt_oss", name)(ids).logits for name in ("attnbook-reference", "attnbook-tiled"))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_implementation_can_be_changed_later():
    """`set_attn_implementation` on a model that has another."""
    made, ids = model("mistral", "eager"), tokens(2, 17)
    eager = made(ids).logits
    made.set_attn_implementation("attnbook")
    ours = made(ids).logits
    made.set_attn_implementation("broken-window")
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert (made(ids).logits - eager).abs().max() > 0.1


class Module(torch.nn.Module):
    """What an attention module of a model is to us."""

    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


def inputs(t_q=5, t_kv=5, *, n_heads=6, n_kv_heads=2, b=2):
    generator = torch.Generator().manual_seed(2)
    shapes = ((b, n_heads, t_q, 7), (b, n_kv_heads, t_kv, 7), (b, n_kv_heads, t_kv, 3))
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)


def attend(module, q, k, v, mask=None, **options):
    return attention_forward(module, q, k, v, mask, impl="auto", **options)


def scores(q, k):
    return q @ k.repeat_interleave(3, dim=1).mT / 7**0.5


def average(score, v):
    return (score.softmax(-1) @ v.repeat_interleave(3, dim=1)).transpose(1, 2)


def test_the_output_has_heads_after_positions_and_is_contiguous():
    """(b, t, h, d_v), which models reshape to (b, t, h · d_v) without a copy."""
    q, k, v = inputs()
    out, weights = attend(Module(is_causal=False), q, k, v)
    assert weights is None
    assert out.shape == (2, 5, 6, 3)
    assert out.is_contiguous()
    torch.testing.assert_close(out, average(scores(q, k), v))


def test_without_a_mask_the_call_or_the_module_says_what_is_causal():
    """The keyword wins over the attribute; a window counts where it is causal; one query sees everything."""
    q, k, v = inputs()
    hidden = ~torch.ones(5, 5).tril().bool()
    causal, full = average(scores(q, k).masked_fill(hidden, -torch.inf), v), average(scores(q, k), v)
    torch.testing.assert_close(attend(Module(is_causal=True), q, k, v)[0], causal)
    torch.testing.assert_close(attend(Module(is_causal=True), q, k, v, is_causal=False)[0], full)
    torch.testing.assert_close(attend(Module(is_causal=False), q, k, v, is_causal=True)[0], causal)
    torch.testing.assert_close(attend(Module(is_causal=False), q, k, v, sliding_window=1)[0], full)
    own = v.repeat_interleave(3, dim=1).transpose(1, 2)
    torch.testing.assert_close(attend(Module(is_causal=True), q, k, v, sliding_window=1)[0], own)
    for module in (Module(), Module(is_causal=True)):
        torch.testing.assert_close(attend(module, q[:, :, 4:], k, v)[0], full[:, 4:])


def test_without_a_mask_nothing_is_guessed():
    """A module that says nothing, or several causal queries against a cache of another length."""
    q, k, v = inputs(3, 5)
    with pytest.raises(ValueError, match=r"^Module passes no mask and says nothing about is_causal: attnbook does not"):
        attend(Module(), q, k, v)
    with pytest.raises(ValueError, match=r"^Module passes no mask for 3 causal queries against 5 keys"):
        attend(Module(is_causal=True), q, k, v)


def test_a_mask_of_ones_own_is_used_as_it_is():
    """Booleans, or numbers to be added, of which −inf and the smallest number hide; is_causal counts no more."""
    q, k, v = inputs()
    allowed = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(1)) < 0.6
    allowed |= torch.eye(5, dtype=torch.bool)
    expected = average(scores(q, k).masked_fill(~allowed, -torch.inf), v)
    for hidden in (-torch.inf, torch.finfo(torch.float32).min):
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, hidden)
        torch.testing.assert_close(attend(Module(is_causal=True), q, k, v, mask)[0], expected)
    torch.testing.assert_close(attend(Module(is_causal=True), q, k, v, allowed)[0], expected)


@pytest.mark.parametrize("kind", ["none", "boolean", "added", "smallest"])
def test_a_bias_is_added_and_hides_nothing_that_is_seen(kind):
    """`position_bias` with every kind of mask; what is hidden stays hidden under a positive bias."""
    q, k, v = inputs()
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(1, 6, 5, 5, generator=generator, dtype=torch.float64).abs()
    allowed = torch.ones(5, 5).tril().bool().expand(2, 1, 5, 5)
    numbers = torch.randn(2, 1, 5, 5, generator=generator, dtype=torch.float64)
    mask = {
        "none": None,
        "boolean": allowed,
        "added": numbers,
        "smallest": torch.zeros_like(numbers).masked_fill(~allowed, torch.finfo(torch.float64).min),
    }[kind]
    expected = scores(q, k) + bias
    if kind == "added":
        expected = expected + numbers
    elif kind != "none":
        expected = expected.masked_fill(~allowed, -torch.inf)
    out, _ = attend(Module(is_causal=False), q, k, v, mask, position_bias=bias)
    torch.testing.assert_close(out, average(expected, v))
    assert not torch.allclose(out, attend(Module(is_causal=False), q, k, v, mask)[0])


def test_learned_queries_of_batch_one_serve_every_row():
    """As broadcasting does in eager."""
    q, k, v = inputs()
    out, _ = attend(Module(is_causal=False), q[:1], k, v)
    torch.testing.assert_close(out, average(scores(q[:1], k), v))


def test_a_mask_that_does_not_fit_is_refused():
    """Two axes may be a padding mask, or rows and columns: not guessed. A wrong length is named."""
    q, k, v = inputs()
    with pytest.raises(ShapeError, match=r"^mask has 2 axes \(5, 5\): expected 4, \(b, h, t_q, t_kv\)"):
        attend(Module(), q, k, v, torch.ones(5, 5, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"^mask has length 4 along axis t_kv but Module has 5 keys"):
        attend(Module(), q, k, v, torch.ones(2, 1, 5, 4, dtype=torch.bool))


def test_dropout_is_refused_while_training_only():
    """It would be left out in silence."""
    made = model("llama", "attnbook", attention_dropout=0.1)
    made(tokens(1, 5))
    with pytest.raises(ValueError, match=r"^LlamaAttention asks for attention dropout 0.1 while training"):
        made.train()(tokens(1, 5))
    model("llama", "attnbook").train()(tokens(1, 5))
    attend(Module(is_causal=True).eval(), *inputs(), dropout=0.1)  # some modules pass it all the same


def test_weights_are_not_there_to_be_returned():
    """`output_attentions` is an error, not a tuple of None."""
    with pytest.raises(
        ValueError, match=r"^LlamaAttention asks for output_attentions: attnbook never holds the weights"
    ):
        model("llama", "attnbook")(tokens(1, 5), output_attentions=True)


def test_options_that_change_the_scores_and_are_not_known_are_refused():
    """By name, and sinks also where the module has some and passes none."""
    q, k, v = inputs()
    for option in ("sinks", "head_mask", "alibi", "attention_bias"):
        with pytest.raises(ValueError, match=rf"^Module passes {option}, which attnbook does not know"):
            attend(Module(is_causal=True), q, k, v, **{option: torch.zeros(6)})
    with pytest.raises(ValueError, match=r"^Module has sinks and does not pass them as s_aux"):
        attend(Module(is_causal=True, sinks=torch.zeros(6)), q, k, v)
    attend(Module(is_causal=True, sinks=None), q, k, v, sinks=None, use_cache=False)


def test_no_attention_of_transformers_has_an_option_that_is_unknown_here():
    """Every parameter of every eager attention function of the installed release is one that we use or refuse."""
    known = set(inspect.signature(attention_forward).parameters) | {"sinks"}
    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent / "models"
    found = {}
    for path in folder.glob("*/modeling_*.py"):
        for rest in path.read_text(encoding="utf-8").split("\ndef eager_attention_forward(")[1:]:
            function = ast.parse("def eager_attention_forward(" + rest.split("\n\n\n")[0]).body[0]
            for argument in [*function.args.args, *function.args.kwonlyargs]:
                found.setdefault(argument.arg, set()).add(path.parent.name)
    assert len(found["query"]) > 100
    assert {name: models for name, models in found.items() if name not in known} == {}


def test_a_bias_with_lengths_of_packed_sequences_is_refused():
    """The lengths would have to cut the bias too."""
    q, k, v = inputs()
    lengths, bias = torch.tensor([0, 3, 7, 10], dtype=torch.int32), torch.zeros(1, 6, 5, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^cu_seq_lens_q and position_bias together are not known to attnbook"):
        attend(Module(is_causal=True), q, k, v, position_bias=bias, cu_seq_lens_q=lengths)


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_autocast_gives_its_dtype_and_is_as_near_as_eager(family):
    """Inside torch.autocast, the sinks too; whatever the model leaves in float32."""
    ids = tokens(3, 17)
    with in_float64():
        exact = model(family, "eager")(ids).logits
    with torch.autocast("cpu", torch.bfloat16):
        plain = model(family, "eager", torch.float32)(ids).logits
        out = model(family, "attnbook", torch.float32)(ids).logits
    assert out.dtype == plain.dtype == torch.bfloat16
    assert_right(out, as_float64(exact), plain)


def test_recomputing_activations_changes_nothing(monkeypatch):
    """Checkpointing hands the mask through torch's autograd; logits and gradients are the same."""
    ids, mask = tokens(2, 17), padded(2, 17, "left")
    results, calls, attention = [], [], attnbook.api.attention
    monkeypatch.setattr(attnbook.api, "attention", lambda *args, **kw: calls.append(0) or attention(*args, **kw))
    for recompute in (False, True):
        made = model("mistral", "attnbook").train()
        if recompute:  # the name changed within transformers 5
            getattr(made, "activation_checkpointing_enable", made.gradient_checkpointing_enable)()
        out = made(ids, attention_mask=mask, use_cache=False).logits[mask.bool()]
        out.square().sum().backward()
        results.append([out.detach(), *(weight.grad for weight in made.parameters())])
    assert len(calls) == 2 + 4  # each of two layers once, then twice
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_compiled_model_is_one_graph():
    """torch.compile with fullgraph, padding and a window: masks are booleans while it traces."""
    ids, mask = tokens(2, 17), padded(2, 17, "left")
    made = model("mistral", "attnbook")
    with torch.no_grad():
        expected = made(ids, attention_mask=mask, use_cache=False).logits
        compiled = torch.compile(made, backend="eager", fullgraph=True)
        out = compiled(ids, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(out[mask.bool()], expected[mask.bool()], rtol=1e-6, atol=1e-6)


def test_a_bias_does_not_lift_a_row_that_is_hidden_whole():
    """A smallest float32 that is added to a float64 bias is no smallest number any more; the row is 0 all the same."""
    q, k, v = inputs()
    mask = torch.zeros(2, 1, 5, 5)
    mask[0, :, 3] = torch.finfo(torch.float32).min
    out, _ = attend(Module(is_causal=False), q, k, v, mask, position_bias=torch.ones(1, 6, 5, 5, dtype=torch.float64))
    assert (out[0, 3] == 0).all()
    assert (out[1, 3] != 0).all()


def test_a_bias_is_cut_to_the_keys_that_a_cache_holds():
    """The mask says that the last of five places is empty; a bias for it changes nothing."""
    q, k, v = inputs(2, 5)
    bias = torch.randn(1, 6, 2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    words = Words(is_causal=True, window=None, t_kv=4, keys=None)
    mask = LazyMask(words, lambda: None, shape=(2, 1, 2, 5), device="cpu")
    hidden = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0]]).bool()
    expected = average((scores(q, k[:, :, :4]) + bias[..., :4]).masked_fill(hidden, -torch.inf), v[:, :, :4])
    torch.testing.assert_close(attend(Module(), q, k, v, mask, position_bias=bias)[0], expected)


def test_a_model_that_attends_by_itself_is_refused():
    """Bloom asks for masks and adds them to its scores: booleans would be added as 1 and 0."""
    config = BloomConfig(vocab_size=97, hidden_size=42, n_layer=1, n_head=3)
    config._attn_implementation = "attnbook"
    with pytest.raises(ValueError, match=r"modeling_bloom has an attention of its own and calls no other: use 'eager'"):
        BloomForCausalLM(config)(tokens(1, 5))
