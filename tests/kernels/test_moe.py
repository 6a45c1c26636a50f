"""The experts' kernels against the definition in float64: products, gradients, and what must never happen."""

import pytest
import torch

from attnbook.errors import BackendUnavailable, DTypeError, ShapeError
from attnbook.kernels import moe
from attnbook.kernels.moe import configs, experts, sort
from attnbook.kernels.targets import SM_90
from tests.kernels.device import DEVICE
from tests.kernels.moe_cases import NAMES, Poison, garbage, gradients, plain_gradients
from tests.kernels.moe_product import DTYPES, Case, check, made, pairs
from tests.tolerance import as_float64, assert_refuses


@pytest.mark.parametrize("case", pairs(), ids=str)
def test_products_and_gradients(case):
    """As near to float64 as a plain calculation, in fresh memory full of NaN, and nothing beside it is touched."""
    assert check(case) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_garbage_is_refused(dtype):
    """The check above can fail: every kind of garbage differs enough to be refused, in y and in every gradient."""
    grad_y, inputs = made(Case(dtype, "tiles", "some dropped", "contiguous"))
    exact = {name: as_float64(a.cpu()) for name, a in gradients(grad_y, torch.float64, *inputs).items()}
    plain = plain_gradients(exact, grad_y, DTYPES[dtype], *inputs)
    wrong = garbage(grad_y, *inputs)
    assert_refuses({kind: of["y"] for kind, of in wrong.items()}, exact["y"], plain["y"])
    for name in NAMES:
        kinds = {kind: of[name] for kind, of in wrong.items()}
        if name == "weights":  # y is linear in them: their gradient does not depend on them
            kinds = {kind: of for kind, of in kinds.items() if "weights" not in kind}
        if name == "w_down":
            assert len(kinds) == len(wrong)
        assert_refuses(kinds | {"zeros": 0 * exact[name], "half": exact[name] / 2}, exact[name], plain[name])


def usual(choice="at random", dtype="float32", shape="small"):
    return made(Case(dtype, shape, choice, "contiguous"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_expert_without_tokens_has_gradient_0(dtype):
    """Exactly 0 and not NaN, also where its own matrices are NaN: nobody multiplies by them."""
    grad_y, inputs = usual("one gets none", dtype)
    for w in inputs[3:]:
        w[2] = torch.nan
    with Poison():
        y = moe.experts_forward(*inputs)
        found = dict(zip(NAMES, moe.experts_backward(grad_y, *inputs), strict=True))
    assert y.isfinite().all()
    for name in NAMES:
        assert found[name].isfinite().all()
    for name in NAMES[2:]:
        assert (found[name][2] == 0).all()
        assert (found[name][1] != 0).any()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, in the interpreter, about inf · 0
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_stays_in_its_token(dtype, bad):
    """A NaN or inf in a row of x or of the gradient reaches that row of y and dx; the others keep their bits."""
    grad_y, inputs = usual(dtype=dtype)
    y = moe.experts_forward(*inputs)
    d_x, d_weights, *_ = moe.experts_backward(grad_y, *inputs)
    others = torch.arange(len(y)) != 3
    for name in ("x", "grad_y"):
        changed, x = grad_y.clone(), inputs[0].clone()
        (x if name == "x" else changed)[3, 1] = bad
        got = moe.experts_forward(x, *inputs[1:])
        got_x, got_weights, *_ = moe.experts_backward(changed, x, *inputs[1:])
        for a, b in ((got, y), (got_x, d_x), (got_weights, d_weights)):
            assert torch.equal(a[others], b[others])
        assert got_x[3].isnan().any()
        assert bool(got[3].isnan().any()) == (name == "x")


def test_the_same_bits_every_time():
    """Nothing depends on which program comes first: two calls give the same bits, also in other fresh memory."""
    grad_y, inputs = usual("some dropped", "bfloat16")
    first = (moe.experts_forward(*inputs), *moe.experts_backward(grad_y, *inputs))
    with Poison():
        second = (moe.experts_forward(*inputs), *moe.experts_backward(grad_y, *inputs))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


def test_gradients_that_nobody_needs():
    """Without the experts' gradients the others have the same bits, and theirs are None."""
    grad_y, inputs = usual("some dropped")
    d_x, d_weights, *_ = moe.experts_backward(grad_y, *inputs)
    with Poison():
        got = moe.experts_backward(grad_y, *inputs, needs_experts=False)
    assert torch.equal(got[0], d_x)
    assert torch.equal(got[1], d_weights)
    assert got[2:] == (None, None, None)


def test_a_dropped_assignment_has_gradient_0():
    """Its weight's gradient is exactly 0, and its weight, even a NaN, changes nothing."""
    grad_y, inputs = usual("some dropped")
    dropped = inputs[1] == moe.NOBODY
    assert dropped.any()
    y, (d_x, d_weights, *_) = moe.experts_forward(*inputs), moe.experts_backward(grad_y, *inputs)
    assert (d_weights[dropped] == 0).all()
    assert (d_weights[~dropped] != 0).all()
    inputs[2][dropped] = torch.nan
    assert torch.equal(moe.experts_forward(*inputs), y)
    assert torch.equal(moe.experts_backward(grad_y, *inputs)[0], d_x)


def test_what_is_no_expert_counts_as_dropped():
    """A number outside 0 … e − 1 is nobody's: no matrix is read beyond the last."""
    grad_y, inputs = usual("some dropped")
    dropped = inputs[1] == moe.NOBODY
    y, grads = moe.experts_forward(*inputs), moe.experts_backward(grad_y, *inputs)
    for number in (5, -2, 2**33, 2**32 + 1):
        inputs[1][dropped] = number
        assert torch.equal(moe.experts_forward(*inputs), y)
        for a, b in zip(moe.experts_backward(grad_y, *inputs), grads, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("t", "k", "e", "d", "f"), [(0, 2, 5, 7, 11), (5, 0, 0, 7, 11), (5, 2, 5, 0, 11), (5, 2, 5, 7, 0)]
)
def test_axes_of_length_0(t, k, e, d, f):
    """No token, no expert, no component: y and all gradients are 0, of the right shapes."""
    x, weights = torch.ones(t, d, device=DEVICE), torch.ones(t, k, device=DEVICE)
    chosen = torch.arange(k, device=DEVICE).expand(t, k)
    matrices = [torch.ones(shape, device=DEVICE) for shape in ((e, d, f), (e, d, f), (e, f, d))]
    y = moe.experts_forward(x, chosen, weights, *matrices)
    found = moe.experts_backward(x, x, chosen, weights, *matrices)
    for a, like in zip((y, *found), (x, x, weights, *matrices), strict=True):
        assert a.shape == like.shape
        assert (a == 0).all()


def test_outputs_are_added_up_in_float32():
    """One expert gives 256 and 40 give a half, in bfloat16: added up there, the sum would stay at 256."""
    x = torch.ones(1, 1, dtype=torch.bfloat16, device=DEVICE)
    gate, up, down = (torch.full((41, 1, 1), v, dtype=x.dtype, device=DEVICE) for v in (16.0, 0.0625, 0.5))
    down[0] = 256
    everyone = torch.arange(41, device=DEVICE)[None]
    y = moe.experts_forward(x, everyone, torch.ones(1, 41, device=DEVICE), gate, up, down)
    assert y.item() == 276


def test_large_gates_do_not_overflow():
    """Gates of ±200: the SiLU is 200 and 0, its slope 1 and 0, and no exponential is inf."""
    x = torch.tensor([[200.0], [-200.0]], device=DEVICE)
    ones = torch.ones(1, 1, 1, device=DEVICE)
    chosen, weights = torch.zeros(2, 1, dtype=torch.int64, device=DEVICE), torch.ones(2, 1, device=DEVICE)
    y = moe.experts_forward(x, chosen, weights, ones, ones, ones)
    assert y.flatten().tolist() == [40000.0, 0.0]
    d_x, *_ = moe.experts_backward(torch.ones_like(x), x, chosen, weights, ones, ones, ones)
    assert d_x.flatten().tolist() == [400.0, 0.0]


def test_strides_past_2_to_the_31():
    """Tokens and experts that lie 2³¹ numbers apart: the same bits as side by side."""
    grad_y, (x, chosen, weights, *matrices) = usual(dtype="float16", shape="all experts")
    wanted = (moe.experts_forward(x, chosen, weights, *matrices),
              *moe.experts_backward(grad_y, x, chosen, weights, *matrices))  # fmt: skip
    far = 2**30 + 24  # 8 GB that are not touched but for a few pages
    memory = torch.empty(3 * far, dtype=torch.float16, device=DEVICE)
    start = 0
    spread = []
    for w in matrices:
        view = torch.as_strided(memory, w.shape, (far, w.shape[2], 1), start)
        view.copy_(w)
        spread.append(view)
        start += 64
    assert spread[0].stride(0) * 2 > 2**31
    got = (moe.experts_forward(x, chosen, weights, *spread),
           *moe.experts_backward(grad_y, x, chosen, weights, *spread))  # fmt: skip
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a, b)
    tokens = [torch.as_strided(memory, (3, x.shape[1]), (far, 1), at) for at in (start, start + 64)]
    tokens[0].copy_(x[:3])
    tokens[1].copy_(grad_y[:3])
    few = (chosen[:3], weights[:3], *matrices)
    assert torch.equal(moe.experts_forward(tokens[0], *few), wanted[0][:3])
    assert torch.equal(moe.experts_backward(tokens[1], tokens[0], *few)[0], wanted[1][:3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_descriptors_read_what_pointers_read(dtype, monkeypatch):
    """Rows at multiples of 16 bytes, as descriptors need them: the same bits as by pointers, edges included."""
    t, d, f, e, k = 37, 72, 40, 3, 2
    draw = torch.Generator().manual_seed(7)
    shapes = ((t, d), (t, d), (e, d, f), (e, d, f), (e, f, d))
    x, grad_y, *matrices = (torch.randn(s, generator=draw).to(DTYPES[dtype]).to(DEVICE) / 8 for s in shapes)
    chosen = torch.rand(t, e, generator=draw).topk(k).indices.to(DEVICE)
    weights = torch.rand(t, k, generator=draw).to(DEVICE)
    inputs = (x, chosen, weights, *matrices)
    monkeypatch.setattr(experts, "target_of", lambda device: SM_90)
    read, kinds = experts._read, []

    def listening(tiles, matrices, block):
        found = read(tiles, matrices, block)
        kinds.append(found[-1])
        return found

    monkeypatch.setattr(experts, "_read", listening)
    by_descriptor = (moe.experts_forward(*inputs), *moe.experts_backward(grad_y, *inputs))
    assert kinds == [True] * 5
    monkeypatch.setattr(experts, "_read", lambda tiles, matrices, block: (*matrices, False))
    for a, b in zip((moe.experts_forward(*inputs), *moe.experts_backward(grad_y, *inputs)), by_descriptor, strict=True):
        assert torch.equal(a, b)


NO_DESCRIPTOR = {
    "odd rows": torch.zeros(2, 5, 7),
    "transposed": torch.zeros(2, 8, 8).mT,
    "rows of 24 bytes": torch.zeros(2, 8, 12, dtype=torch.bfloat16),
    "an odd start": torch.zeros(17)[1:].view(1, 4, 4),
    "repeated": torch.zeros(1, 8, 8).expand(2, 8, 8),
}


@pytest.mark.parametrize("name", NO_DESCRIPTOR)
def test_what_no_descriptor_can_read(name):
    """Rows that are no multiple of 16 bytes, columns apart, a start in between, no step at all: pointers it is."""
    w = NO_DESCRIPTOR[name]
    assert not experts._describable(w)
    assert experts._describable(torch.zeros(2, 8, 8, dtype=w.dtype))


# The sort


@pytest.mark.parametrize(("t", "k", "e"), [(1, 1, 1), (7, 2, 3), (131, 3, 5), (64, 1, 2), (65, 2, 257), (0, 2, 3)])
def test_the_sort_is_stable(t, k, e):
    """Assignments by expert, then by token and slot, as a stable argsort has them; dropped ones nowhere."""
    chosen = torch.randint(-1, e, (t, k), generator=torch.Generator().manual_seed(7)).to(DEVICE)
    with Poison() as poison:
        found = sort.by_expert(chosen, e)
    assert poison.untouched()
    flat = chosen.flatten()
    order = torch.argsort(flat, stable=True)[int((flat < 0).sum()) :]
    assert torch.equal(found.order[: len(order)].long(), order)
    assert torch.equal(found.token[: len(order)].long(), order // k)
    place = torch.full_like(flat, -1)
    place[order] = torch.arange(len(order), device=DEVICE)
    assert torch.equal(found.place.long(), place.view(t, k))
    loads = torch.bincount(flat[flat >= 0], minlength=e)
    assert found.row_bounds.tolist() == [0, *loads.cumsum(0).tolist()]
    assert torch.equal(sort.count(chosen, e).sum(0), loads)


def test_every_row_has_a_tile():
    """Tiles hold an expert's rows and no others; no launch has fewer programs than there are tiles."""
    bounds = torch.tensor([0, 6, 6, 10, 15], dtype=torch.int32)
    assert sort.tile_bounds(bounds, 4).tolist() == [0, 2, 2, 3, 5]
    for sizes in ([1] * 17, [17], [0, 0, 16, 1], [5, 5, 5, 2], [0, 0, 7]):
        bounds = torch.tensor([0, *sizes], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        for rows in (1, 4, 16):
            tiles = configs.Product(rows, 16, 16, 4, 1)
            call = experts.Call(*[None] * 5, sort.Sorted(None, None, None, bounds), None, sum(sizes), len(sizes), 1, 1)
            found, at_most = experts._row_tiles(call, tiles)
            assert int(found[-1]) == sum(-(-size // rows) for size in sizes)
            assert at_most >= int(found[-1])


# Bad input


def test_errors_name_what_does_not_fit():
    """Wrong shapes, dtypes and devices are refused before a kernel reads beyond the end of something."""
    grad_y, inputs = usual()
    x, chosen, weights, gate, up, _ = inputs
    for changed, error, text in (
        ({3: gate[:, :6]}, ShapeError, r"w_gate has shape \(5, 6, 11\): expected \(5, 7, 11\)"),
        ({4: up[:4]}, ShapeError, r"w_up has shape \(4, 7, 11\): expected \(5, 7, 11\)"),
        ({5: up}, ShapeError, r"w_down has shape \(5, 7, 11\): expected \(5, 11, 7\)"),
        ({1: chosen[:22]}, ShapeError, r"experts has shape \(22, 2\): expected \(23, 2\)"),
        ({2: weights[:, :1]}, ShapeError, r"weights has shape \(23, 1\): expected \(23, 2\)"),
        ({2: weights.half()}, DTypeError, "weights has dtype torch.float16: expected torch.float32"),
        ({1: chosen.float()}, DTypeError, "experts has dtype torch.float32: expected torch.int64"),
        ({4: up.half()}, DTypeError, "w_up has dtype torch.float16: expected torch.float32"),
        ({4: up.to("meta")}, ValueError, "w_up is on device meta but x on"),
        ({0: x.double()}, BackendUnavailable, "float64, and the kernels take float32, float16 and bfloat16"),
    ):
        given = [changed.get(i, a) for i, a in enumerate(inputs)]
        with pytest.raises(error, match=text):
            moe.experts_forward(*given)
        with pytest.raises(error, match=text):
            moe.experts_backward(grad_y, *given)
    with pytest.raises(ShapeError, match=r"grad_y is \(22, 7\) of torch.float32: expected x's, \(23, 7\) of"):
        moe.experts_backward(grad_y[:22], *inputs)
