"""Attention with tiles copied by descriptor, as newer cards copy them: what pointers give, to the last bit."""

import dataclasses

import pytest
import torch

from attnbook.kernels.flash import (
    attention_backward,
    attention_forward,
    backward,
    forward,
    varlen_backward,
    varlen_forward,
)
from tests.kernels.backward_product import everything
from tests.kernels.device import DEVICE

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
DENSE = (1, 4, 2, 67, 75, 16, 24)
"""b, n_heads, n_kv_heads, t_q, t_kv, d, d_v: rows at multiples of 16 bytes, lengths that are multiples of no tile."""
LENGTHS = ([37, 0, 40, 5], [41, 3, 40, 0])
"""Of packed sequences: their queries and their keys. Each ends within a tile, and the next begins there."""
OPTIONS = {
    "bare": {},
    "causal": {"is_causal": True},
    "everything": {"is_causal": True, "window": 50, "softcap": 3.0, "alibi_slopes": True, "sinks": True, "mask": True},
}


BEYOND = {0: (), 1: (), 2: (1, 4), 3: (0, 1)}
"""Of out, lse, d_q, d_k and d_v what stays finite also in the sequence, where q, k, v or d_out is not."""


@pytest.fixture
def cut(monkeypatch):
    """Choose whether tiles are copied by descriptor; `cut.seen` says of each kernel that could whether they were."""
    chosen = {}

    def with_choice(function):
        def config(*sizes, **more):
            return dataclasses.replace(function(*sizes, **more), descriptors=chosen["descriptors"])

        return config

    def constants(*given, **more):
        found = prepare(*given, **more)
        if not more["again"]:
            seen.append(found[1]["HAS_DESCRIPTORS"])
        return found

    def launches(self):
        if "AGAIN" in self.constants:
            assert not (self.constants["AGAIN"] and self.constants["HAS_DESCRIPTORS"])
            seen.extend([] if self.constants["AGAIN"] else [self.constants["HAS_DESCRIPTORS"]])
        start(self)

    prepare, start, seen = forward.prepare, backward.Launch.start, []
    monkeypatch.setattr(forward, "forward_config", with_choice(forward.forward_config))
    for name in ("keys_config", "queries_config"):
        monkeypatch.setattr(backward, name, with_choice(getattr(backward, name)))
    monkeypatch.setattr(forward, "prepare", constants)
    monkeypatch.setattr(backward.Launch, "start", launches)

    def choose(*, descriptors):
        chosen["descriptors"] = descriptors
        seen.clear()

    choose.seen = seen
    return choose


def normal(*shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def guarded(x):
    """The same numbers, cut out of larger memory full of NaN, each row still at a multiple of 16 bytes."""
    memory = torch.full([size + 16 for size in x.shape], torch.nan, dtype=x.dtype, device=DEVICE)
    return memory[tuple(slice(8, -8) for _ in x.shape)].copy_(x)


def options_of(name, n_heads, t_q, t_kv):
    """The named options, with tensors where they say True."""
    tensors = {
        "alibi_slopes": normal(n_heads, seed=5).abs(),
        "sinks": normal(n_heads, seed=6),
        "mask": torch.where(normal(t_q, t_kv, seed=7) > 1, -torch.inf, normal(t_q, t_kv, seed=8)),
    }
    return {key: tensors[key] if value is True and key in tensors else value for key, value in OPTIONS[name].items()}


def dense(dtype, **options):
    """Output, lse and gradients of a dense call."""
    b, n_heads, n_kv_heads, t_q, t_kv, d, d_v = DENSE
    q, k, v, d_out = (
        guarded(normal(b, heads, t, size, seed=seed, dtype=dtype))
        for seed, (heads, t, size) in enumerate(
            ((n_heads, t_q, d), (n_kv_heads, t_kv, d), (n_kv_heads, t_kv, d_v), (n_heads, t_q, d_v))
        )
    )
    out, lse = attention_forward(q, k, v, **options)
    return [out, lse, *attention_backward(d_out, None, q, k, v, out, lse, **everything(options))]


def ends(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32, device=DEVICE).cumsum(0, dtype=torch.int32)


def packed_inputs(dtype):
    """q, k, v and the gradient of the output, (t, h, d), of sequences with LENGTHS."""
    t_q, t_kv = map(sum, LENGTHS)
    shapes = ((t_q, 4, 16), (t_kv, 2, 16), (t_kv, 2, 24), (t_q, 4, 24))
    return [normal(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def packed(q, k, v, d_out, **options):
    """Output, lse and gradients of a packed call."""
    cu = [ends(lengths) for lengths in LENGTHS]
    q, k, v, d_out = map(guarded, (q, k, v, d_out))
    out, lse = varlen_forward(q, k, v, *cu, **options)
    tensors = {key: x for key, x in everything(options).items() if key in ("mask", "alibi_slopes", "sinks")}
    rest = {key: x for key, x in everything(options).items() if key not in tensors}
    return [out, lse, *varlen_backward(d_out, None, q, k, v, out, lse, *cu, *tensors.values(), **rest)]


def assert_same(these, those):
    for x, y in zip(these, those, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert torch.equal(x, y)


@pytest.mark.parametrize(("name", "dtype"), [("bare", "float16"), ("causal", "bfloat16"), ("everything", "float32")])
def test_a_dense_call(cut, name, dtype):
    """Output, lse and every gradient: the same bits, in memory that is NaN all round."""
    options = options_of(name, 4, 67, 75)
    found = {}
    for descriptors in (False, True):
        cut(descriptors=descriptors)
        found[descriptors] = dense(DTYPES[dtype], **options)
        assert cut.seen == [descriptors] * 3
    assert all(x.isfinite().all() for x in found[True] if x is not None)
    assert_same(found[True], found[False])


@pytest.mark.parametrize(("name", "dtype"), [("bare", "float16"), ("everything", "bfloat16")])
def test_packed_sequences(cut, name, dtype):
    """A tile at the end of a sequence holds rows of the next, which change nothing; sequences of length 0 too."""
    options = options_of(name, 4, *map(sum, LENGTHS))
    found = {}
    for descriptors in (False, True):
        cut(descriptors=descriptors)
        found[descriptors] = packed(*packed_inputs(DTYPES[dtype]), **options)
        assert cut.seen == [descriptors] * 3
    assert_same(found[True], found[False])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("place", range(4), ids=["q", "k", "v", "d_out"])
def test_a_stranger_is_not_finite(cut, place):
    """What is NaN or infinite in one sequence stays in it: the tiles of the sequence before it, which read it, too."""
    inputs = packed_inputs(torch.float32)
    cut(descriptors=True)
    was = packed(*inputs)
    first = {False: LENGTHS[0][0], True: sum(LENGTHS[1][:2])}  # of the sequence of 40 queries and keys
    inputs[place][first[place in (1, 2)]] = torch.nan
    inputs[place][first[place in (1, 2)] + 1] = torch.inf
    now = packed(*inputs)
    assert all(cut.seen)
    for i, (x, y) in enumerate(zip(now[:5], was[:5], strict=True)):
        start = first[i in (3, 4)]  # d_k and d_v are of keys
        others = torch.ones(len(x), dtype=torch.bool)
        others[start : start + 40] = False
        torch.testing.assert_close(x[others], y[others], rtol=1e-5, atol=1e-5)
        assert x[start : start + 40].isfinite().all() == (i in BEYOND[place])


def test_rows_that_the_hardware_cannot_copy(cut):
    """Where rows do not lie at multiples of 16 bytes pointers are used, whatever the configuration says."""
    cut(descriptors=True)
    q, k, v = (normal(1, 2, 5, 17, seed=seed, dtype=torch.float16) for seed in range(3))
    out, lse = attention_forward(q, k, v)
    attention_backward(out, None, q, k, v, out, lse, **everything({}))
    assert cut.seen == [False] * 3
