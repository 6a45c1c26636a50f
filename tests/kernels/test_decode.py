"""Decoding by splits of the keys, in Triton: right, the same bits alone and in a batch, nothing leaked or repeated."""

import re

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attnbook.errors import BackendUnavailable, DTypeError, ShapeError
from attnbook.kernels import outputs
from attnbook.kernels.decode import decode_forward, launch, merge_parts
from tests.kernels.decode_product import inputs, pairs, run, small_splits
from tests.kernels.device import DEVICE
from tests.tolerance import exact

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
NOTHING = (None, None, None)
"""No mask, no slopes, no sinks."""
# Arithmetic with NaN and inf, which these tests ask for, is something that NumPy reports in the interpreter.
IN_NUMPY = pytest.mark.filterwarnings("ignore:(invalid value|All-NaN slice):RuntimeWarning")


def made(dtype=torch.float32, b=2, n_heads=4, n_kv_heads=2, t_q=1, t_kv=71, d=11, d_v=7, seed=3):
    """q, k, v where the kernels run."""
    return [x.to(DEVICE) for x in inputs((b, n_heads, n_kv_heads, t_q, t_kv, d, d_v), dtype, seed)]


@pytest.mark.parametrize("case", pairs(paged=False), ids=str)
def test_right_in_pairs_of_options_dtypes_shapes_and_layouts(case):
    """As near to the truth as a plain calculation in the same dtype, lse too; in float32 garbage is refused."""
    run(case, controls=case.dtype == "float32" and case.shape in ("one token", "four ahead"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("t_q", [1, 3])
def test_alone_and_in_a_batch_the_same_bits(dtype, t_q):
    """A request in a batch of seven gives what it gives alone, bit for bit: splits have a fixed size."""
    q, k, v = made(dtype, b=7, n_heads=2, n_kv_heads=1, t_q=t_q, t_kv=43)
    with small_splits():
        out, lse = decode_forward(q, k, v, *NOTHING, is_causal=True)
        for n in range(7):
            one, one_lse = decode_forward(*(x[n : n + 1].clone() for x in (q, k, v)), *NOTHING, is_causal=True)
            assert torch.equal(one, out[n : n + 1])
            assert torch.equal(one_lse, lse[n : n + 1])


def test_a_split_is_not_the_batch_s_business():
    """How keys are cut follows from the sizes of one sequence: with 600 keys, the kernel's own splits are several."""
    q, k, v = made(b=7, n_heads=1, n_kv_heads=1, t_kv=601)
    out = decode_forward(q, k, v, *NOTHING)[0]
    for n in (0, 6):
        assert torch.equal(decode_forward(*(x[n : n + 1].clone() for x in (q, k, v)), *NOTHING)[0], out[n : n + 1])


def test_one_new_token_sees_the_whole_past():
    """t_q 1, t_kv 5, causal: the mean of all five for equal scores, not v[0] as top-left alignment gives."""
    q, k, v = made(t_kv=5)
    out = decode_forward(q * 0, k, v, *NOTHING, is_causal=True)[0]
    torch.testing.assert_close(out[:, ::2, 0], v.mean(2))


def test_heads_of_a_group_are_neighbours():
    """onnx#7274: 4 query heads over 2 use [0, 0, 1, 1], not [0, 1, 0, 1]: each value is its head's number."""
    q, k, _ = made()
    v = torch.arange(2.0, device=DEVICE)[None, :, None, None].expand(2, 2, 71, 1)
    out = decode_forward(q, k, v, *NOTHING)[0][..., 0, 0]
    torch.testing.assert_close(out.cpu(), torch.tensor([[0.0, 0, 1, 1]] * 2))


def test_half_precision_is_accumulated_in_float32():
    """Scores of several hundred: bfloat16 keeps 8 bits of them, which would move the weights by whole factors."""
    q, k, v = made(torch.bfloat16)
    out = decode_forward(q, k, v, *NOTHING, scale=60.0)[0].cpu()
    right = exact(*(x.cpu() for x in (q, k, v)), scale=60.0)["out"]
    assert np.abs(out.double().numpy() - right).max() < 2**-8 * np.abs(right).max()


@IN_NUMPY
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("hides", ["causal", "window", "mask"])
@pytest.mark.parametrize("which", ["k", "v"])
def test_garbage_in_a_hidden_key_stays_there(which, hides, value):
    """No row that hides the key is touched, not even through 0 · NaN; a NaN reaches every row that sees it."""
    q, k, v = made(t_q=5, t_kv=37)
    at = 35 if hides == "causal" else 21  # of 37: seen by the queries from 3 on, in the window by those up to 2
    options = {"causal": {"is_causal": True}, "window": {"is_causal": True, "window": 14}, "mask": {}}[hides]
    mask = None
    sees = {"causal": [3, 4], "window": [0, 1, 2], "mask": [1, 4]}[hides]
    if hides == "mask":
        mask = torch.ones(5, 37, dtype=torch.bool, device=DEVICE)
        mask[[0, 2, 3], at] = False
    with small_splits():
        clean, clean_lse = decode_forward(q, k, v, mask, None, None, **options)
        (k if which == "k" else v)[1, 1, at, 2] = value
        out, lse = decode_forward(q, k, v, mask, None, None, **options)
    may = torch.zeros(2, 4, 5, dtype=torch.bool, device=DEVICE)
    may[1, 2:, sees] = True
    touched = ~torch.isclose(out, clean, rtol=1e-5, atol=1e-6).all(-1)
    assert not (touched & ~may).any()
    assert not (~torch.isclose(lse, clean_lse, rtol=1e-5, atol=1e-6) & ~may).any()
    if which == "v" or value != value:
        assert touched[may].all()
    if which == "v":
        assert (touched == may).all()
        assert torch.isclose(out[1, 2:, sees, 2], torch.tensor(value, device=DEVICE), equal_nan=True).all()
        others = [0, 1, 3, 4, 5, 6]
        assert out[..., others].isfinite().all()


@IN_NUMPY
def test_a_nan_in_a_query_stays_in_its_row():
    """Though it shares a tile with the other heads of its group."""
    q, k, v = made(t_q=3)
    q[1, 2, 1, 4] = torch.nan
    out, lse = decode_forward(q, k, v, *NOTHING, is_causal=True)
    lost = torch.zeros(2, 4, 3, dtype=torch.bool, device=DEVICE)
    lost[1, 2, 1] = True
    assert (out.isnan().all(-1) == lost).all()
    assert (out.isnan().any(-1) == lost).all()
    assert (lse.isnan() == lost).all()


def test_a_window_reads_its_own_keys():
    """What lies before it is not read: it may be NaN."""
    q, k, v = made()
    right = decode_forward(q, k, v, *NOTHING, is_causal=True, window=23)[0]
    k[:, :, :48], v[:, :, :48] = torch.nan, torch.nan
    with small_splits():
        out = decode_forward(q, k, v, *NOTHING, is_causal=True, window=23)[0]
    torch.testing.assert_close(out, right)


def test_keys_and_values_are_never_repeated_nor_copied(monkeypatch):
    """The kernel is handed k and v themselves, transposed and expanded as they are; what is new is parts and result."""
    q, k, v = made(torch.bfloat16, b=1, n_heads=6, t_kv=1009, d=17, d_v=13)
    k, v = k.transpose(1, 2).contiguous().transpose(1, 2), v[:, :1].expand(v.shape)
    handed, shapes, real = [], [], outputs.empty
    monkeypatch.setattr(launch, "_launch_splits", lambda call, *tensors: handed.extend(tensors[:2]))
    monkeypatch.setattr(launch, "launch_merge", lambda *tensors: None)
    monkeypatch.setattr(outputs, "empty", lambda shape, *rest: shapes.append(tuple(shape)) or real(shape, *rest))
    with Largest() as largest:
        decode_forward(q, k, v, *NOTHING)
    assert handed[0] is k
    assert handed[1] is v
    assert shapes == [(1, 6, 1, 13), (1, 6, 1), (4, 1, 6, 1, 13), (4, 1, 6, 1)]
    assert largest.size == 4 * 6 * 13 < k.numel() / 10


class Largest(TorchDispatchMode):
    """Writes down how many numbers the largest tensor holds that an operation made anew."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view:
            self.size = max(self.size, result.numel())
        return result


@pytest.mark.parametrize("axis", ["b", "h", "t_q", "t_kv"])
def test_empty_axes(axis):
    """These may be empty; without keys the output is 0 and lse the sink."""
    sizes = {"b": 2, "h": 3, "t_q": 1, "t_kv": 5} | {axis: 0}
    b, h, t_q, t_kv = sizes.values()
    q, k, v = (torch.ones(b, h, t, d, device=DEVICE) for t, d in ((t_q, 7), (t_kv, 7), (t_kv, 5)))
    out, lse = decode_forward(q, k, v, None, None, torch.full((h,), 2.0, device=DEVICE))
    assert (out.shape, lse.shape) == ((b, h, t_q, 5), (b, h, t_q))
    if axis == "t_kv":
        assert (out == 0).all()
        assert (lse == 2).all()
        assert (decode_forward(q, k, v)[1] == -torch.inf).all()


def test_two_empty_parts_merge_to_nothing():
    """flashinfer#4051: 0 and lse −inf, whatever lies where their averages should be; a sink is all that is left."""
    averages = torch.full((2, 1, 3, 2, 5), torch.nan, device=DEVICE)
    lses = torch.full((2, 1, 3, 2), -torch.inf, device=DEVICE)
    out, lse = merge_parts(averages, lses)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    sinks = torch.tensor([-1.0, 0.5, 20.0], device=DEVICE)
    out, lse = merge_parts(averages, lses, sinks)
    assert (out == 0).all()
    assert torch.equal(lse, sinks[None, :, None].expand(1, 3, 2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "parts last"])
def test_merged_parts_are_the_whole(dtype, layout):
    """Attention to three stretches of keys, one of them empty, merged, is attention to all; the sink counts once."""
    q, k, v = made(t_q=2)
    sinks = torch.tensor([1.0, 2.0, -torch.inf, 0.0], device=DEVICE)
    cuts = [(0, 0), (0, 23), (23, 71)]
    parts = [decode_forward(q, k[:, :, a:b], v[:, :, a:b], *NOTHING) for a, b in cuts]
    averages, lses = (torch.stack(x) for x in zip(*parts, strict=True))
    averages = averages.to(dtype)
    if layout == "parts last":
        averages, lses = (x.movedim(0, -1).contiguous().movedim(-1, 0) for x in (averages, lses))
    out, lse = merge_parts(averages, lses, sinks)
    whole, whole_lse = decode_forward(q, k, v, None, None, sinks)
    assert out.dtype == dtype
    torch.testing.assert_close(lse, whole_lse)
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.float(), whole, rtol=tolerance, atol=tolerance)


def test_parts_with_large_lse_do_not_overflow():
    """exp(300) is no float32: the shares are taken from the largest."""
    averages = torch.tensor([1.0, 2.0], device=DEVICE).view(2, 1, 1, 1, 1)
    lses = torch.tensor([300.0, 300.0 + np.log(3)], device=DEVICE).float().view(2, 1, 1, 1)
    out, lse = merge_parts(averages, lses)
    torch.testing.assert_close(out.item(), 1.75, rtol=1e-4, atol=0)
    torch.testing.assert_close(lse.item(), 300 + np.log(4), rtol=1e-6, atol=0)


def wrong_calls():
    """An error, its text, and what brings it about."""
    q, k, v = made()
    ones = torch.ones
    yield ShapeError, "k has head_dim 5 (axis d) but q has 11: they must be equal", (q, k[..., :5], v), {}
    yield ShapeError, "v has length 70 (axis t) but k has 71: they must be equal", (q, k, v[:, :, :70]), {}
    yield (ShapeError, "k has 2 heads (axis h) but q has 3: n_heads must be a multiple of n_kv_heads",
           (q[:, :3], k, v), {})  # fmt: skip
    yield DTypeError, "v has dtype torch.float16 but q has torch.float32: they must be equal", (q, k, v.half()), {}
    yield (ValueError, "window is 3 but is_causal is False: a window looks back, so it needs is_causal=True",
           (q, k, v), {"window": 3})  # fmt: skip
    yield (ShapeError, "mask has length 70 along axis t_kv but the scores have 71: must be 71 or 1",
           (q, k, v, ones(1, 70, device=DEVICE)), {})  # fmt: skip
    yield TypeError, "k is a numpy.ndarray: expected a torch.Tensor", (q, k.cpu().numpy(), v), {}
    yield (BackendUnavailable, "triton: the dtype is float64, and the kernels take float32, float16 and bfloat16",
           (q.double(), k.double(), v.double()), {})  # fmt: skip
    wide = ones(1, 1, 1, 257, device=DEVICE)
    yield (BackendUnavailable, "triton: q has head_dim 257 (axis d), and the kernels take 1 to 256",
           (wide, wide, wide), {})  # fmt: skip
    yield (BackendUnavailable, "triton: v has d_v 257 (axis d), and the kernels take 1 to 256",
           (wide[..., :3], wide[..., :3], wide), {})  # fmt: skip


@pytest.mark.parametrize("i", range(10))
def test_errors_name_axis_expectation_and_value(i):
    """Those of attention, and what only these kernels cannot take."""
    error, text, tensors, options = list(wrong_calls())[i]
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        decode_forward(*tensors, **options)


@pytest.mark.parametrize(
    ("averages", "lses", "sinks", "text"),
    [
        (
            (2, 1, 3, 1),
            (2, 1, 3, 1),
            None,
            "averages has 4 axes (2, 1, 3, 1): expected 5, (parts, b, n_heads, t_q, d_v)",
        ),
        ((2, 1, 3, 1, 5), (3, 1, 3, 1), None, "lses has shape (3, 1, 3, 1): expected (2, 1, 3, 1), as averages has"),
        ((2, 1, 3, 1, 5), (2, 1, 3, 1), (2,), "sinks has shape (2,): expected (n_heads,) = (3,)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(averages, lses, sinks, text):
    """Each part has an average and an lse for each row."""
    given = [None if shape is None else torch.zeros(shape, device=DEVICE) for shape in (averages, lses, sinks)]
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        merge_parts(*given)
