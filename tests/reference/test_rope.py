"""RoPE: turns whose scores know only differences, at any position, in both layouts."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.rope import permute_rope_rows, rope, rope_cos_sin
from attnbook.reference.rope_scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    YarnScaling,
    scaling_from_config,
)
from tests.tolerance import as_float64


def turned(x, positions, *, theta=1e4, layout="half", rotary_dim=None):
    """The definition, as complex numbers in float64: pair i of x at position p is multiplied by e^(i p ω)."""
    x = as_float64(x).copy()
    r = x.shape[-1] if rotary_dim is None else rotary_dim
    positions = np.broadcast_to(np.asarray(positions, np.float64)[..., None, :], (*x.shape[:-3], 1, x.shape[-2]))
    for i in range(r // 2):
        one, two = (i, i + r // 2) if layout == "half" else (2 * i, 2 * i + 1)
        z = (x[..., one] + 1j * x[..., two]) * np.exp(1j * positions * theta ** (-2 * i / r))
        x[..., one], x[..., two] = z.real, z.imag
    return x


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 6])
def test_is_a_turn_of_each_pair(make, normal, layout, rotary_dim):
    """In every library and dtype it is the multiplication by e^(i p ω), rounded once."""
    x = make(normal((2, 3, 7, 10)))
    positions = np.array([[0, 1, 2, 3, 4, 5, 6], [5, 9, 11, 2, 0, 40, 7]])
    out = rope(x, make(positions), layout=layout, rotary_dim=rotary_dim)
    assert type(out) is type(x)
    assert out.dtype == x.dtype
    exact = turned(x, positions, layout=layout, rotary_dim=rotary_dim)
    eps = torch.finfo(torch.as_tensor(x).dtype).eps
    assert np.abs(as_float64(out) - exact).max() <= eps * np.abs(exact).max()
    if rotary_dim:
        np.testing.assert_array_equal(as_float64(out)[..., 6:], as_float64(x)[..., 6:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("position", [2047, 2048, 2049, 131_072, 2**20 - 1, 2**20, 2**24 + 1])
def test_cosine_is_exact_at_far_positions(dtype, position):
    """The error of cosine and sine stays below 1e-6 where half-precision angles are off by radians."""
    r = 128
    x = torch.zeros(1, 1, 1, r, dtype=dtype)
    x[..., : r // 2] = 1  # (1, 0) of every pair, turned: the cosine, and the sine
    cos, sin = rope_cos_sin(torch.tensor([position]), r)
    assert cos.dtype == sin.dtype == torch.float32
    exact = [position * 10000.0 ** (-2 * i / r) for i in range(r // 2)]
    for got, wanted in ((cos, [math.cos(a) for a in exact]), (sin, [math.sin(a) for a in exact])):
        assert np.abs(as_float64(got)[0] - wanted).max() < 1e-6
    out = as_float64(rope(x, torch.tensor([position])))[0, 0, 0]
    limit = 1e-6 + torch.finfo(dtype).eps / 2  # and what storing in the dtype costs
    assert np.abs(out - [*map(math.cos, exact), *map(math.sin, exact)]).max() < limit


def test_the_check_of_far_positions_sees_short_angles():
    """Angles in float32 or in half precision would fail it, by thousands of limits."""
    speed = torch.tensor([10000.0 ** (-2 * i / 128) for i in range(64)], dtype=torch.float64)

    def error(position, dtype):
        angle = torch.tensor(float(position), dtype=dtype) * speed.to(dtype)
        return float((angle.double().cos() - (position * speed).cos()).abs().max())

    assert error(2048, torch.float16) > 0.1
    assert error(2049, torch.bfloat16) > 0.1
    assert error(131_071, torch.float32) > 1e-3


def test_float64_stays_float64(normal):
    """Cosines of float64 input are not rounded to float32 on the way."""
    x = normal((1, 1, 5, 8))
    positions = np.arange(5) + 131_071
    np.testing.assert_allclose(rope(x, positions), turned(x, positions), rtol=0, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(-5000, 5000),
    st.integers(-5000, 5000),
    st.integers(-5000, 5000),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from([2, 6, 14]),
    st.integers(0, 1000),
)
def test_scores_depend_on_the_difference_alone_and_norms_stay(i, j, shift, layout, d, seed):
    """Moving both positions leaves the score; no turn changes a length; a negative position turns back."""
    q, k = np.random.default_rng(seed).standard_normal((2, 1, d))

    def at(x, p):
        return rope(x, np.array([p]), layout=layout)[0]

    score = at(q, i) @ at(k, j)
    np.testing.assert_allclose(at(q, i + shift) @ at(k, j + shift), score, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(at(q, i)), np.linalg.norm(q), rtol=1e-12)
    np.testing.assert_allclose(rope(at(q, i)[None], np.array([-i]), layout=layout), q, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.sampled_from([(4, None), (10, None), (10, 6)]), st.integers(0, 1000))
def test_permuted_weights_give_equal_scores_in_the_other_layout(n_heads, dims, seed):
    """Rows of W_q, W_k and biases permuted: scores of interleaved weights come out of the half layout, and back."""
    head_dim, rotary_dim = dims
    g = np.random.default_rng(seed)
    x, w_q, w_k = g.standard_normal((5, 7)), *g.standard_normal((2, n_heads * head_dim, 7))
    bias = g.standard_normal(n_heads * head_dim)

    def scores(w_q, w_k, bias, layout):
        q, k = ((x @ w.T + bias).reshape(5, n_heads, head_dim).transpose(1, 0, 2) for w in (w_q, w_k))
        q, k = (rope(z, layout=layout, rotary_dim=rotary_dim) for z in (q, k))
        return q @ k.transpose(0, 2, 1)

    for there, back in (("half", "interleaved"), ("interleaved", "half")):
        moved = [permute_rope_rows(w, n_heads, to=there, rotary_dim=rotary_dim) for w in (w_q, w_k, bias)]
        expected = scores(w_q, w_k, bias, back)
        np.testing.assert_allclose(scores(*moved, there), expected, atol=1e-12)
        assert np.abs(scores(w_q, w_k, bias, there) - expected).max() > 1e-3  # garbage without the permutation
        for w, m in zip((w_q, w_k, bias), moved, strict=True):
            np.testing.assert_array_equal(permute_rope_rows(m, n_heads, to=back, rotary_dim=rotary_dim), w)


def test_the_order_of_permuted_rows():
    """As drawn; heads stay where they are, and so do rows that are not turned."""
    rows = np.arange(8)
    assert permute_rope_rows(rows, 1, to="half").tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert permute_rope_rows(rows, 1, to="interleaved").tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert permute_rope_rows(rows, 2, to="half").tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert permute_rope_rows(rows, 1, to="half", rotary_dim=4).tolist() == [0, 2, 1, 3, 4, 5, 6, 7]


def test_permutation_in_torch_keeps_gradients():
    """It works on a parameter, and each row's gradient comes back to that row."""
    w = torch.randn(8, 3, requires_grad=True)
    (permute_rope_rows(w, 2, to="half") * torch.arange(8)[:, None]).sum().backward()
    assert w.grad[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


# Parameters


def test_each_parameter_changes_the_output(normal):
    """theta, layout, rotary_dim, scaling and positions all matter."""
    x = normal((1, 1, 5, 8))
    plain = rope(x)
    options = {
        "theta": 5e5,
        "layout": "interleaved",
        "rotary_dim": 4,
        "scaling": LinearScaling(2.0),
        "positions": np.arange(5) + 1,
    }
    for name, value in options.items():
        assert np.abs(rope(x, **{name: value}) - plain).max() > 1e-3, name
    np.testing.assert_array_equal(plain, rope(x, np.arange(5), theta=1e4, layout="half", rotary_dim=8, scaling=None))


def test_position_zero_changes_nothing(normal):
    """The first token is not turned at all, bit for bit."""
    x = normal((1, 3, 1, 8))
    np.testing.assert_array_equal(rope(x), x)


def test_fractions_are_positions_too(normal):
    """Position interpolation by hand: positions / 4 is linear scaling by 4."""
    x = normal((1, 2, 7, 6))
    np.testing.assert_allclose(rope(x, np.arange(7) / 4), rope(x, scaling=LinearScaling(4.0)), atol=1e-14)


def test_positions_of_each_sequence(normal):
    """(b, t) turns each sequence by its own, a list will do, and 1 row stands for all."""
    x = normal((2, 3, 4, 6))
    positions = [[0, 0, 1, 2], [3, 4, 5, 6]]
    out = rope(x, positions)
    for b in range(2):
        np.testing.assert_array_equal(out[b], rope(x[b], positions[b]))
    np.testing.assert_array_equal(rope(x, [positions[1]]), rope(x, positions[1]))


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)])
@pytest.mark.parametrize("library", [np, torch])
def test_empty_axes(library, shape):
    """Any axis may be empty; a length-dependent scaling has no largest position to ask for."""
    assert rope(library.zeros(shape), scaling=DynamicNTKScaling(2.0, 5)).shape == shape


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_gradcheck(layout):
    """It differentiates rightly, twice, also where only some components are turned."""
    x = torch.randn(2, 1, 3, 6, dtype=torch.float64, requires_grad=True)
    call = lambda x: rope(x, torch.tensor([[0, 5, 9], [3, -2, 7]]), layout=layout, rotary_dim=4)  # noqa: E731
    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


# Scaling, each against its definition written another way


THETA, R = 10000.0, 64


def test_linear_scaling_divides():
    """Every pair turns `factor` times slower."""
    plain = [THETA ** (-2 * i / R) for i in range(R // 2)]
    np.testing.assert_allclose(LinearScaling(4.0).frequencies(THETA, R), np.array(plain) / 4, rtol=1e-14)


def test_ntk_keeps_the_fastest_and_slows_the_slowest_by_the_factor():
    """And between them the slowing grows geometrically. With one pair nothing changes."""
    plain = np.array([THETA ** (-2 * i / R) for i in range(R // 2)])
    slowing = plain / NTKScaling(8.0).frequencies(THETA, R)
    np.testing.assert_allclose(slowing, np.geomspace(1, 8, R // 2), rtol=1e-12)
    assert NTKScaling(8.0).frequencies(THETA, 2) == [1.0]


def test_dynamic_ntk_starts_at_the_trained_length():
    """Up to it nothing changes; at twice that, factor s means s + 1; `rope` takes the length from the positions."""
    scaling = DynamicNTKScaling(2.0, 50)
    for length in (None, 1, 50):
        assert scaling.frequencies(THETA, R, length) == LinearScaling(1.0).frequencies(THETA, R)
    assert scaling.frequencies(THETA, R, 100) == NTKScaling(3.0).frequencies(THETA, R)
    x = np.random.default_rng(0).standard_normal((1, 1, 100, R))
    np.testing.assert_array_equal(rope(x, scaling=scaling), rope(x, scaling=NTKScaling(3.0)))
    np.testing.assert_array_equal(rope(x[:, :, :50], scaling=scaling), rope(x[:, :, :50]))


@pytest.mark.parametrize(("length", "theta"), [(4096, THETA), (99, THETA), (10**10, THETA), (850, 10.0)])
@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_by_turns(truncate, length, theta):
    """Pairs with 32 turns or more are kept, with 1 or fewer are slowed, a ramp in i between; rounded outwards.

    The ramp begins at the first pair where not even that one makes 32 turns, and ends at R − 1 at the latest (which a
    small theta shows: R / 2 pairs never get there).
    """
    factor = 16.0
    got = YarnScaling(factor, length, truncate=truncate).frequencies(theta, R)
    plain = np.array([theta ** (-2 * i / R) for i in range(R // 2)])
    # i as a real number, at which a pair would make exactly 32 turns, or 1, found by bisection, not by the formula
    ends = []
    for turns in (32, 1):
        low, high = -R, 3 * R
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if length * theta ** (-2 * middle / R) > 2 * np.pi * turns else (low, middle)
        ends.append(low)
    if truncate:
        ends = [np.floor(ends[0]), np.ceil(ends[1])]
    share = np.interp(np.arange(R // 2), [max(ends[0], 0), min(ends[1], R - 1)], [0.0, 1.0])
    np.testing.assert_allclose(got, plain * (1 - share) + plain / factor * share, rtol=1e-9)
    turns = length * plain / (2 * np.pi)
    assert (np.array(got)[turns >= 32] == plain[turns >= 32]).all()
    np.testing.assert_allclose(np.array(got)[turns <= 1], plain[turns <= 1] / factor, rtol=1e-12)


def test_yarn_where_the_ramp_has_no_length():
    """Where even the fastest pair hardly turns in the trained length, it alone is kept: a step."""
    plain = LinearScaling(1.0).frequencies(THETA, R)
    assert YarnScaling(4.0, 6).frequencies(THETA, R) == [1.0, *(f / 4 for f in plain[1:])]


def test_yarn_sharpens_scores():
    """Scores grow by (0.1 ln factor + 1)²; DeepSeek's mscale pair is a quotient; equal ones cancel; given wins."""
    x = np.random.default_rng(0).standard_normal((1, 1, 5, R))
    yarn = YarnScaling(16.0, 64)
    ratio = np.linalg.norm(rope(x, scaling=yarn), axis=-1) / np.linalg.norm(x, axis=-1)
    np.testing.assert_allclose(ratio, 1 + math.log(16) / 10, rtol=1e-12)
    deepseek = YarnScaling(40.0, 4096, mscale=1.0, mscale_all_dim=0.5)
    assert deepseek.sharpening() == pytest.approx((1 + math.log(40) / 10) / (1 + math.log(40) / 20))
    assert YarnScaling(40.0, 4096, mscale=0.7, mscale_all_dim=0.7).sharpening() == 1
    assert YarnScaling(40.0, 4096, attention_factor=1.25, mscale=1.0, mscale_all_dim=0.5).sharpening() == 1.25
    assert YarnScaling(1.0, 4096).sharpening() == 1


def test_each_number_of_yarn_matters():
    """Another factor, length, beta or rounding gives other frequencies."""
    base = {"factor": 4.0, "original_length": 2048}
    plain = YarnScaling(**base).frequencies(THETA, R)
    for name, value in {
        "factor": 5.0,
        "original_length": 512,
        "beta_fast": 16.0,
        "beta_slow": 3.0,
        "truncate": False,
    }.items():
        assert YarnScaling(**{**base, name: value}).frequencies(THETA, R) != plain, name


def test_llama3_by_wavelength():
    """Short waves are kept, long ones slowed, and between them frequency is linear in the turns that fit."""
    factor, low, high, length, theta = 8.0, 1.0, 4.0, 8192, 5e5
    got = Llama3Scaling(factor, low, high, length).frequencies(theta, 128)
    kinds = set()
    for i, f in enumerate(got):
        plain = theta ** (-2 * i / 128)
        wave = 2 * math.pi / plain
        if wave < length / high:
            kinds.add("kept")
            assert f == plain
        elif wave > length / low:
            kinds.add("slowed")
            assert f == pytest.approx(plain / factor, rel=1e-12)
        else:
            kinds.add("between")
            smooth = (length / wave - low) / (high - low)
            assert f == pytest.approx((1 - smooth) * plain / factor + smooth * plain, rel=1e-12)
    assert kinds == {"kept", "slowed", "between"}
    for name, value in {"factor": 3.0, "low_freq_factor": 2.0, "high_freq_factor": 9.0, "original_length": 99}.items():
        assert Llama3Scaling(**{name: value}).frequencies(theta, 128) != got, name


# Configurations


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"type": "linear", "factor": 2.0}, LinearScaling(2.0)),
        ({"rope_type": "ntk", "factor": 2}, NTKScaling(2)),
        ({"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 77}, DynamicNTKScaling(2.0, 77)),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 77, "beta_fast": 9.0},
            YarnScaling(4.0, 77, beta_fast=9.0),
        ),
        (
            {
                "rope_type": "llama3",
                "factor": 32.0,
                "low_freq_factor": 2.0,
                "high_freq_factor": 5.0,
                "original_max_position_embeddings": 99,
            },
            Llama3Scaling(32.0, 2.0, 5.0, 99),
        ),
    ],
)
def test_a_mapping_is_read_as_hugging_face_writes_it(normal, config, expected):
    """`rope(scaling=…)` takes the mapping itself; entries without a value and of other things are passed over."""
    x = normal((1, 1, 101, 32))
    config = {**config, "rope_theta": 1e4, "partial_rotary_factor": 1.0, "beta_slow": None}
    assert scaling_from_config(config) == expected
    np.testing.assert_array_equal(rope(x, scaling=config), rope(x, scaling=expected))
    assert np.abs(rope(x, scaling=config) - rope(x)).max() > 1e-2
    np.testing.assert_array_equal(rope(x, scaling={"rope_type": "default"}), rope(x))


def test_the_length_of_a_model_stands_in_for_the_scalings_own():
    """The dynamic kind reads the model's length first, the others only where theirs is missing."""
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 77}
    assert scaling_from_config(dynamic, max_position_embeddings=50) == DynamicNTKScaling(2.0, 50)
    yarn = {"rope_type": "yarn", "factor": 2.0}
    assert scaling_from_config(yarn, max_position_embeddings=50) == YarnScaling(2.0, 50)
    yarn["original_max_position_embeddings"] = 77
    assert scaling_from_config(yarn, max_position_embeddings=50) == YarnScaling(2.0, 77)
    assert scaling_from_config({}) is None
    assert scaling_from_config(None) is None


YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 77}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"hidden_size": 64, "rope_theta": 5e5, "rope_scaling": YARN}, "with rope_scaling: expected what it has there"),
        ({"rope_parameters": YARN}, "with rope_parameters: expected what it has there, config['rope_parameters']"),
        ({"rope_scaling": None, "rope_theta": 1e4}, "a whole config, with rope_scaling"),
        ({"model_type": "llama", "rope_theta": 1e4}, "with model_type: expected its rope_scaling, or None"),
        (
            {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}},
            "a mapping for each of full_attention, sliding_attention: expected one of them alone",
        ),
        ({"text_config": {"rope_scaling": YARN}}, "a mapping for each of text_config"),
    ],
)
def test_a_mapping_that_holds_the_entry_is_not_no_scaling(config, text):
    """A whole config, or an entry for each kind of layer, is refused, and the text says which part is meant."""
    with pytest.raises(ValueError, match=re.escape(text)):
        scaling_from_config(config)
    with pytest.raises(ValueError, match=re.escape(text)):
        rope(np.ones((3, 8)), scaling=config)


def test_scaling_from_something_else():
    """A name or a list is a TypeError."""
    with pytest.raises(TypeError, match="rope scaling is a str: expected a mapping of Hugging Face's, or None"):
        scaling_from_config("yarn")


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: rope(x[..., :7]),
            ShapeError,
            "x has head_dim 7 (axis d): expected an even number, RoPE turns pairs",
        ),
        (lambda x: rope(x, rotary_dim=3), ValueError, "rotary_dim is 3: expected an even number, RoPE turns pairs"),
        (lambda x: rope(x, rotary_dim=-2), ValueError, "rotary_dim is -2: expected an even number"),
        (
            lambda x: rope(x, rotary_dim=10),
            ShapeError,
            "rotary_dim is 10 but x has head_dim 8 (axis d): expected at most 8",
        ),
        (lambda x: rope(x, layout="neox"), ValueError, "layout is 'neox': expected 'half' or 'interleaved'"),
        (lambda x: rope(x, theta=0.0), ValueError, "theta is 0.0: expected a finite number above 0"),
        (lambda x: rope(x, theta=math.inf), ValueError, "theta is inf: expected a finite number above 0"),
        (
            lambda x: rope(x, scaling={"rope_type": "longrope", "factor": 2.0}),
            ValueError,
            "rope scaling is 'longrope': expected one of 'default', 'linear', 'ntk', 'dynamic', 'yarn', 'llama3'",
        ),
        (
            lambda x: rope(x, scaling={"rope_type": "yarn", "factor": 2.0}),
            ValueError,
            "rope scaling 'yarn' has no original_max_position_embeddings: expected factor, original_max_position_emb",
        ),
        (
            lambda x: rope(x, scaling={"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}),
            ValueError,
            "scaling has rope_theta 500000.0 but theta is 10000.0: they must be equal",
        ),
        (lambda x: LinearScaling(0.0), ValueError, "factor is 0.0: expected a finite number above 0"),
        (lambda x: NTKScaling(True), ValueError, "factor is True: expected a finite number above 0"),
        (lambda x: YarnScaling(2.0, 64, beta_fast=0.5), ValueError, "beta_fast is 0.5 but beta_slow is 1.0"),
        (lambda x: YarnScaling(2.0, 64).frequencies(1.0, 8), ValueError, "theta is 1.0: expected above 1"),
        (lambda x: Llama3Scaling(8.0, 4.0, 4.0), ValueError, "high_freq_factor is 4.0 but low_freq_factor is 4.0"),
        (lambda x: rope(x, [0, 1]), ShapeError, "positions has shape (2,): expected (t,) = (3,) or (b, t) = (2, 3)"),
        (lambda x: rope(x, np.zeros((3, 3), int)), ShapeError, "positions has shape (3, 3): expected (t,) = (3,) or"),
        (lambda x: rope(x[0], np.zeros((2, 3), int)), ShapeError, "positions has shape (2, 3): expected (t,) = (3,)"),
        (lambda x: rope(x, np.zeros(3, np.float16)), DTypeError, "positions has dtype float16: expected whole numbers"),
        (lambda x: rope(x, np.zeros(3, bool)), DTypeError, "positions has dtype bool: expected whole numbers"),
        (lambda x: rope(x.astype(int)), DTypeError, "x has dtype int64: expected a floating-point dtype"),
        (lambda x: rope(x[0, 0, 0]), ShapeError, "x has 1 axes (8,): expected (b, h, t, d), or at least (t, d)"),
        (
            lambda x: permute_rope_rows(x[0, 0], 2, to="half"),
            ShapeError,
            "weight has 3 rows (axis 0): expected a multi",
        ),
        (lambda x: permute_rope_rows(x[0, 0], 1, to="gptj"), ValueError, "to is 'gptj': expected 'half' or 'interl"),
    ],
)
def test_bad_input_is_named(normal, call, error, text):
    """One error, with the axis, what was expected and what came."""
    with pytest.raises(error, match=re.escape(text)):
        call(normal((2, 2, 3, 8)))
