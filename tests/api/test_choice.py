"""Which implementation runs: the one that was named or an error, and with "auto" the one that `explain` says."""

import importlib
import re

import numpy as np
import pytest
import torch

from attnbook import attention, explain
from attnbook.api import KVCache, PagedKVCache, attend, attention_varlen, moe
from attnbook.errors import BackendUnavailable
from tests.api.samples import IMPLS, OPTIONS, D, inputs, options_of

DOOR, VARLEN, SHORTCUT, SDPA, FLASH, MOE = (
    importlib.import_module(f"attnbook.api.{name}")
    for name in ("attention", "varlen", "shortcut", "sdpa", "flash", "moe")
)


PLACES = [
    (DOOR.reference, "attention", "reference"),
    (DOOR.tiled, "attention", "tiled"),
    (DOOR.tiled, "decode", "tiled"),
    (SHORTCUT, "scaled_dot_product_attention", "sdpa"),
    (SDPA, "scaled_dot_product_attention", "sdpa"),
    (FLASH, "forward", "sdpa"),
    (VARLEN.reference, "attention_varlen", "reference"),
    (VARLEN, "tiled_varlen", "tiled"),
    (VARLEN.packed_sdpa, "run", "sdpa"),
    (MOE, "reference_moe", "reference"),
    (MOE, "tiled_moe", "tiled"),
]
"""Where the door finds each implementation."""


@pytest.fixture
def reached(monkeypatch):
    """A function that makes a call and says which implementations it reached, in order: the last gave the result."""
    names = []

    def noting(name, run):
        def noted(*args, **options):
            names.append(name)
            return run(*args, **options)

        return noted

    for place, attribute, name in PLACES:
        monkeypatch.setattr(place, attribute, noting(name, getattr(place, attribute)))

    def reached(call, *args, **options):
        names.clear()
        call(*args, **options)
        return list(names)

    return reached


@pytest.mark.parametrize("impl", ["reference", "tiled", "sdpa"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_named_implementation_runs_or_raises(reached, impl, name):
    """No other one is ever reached."""
    if impl == "sdpa" and name in ("softcap", "sinks", "all"):
        with pytest.raises(BackendUnavailable):
            attention(*inputs(), impl=impl, **options_of(name))
    else:
        assert reached(attention, *inputs(), impl=impl, **options_of(name)) == [impl]


def test_named_implementations_of_the_others(reached):
    """Packed sequences and experts: the same."""
    packed = [torch.ones(5, 2, 3)] * 3
    matrices = [torch.ones(shape) for shape in ((2, 3), (2, 3, 5), (2, 3, 5), (2, 5, 3))]
    for impl in ("reference", "tiled"):
        assert reached(attention_varlen, *packed, [0, 5], [0, 5], impl=impl) == [impl]
        assert reached(moe, torch.ones(7, 3), *matrices, top_k=1, impl=impl) == [impl]
    assert reached(moe, torch.ones(7, 3), *matrices, top_k=1) == ["tiled"]


def big(*shape, **how):
    return torch.zeros(*shape, **how)


half = {"dtype": torch.bfloat16}
AUTO = {
    "nothing special": ("sdpa", (big(1, 2, 67, 8),) * 3, {}),
    "few keys": ("sdpa", (big(1, 2, 5, 8),) * 3, {}),
    "causal": ("sdpa", (big(1, 2, 67, 8),) * 3, {"is_causal": True}),
    "causal, with gradients": ("sdpa", (big(1, 2, 67, 8, requires_grad=True),) * 3, {"is_causal": True}),
    "one query, causal": ("sdpa", (big(1, 2, 1, 8), big(1, 2, 67, 8), big(1, 2, 67, 8)), {"is_causal": True}),
    "some queries, causal": ("sdpa", (big(1, 2, 5, 8), big(1, 2, 67, 8), big(1, 2, 67, 8)), {"is_causal": True}),
    "grouped heads": ("sdpa", (big(1, 4, 67, 8), big(1, 2, 67, 8), big(1, 2, 67, 8)), {}),
    "a mask": ("sdpa", (big(1, 2, 67, 8),) * 3, {"mask": big(67, 67, dtype=torch.bool)}),
    "a parameter": ("sdpa", (torch.nn.Parameter(big(1, 2, 67, 8)),) * 3, {"is_causal": True}),
    "a window": ("tiled", (big(1, 2, 67, 8),) * 3, {"is_causal": True, "window": 3}),
    "a cap": ("tiled", (big(1, 2, 67, 8),) * 3, {"softcap": 3.0}),
    "slopes": ("tiled", (big(1, 2, 67, 8),) * 3, {"alibi_slopes": big(2)}),
    "sinks": ("tiled", (big(1, 2, 67, 8),) * 3, {"sinks": big(2)}),
    "an lse": ("sdpa", (big(1, 2, 67, 8),) * 3, {"return_lse": True}),
    "an lse of a causal call": ("sdpa", (big(1, 2, 67, 8),) * 3, {"return_lse": True, "is_causal": True}),
    "an lse and a NaN": ("tiled", (big(1, 2, 67, 8) + torch.nan,) * 3, {"return_lse": True}),
    "an lse in half precision": ("tiled", (big(1, 2, 67, 8, **half),) * 3, {"return_lse": True}),
    "a mask with a gradient": ("tiled", (big(1, 2, 67, 8),) * 3, {"mask": big(67, 67, requires_grad=True)}),
    "narrow values": ("tiled", (big(1, 2, 67, 8), big(1, 2, 67, 8), big(1, 2, 67, 5)), {}),
    "a NaN that causality hides": ("tiled", (big(1, 2, 67, 8), big(1, 2, 67, 8), big(1, 2, 67, 8) + torch.nan),
                                   {"is_causal": True}),
    "an inf that causality hides": ("tiled", (big(1, 2, 67, 8) + torch.inf,) * 3, {"is_causal": True}),
    "a NaN that all see": ("sdpa", (big(1, 2, 67, 8) + torch.nan,) * 3, {}),
    "a NaN that few keys would lose": ("tiled", (big(1, 2, 5, 8) + torch.nan,) * 3, {}),
    "many queries at the end of more keys": ("tiled", (big(1, 1, 1031, 2), big(1, 1, 2053, 2), big(1, 1, 2053, 2)),
                                             {"is_causal": True}),
    "one query, half precision": ("tiled", (big(1, 2, 1, 8, **half), big(1, 2, 521, 8, **half),
                                            big(1, 2, 521, 8, **half)), {}),
    "one query, grouped heads, many keys": ("tiled", (big(1, 32, 1, 128), big(1, 8, 2053, 128), big(1, 8, 2053, 128)),
                                            {}),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTO)
def test_what_explain_says_is_what_runs(reached, name):
    """For every reason to choose one or the other."""
    impl, tensors, options = AUTO[name]
    said = explain(*tensors, **options)
    assert said.impl == impl
    assert set(said.rejected) == {"reference", "tiled", "sdpa", "triton"} - {impl}
    *before, last = reached(attention, *tensors, **options)
    assert last == impl
    # A short call looks at its result for a NaN, instead of at its input: then torch's was tried and thrown away.
    assert before == (["sdpa"] if name.endswith(("that causality hides", "and a NaN")) else [])


def test_explain_for_packed_sequences(reached):
    """By position or by name; what it says is what runs."""
    packed = [torch.ones(5, 2, 3)] * 3
    ends = torch.tensor([0, 2, 5])
    assert explain(*packed, ends, ends, is_causal=True) == explain(*packed, cu_seqlens_q=ends, cu_seqlens_k=ends)
    for impl in ("auto", "reference", "tiled", "sdpa"):
        said = explain(*packed, ends, ends, impl=impl)
        assert said.impl == {"auto": "sdpa"}.get(impl, impl)
        assert reached(attention_varlen, *packed, ends, ends, impl=impl)[-1] == said.impl
    windowed = explain(*packed, ends, ends, is_causal=True, window=2)
    assert (windowed.impl, windowed.rejected["sdpa"]) == ("tiled", "sdpa takes packed sequences without window only")
    assert explain(*packed, ends, ends, impl="tiled").rejected["sdpa"] == "it can, and another was asked for by name"
    with pytest.raises(TypeError, match="explain takes cu_seqlens_q and cu_seqlens_k, or neither"):
        explain(*packed, ends)


def test_an_explanation_can_be_read():
    """One line for what runs, one for each that does not."""
    lines = str(explain(*inputs(), is_causal=True, window=5)).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["tiled", "runs:"], ["reference", "not:"], ["sdpa", "not:"], ["triton", "not:"],
    ]  # fmt: skip
    assert "a dense mask for the window" in lines[0]
    named = explain(*inputs(d_v=D), impl="reference")
    assert (named.impl, named.why) == ("reference", "it was asked for by name")
    assert named.rejected["sdpa"].startswith("it can")
    assert named.rejected["tiled"] == "it can, and is not faster here than torch's own"
    window = explain(*inputs(), is_causal=True, window=5, impl="reference")  # the tiles are faster at this
    assert window.rejected["tiled"] == "it can, and another was asked for by name"


def test_explain_raises_what_the_call_would():
    """A wrong option, an implementation that lacks something, an option that does not exist."""
    with pytest.raises(ValueError, match="window is 3 but is_causal is False"):
        explain(*inputs(), window=3)
    with pytest.raises(BackendUnavailable, match="sdpa has no sinks"):
        explain(*inputs(), impl="sdpa", sinks=torch.zeros(6))
    with pytest.raises(TypeError, match="attention has no option causal; it has mask, is_causal, window"):
        explain(*inputs(), causal=True)


MISSING = [
    ({"impl": "sdpa", "softcap": 3.0}, "sdpa has no softcap"),
    ({"impl": "sdpa", "sinks": torch.zeros(6)}, "sdpa has no sinks"),
    ({"impl": "sdpa", "return_lse": True}, "sdpa returns no lse"),
    ({"impl": "triton"}, "triton: the tensors are on device cpu, and the kernels need an NVIDIA GPU"),
]


@pytest.mark.parametrize(("options", "text"), MISSING)
def test_what_is_missing_is_said(options, text):
    """BackendUnavailable, and nothing is calculated by another."""
    with pytest.raises(BackendUnavailable, match=re.escape(text)):
        attention(*inputs(), **options)


def test_what_is_missing_for_the_others():
    """Packed sequences, experts and caches say the same; the operators, too, called by themselves or traced."""
    text = "triton: the tensors are on device cpu, and the kernels need an NVIDIA GPU; Triton's interpreter runs them"
    q, k, v = inputs()
    packed = [torch.ones(5, 2, 3)] * 3
    cache, pages = KVCache(), PagedKVCache(page_size=4)
    cache.append(k, v)
    pages.append(k, v)
    ends = torch.tensor([0, 5])
    no_options = (None, None, None, False, None, None, None, "triton")
    matrices = [torch.ones(shape) for shape in ((2, 3), (2, 3, 5), (2, 3, 5), (2, 5, 3))]
    calls = (
        lambda: attention_varlen(*packed, [0, 5], [0, 5], impl="triton"),
        lambda: moe(torch.ones(7, 3), *matrices, top_k=1, impl="triton"),
        lambda: attend(q[:, :, -1:], cache, impl="triton"),
        lambda: attend(q[:, :, -1:], pages, impl="triton"),
        lambda: torch.ops.attnbook.attention(q, k, v, *no_options),
        lambda: torch.ops.attnbook.attention_varlen(*packed, ends, ends, *no_options),
        lambda: torch.ops.attnbook.moe_experts(
            torch.ones(7, 3), torch.zeros(7, 1, dtype=torch.int64), torch.ones(7, 1), *matrices[1:], "triton"
        ),
    )
    for call in calls:
        with pytest.raises(BackendUnavailable, match=re.escape(text)):
            call()


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
def test_what_is_missing_is_said_while_compiling():
    """The compiler's error holds ours, and nothing is compiled."""
    graphs, ends = [], torch.tensor([0, 5])
    matrices = [torch.ones(shape) for shape in ((2, 3), (2, 3, 5), (2, 3, 5), (2, 5, 3))]
    for call, shape in (
        (lambda q: attention(q, q, q, impl="triton"), (1, 2, 5, 3)),
        (lambda q: attention_varlen(q, q, q, ends, ends, impl="triton"), (5, 2, 3)),
        (lambda x: moe(x, *matrices, top_k=1, impl="triton")[0], (7, 3)),
    ):
        torch._dynamo.reset()
        compiled = torch.compile(call, fullgraph=True, backend=lambda graph, tensors: graphs.append(graph))
        with pytest.raises(Exception, match="triton: the tensors are on device cpu, and the kernels need an NVIDIA"):
            compiled(torch.ones(shape))
    assert graphs == []


@pytest.mark.parametrize("call", [attention, attention_varlen])
def test_an_unknown_name(call):
    """All that exist are listed."""
    ends = [] if call is attention else [[0, 5], [0, 5]]
    tensors = [torch.ones(5, 2, 3)] * 3 if ends else inputs()
    text = "impl is 'flash': expected one of 'reference', 'tiled', 'sdpa', 'triton', 'auto'"
    for arrays in (tensors, [x.numpy() for x in tensors]):
        with pytest.raises(ValueError, match=text):
            call(*arrays, *ends, impl="flash")


def test_an_unknown_name_of_experts():
    """torch has no experts, so there is no "sdpa" among them."""
    with pytest.raises(ValueError, match="impl is 'sdpa': expected one of 'reference', 'tiled', 'triton', 'auto'"):
        moe(torch.ones(7, 3), *[torch.ones(1)] * 4, top_k=1, impl="sdpa")


@pytest.mark.parametrize("impl", IMPLS)
def test_numpy_arrays_are_for_the_reference(impl):
    """They run there by name or with "auto"; another name says that it needs tensors."""
    q, k, v = (x.numpy() for x in inputs(torch.float64))
    if impl in ("reference", "auto"):
        out = attention(q, k, v, is_causal=True, impl=impl)
        assert isinstance(out, np.ndarray)
        expected = attention(*(torch.from_numpy(x) for x in (q, k, v)), is_causal=True, impl="reference")
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-14)
        assert explain(q, k, v, impl=impl).impl == "reference"
    else:
        with pytest.raises(BackendUnavailable, match=f"{impl} needs torch tensors but q is a ndarray"):
            attention(q, k, v, impl=impl)


def test_numpy_arrays_packed():
    """Also packed."""
    q, k, v = (np.random.default_rng(1).standard_normal((5, 2, 3)) for _ in "qkv")
    out, lse = attention_varlen(q, k, v, [0, 2, 5], [0, 2, 5], return_lse=True)
    assert (out.shape, lse.shape) == ((5, 2, 3), (5, 2))
    with pytest.raises(BackendUnavailable, match="tiled needs torch tensors but q is a ndarray"):
        attention_varlen(q, k, v, [0, 5], [0, 5], impl="tiled")
