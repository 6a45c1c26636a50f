"""Window, cap, slopes and sinks against the truth, each seen when it is flipped; gradients; what is refused."""

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import attention, kv_head_of
from tests.tolerance import as_float64, assert_refuses, assert_right, exact, garbage, plain, plain_gradients, truth

B, H_Q, H_KV = 2, 6, 3
SLOPES = 2.0 ** -np.arange(1, H_Q + 1)

OPTIONS = {
    "window": {"is_causal": True, "window": 3},
    "softcap": {"softcap": 1.7},
    "slopes": {"alibi_slopes": SLOPES},
    "slopes of each sequence": {"alibi_slopes": np.stack([SLOPES, SLOPES[::-1]])},
    "sinks": {"sinks": np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 20.0])},
    "window and sinks": {"is_causal": True, "window": 5, "sinks": np.linspace(-1, 3, H_Q)},
    "cap and slopes": {"is_causal": True, "softcap": 2.3, "alibi_slopes": SLOPES, "scale": 0.7},
    "all": {
        "is_causal": True, "window": 7, "softcap": 1.3, "alibi_slopes": SLOPES, "sinks": np.linspace(-1, 1, H_Q),
        "scale": 0.9,
    },
}  # fmt: skip


def inputs(make, normal, t_q=11, t_kv=13, d=7, d_v=5, b=B):
    """q, k, v with grouped heads and different sizes along every axis."""
    return make(normal((b, H_Q, t_q, d))), make(normal((b, H_KV, t_kv, d))), make(normal((b, H_KV, t_kv, d_v)))


def made(make, options):
    """The options with their arrays in the library and dtype under test."""
    return {name: make(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("t_q", "t_kv"), [(11, 13), (13, 11), (1, 17)])
def test_right_in_every_dtype(make, normal, name, t_q, t_kv):
    """As near to the truth as a plain calculation in the same dtype, with its lse, alone and together."""
    q, k, v = inputs(make, normal, t_q, t_kv)
    options = made(make, OPTIONS[name])
    right, right_lse = truth(q, k, v, **options)
    out, lse = attention(q, k, v, return_lse=True, **options)
    assert out.dtype == q.dtype
    assert str(lse.dtype).endswith("float64" if str(q.dtype).endswith("float64") else "float32")
    assert_right(out, right, plain(q, k, v, **options))
    np.testing.assert_allclose(as_float64(lse), right_lse, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_check_refuses_garbage(normal, name):
    """In float32, every option dropped, moved by one or turned round is further off than the check lets through."""
    q, k, v = (torch.tensor(x, dtype=torch.float32) for x in inputs(np.asarray, normal))
    options = made(lambda x: torch.tensor(x, dtype=torch.float32), OPTIONS[name])
    assert_refuses(garbage(q, k, v, **options), truth(q, k, v, **options)[0], plain(q, k, v, **options))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_gradients_in_every_dtype(normal, name, dtype):
    """Those of q, k, v, an added mask, slopes and sinks, of out and lse together, against the truth."""
    leaves = dict(zip("qkv", inputs(np.asarray, normal, 11, 13), strict=True)) | {"bias": normal((B, H_Q, 11, 13))}
    leaves |= {key: x for key, x in OPTIONS[name].items() if isinstance(x, np.ndarray)}
    leaves = {key: torch.tensor(x).to(dtype).requires_grad_() for key, x in leaves.items()}
    others = {key: x for key, x in OPTIONS[name].items() if not isinstance(x, np.ndarray)}
    d_out, d_lse = (torch.tensor(normal(shape)).to(dtype) for shape in ((B, H_Q, 11, 5), (B, H_Q, 11)))

    given = {("mask" if key == "bias" else key): x for key, x in leaves.items()}
    out, lse = attention(**given, **others, return_lse=True)
    grads = torch.autograd.grad((out * d_out).sum() + (lse * d_lse).sum(), list(leaves.values()))
    right = exact(**leaves, **others, d_out=d_out, d_lse=d_lse)
    baseline = plain_gradients(**leaves, **others, d_out=d_out, d_lse=d_lse)
    for key, grad in zip(leaves, grads, strict=True):
        assert grad.dtype == dtype
        assert_right(grad, right[key], torch.tensor(baseline[key]).to(dtype))


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
@pytest.mark.parametrize(
    ("option", "base"),
    [
        ({"window": 2}, {"is_causal": True}),
        ({"alibi_slopes": np.full(H_Q, 0.5)}, {}),
        ({"softcap": 0.5}, {}),
        ({"sinks": np.zeros(H_Q)}, {}),
    ],
)
def test_each_option_changes_output_and_lse(normal, library, option, base):
    """None is dropped in either library."""
    q, k, v = inputs(library, normal)
    before = attention(q, k, v, return_lse=True, **base)
    for was, now in zip(before, attention(q, k, v, return_lse=True, **base | made(library, option)), strict=True):
        assert abs(now - was).max() > 0.05


# Differentiation, and what is refused


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("t_q", "t_kv"), [(3, 5), (5, 3)])
def test_gradcheck_of_every_input(is_causal, t_q, t_kv):
    """Output and lse differentiate rightly, twice, in q, k, v, an added mask, slopes and sinks, all options at once."""
    g = torch.Generator().manual_seed(5)
    leaves = [
        torch.randn(*shape, dtype=torch.float64, generator=g, requires_grad=True)
        for shape in ((2, 2, t_q, 3), (2, 1, t_kv, 3), (2, 1, t_kv, 2), (t_q, t_kv), (2, 2), (2,))
    ]

    def call(q, k, v, bias, slopes, sinks):
        window = 2 if is_causal else None
        return attention(
            q, k, v, mask=bias, is_causal=is_causal, window=window, alibi_slopes=slopes, softcap=1.7, sinks=sinks,
            return_lse=True,
        )  # fmt: skip

    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves, atol=1e-4)


def test_numpy_numbers_as_options_keep_the_dtype(normal):
    """A float64 scalar of NumPy neither widens nor changes anything."""
    q, k, v = (normal((1, 1, 3, 5)).astype(np.float32) for _ in "qkv")
    out, lse = attention(q, k, v, scale=np.float64(0.3), softcap=np.float64(2), return_lse=True)
    assert (out.dtype, lse.dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(out, attention(q, k, v, scale=0.3, softcap=2.0))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_the_index_map_of_groups(n_kv_heads):
    """Six query heads share the key heads in a row, as many for each; the same for one number and for an array."""
    of = kv_head_of(np.arange(6), 6, n_kv_heads).tolist()
    assert of == sorted(of)
    assert [of.count(g) for g in range(n_kv_heads)] == [6 // n_kv_heads] * n_kv_heads
    assert of == [kv_head_of(head, 6, n_kv_heads) for head in range(6)]


def test_each_option_is_refused_by_name(normal):
    """What the shared checks refuse is refused here, before anything is calculated."""
    q = normal((1, 2, 3, 5))
    for options, text in (
        ({"window": 2}, "window is 2 but is_causal is False"),
        ({"window": 0, "is_causal": True}, "window is 0: expected"),
        ({"softcap": -1.0}, "softcap is -1.0: expected"),
        ({"scale": float("nan")}, "scale is nan: expected"),
    ):
        with pytest.raises(ValueError, match=f"^{text}"):
            attention(q, q, q, **options)
    for name, shape in (("alibi_slopes", (3,)), ("sinks", (1, 2))):
        with pytest.raises(ShapeError, match=rf"^{name} has shape \({shape[0]},.*\): expected \(h,\) = \(2,\)"):
            attention(q, q, q, **{name: np.ones(shape)})
    for name in ("alibi_slopes", "sinks"):
        with pytest.raises(DTypeError, match=f"^{name} has dtype int64: expected a floating-point dtype$"):
            attention(q, q, q, **{name: np.ones(2, dtype=np.int64)})


@pytest.mark.parametrize("name", ["k", "v", "mask", "alibi_slopes", "sinks"])
def test_another_library_or_device_is_refused_by_name(normal, name):
    """Whichever input it is."""
    given = {x: torch.from_numpy(normal((1, 2, 3, 3))) for x in ("q", "k", "v", "mask")}
    given |= {x: torch.from_numpy(normal((2,))) for x in ("alibi_slopes", "sinks")}
    attention(**given)
    with pytest.raises(TypeError, match=f"^{name} comes from numpy but q from torch: they must come from one library$"):
        attention(**given | {name: given[name].numpy()})
    with pytest.raises(ValueError, match=f"^{name} is on device meta but q on cpu: they must be on one device$"):
        attention(**given | {name: given[name].to("meta")})
