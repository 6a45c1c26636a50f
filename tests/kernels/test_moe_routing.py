"""The router on its kernels: the definition, ties, what is no number, queues and capacity, and its gradients."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnbook.errors import BackendUnavailable
from attnbook.kernels import moe
from attnbook.kernels.moe import choose, routing
from attnbook.reference.router import route as reference
from tests.kernels.device import DEVICE
from tests.kernels.moe_cases import Poison, guarded
from tests.kernels.moe_product import DTYPES
from tests.moe_truth import DEFAULTS, truth

T, D = 67, 13
BIASES = {"none": None, "small": 0.25, "large": 9.0}
AXES = {
    "dtype": DTYPES,
    "scoring": ("softmax", "sigmoid"),
    "renormalize": (True, False),
    "top_k_before_scoring": (False, True),
    "selection_bias": BIASES,
    "capacity_factor": (None, 0.75, 1.1),
    "sizes": ((5, 2), (3, 3), (67, 7), (1, 1)),  # (e, k)
    "routed_scale": (1.0, 2.5),
}


def pairs():
    """Choices of one value of each axis in which every two values of two axes meet: greedy."""
    missing = {(a, i, b, j) for (a, x), (b, y) in itertools.combinations(enumerate(AXES.values()), 2)
               for i in range(len(x)) for j in range(len(y))}  # fmt: skip
    draw = np.random.default_rng(7)
    while missing:
        tries = [tuple(int(draw.integers(len(axis))) for axis in AXES.values()) for _ in range(200)]
        meet = [{(a, i, b, j) for (a, i), (b, j) in itertools.combinations(enumerate(t), 2)} for t in tries]
        best = max(range(200), key=lambda n: len(missing & meet[n]))
        missing -= meet[best]
        yield {name: list(axis)[i] for (name, axis), i in zip(AXES.items(), tries[best], strict=True)}


def made(case):
    """x, router_weight and the options of a case."""
    options = dict(case)
    dtype, (e, k) = DTYPES[options.pop("dtype")], options.pop("sizes")
    draw = torch.Generator().manual_seed(7)
    x, router = torch.randn(T, D, generator=draw).to(dtype), torch.randn(e, D, generator=draw).to(dtype)
    size = BIASES[options["selection_bias"]]
    options["selection_bias"] = None if size is None else (torch.randn(e, generator=draw) * size).to(DEVICE)
    return guarded(x), guarded(router), {"top_k": k, **options}


def right(x, router, options):
    """The definition's routing, of x and router as they are, with experts that are not there."""
    nothing = torch.zeros(router.shape[0], x.shape[1], 1)
    bias = options["selection_bias"]
    on_cpu = options | {"selection_bias": None if bias is None else bias.cpu()}
    return truth(x.cpu(), router.cpu(), nothing, nothing, nothing.mT, **on_cpu)


def differs(info, exact):
    """What a routing has other than the definition; None where nothing."""
    for name in ("experts", "loads", "dropped"):
        if not np.array_equal(getattr(info, name).cpu(), getattr(exact, name)):
            return name
    for name in ("weights", "aux_loss", "z_loss"):
        got = getattr(info, name)
        if got.dtype != torch.float32:
            return f"{name}: {got.dtype}"
        if not np.allclose(got.cpu(), getattr(exact, name), rtol=32 * torch.finfo(torch.float32).eps, atol=0):
            return name
    return None


@pytest.mark.parametrize("case", list(pairs()), ids=lambda case: " | ".join(map(str, case.values())))
def test_every_option(case):
    """Experts, weights, loads, drops and losses are those of the definition, token by token, in float64."""
    x, router, options = made(case)
    with Poison() as poison:
        info = moe.route(x, router, **options)
    assert poison.untouched()
    assert differs(info, right(x, router, options)) is None
    assert (info.experts.dtype, info.loads.dtype, info.dropped.dtype) == (torch.int64, torch.int64, torch.bool)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_garbage_is_refused(scoring):
    """The check above can fail: weights not renormalised, other scores, other experts, no bias, no capacity."""
    everything = {"dtype": "float32", "scoring": scoring, "renormalize": True, "top_k_before_scoring": False,
                  "selection_bias": "small", "capacity_factor": 0.75, "sizes": (5, 2), "routed_scale": 2.5}  # fmt: skip
    x, router, options = made(everything)
    exact = right(x, router, options)
    assert differs(moe.route(x, router, **options), exact) is None
    for changed in (
        {"renormalize": False},
        {"scoring": "softmax" if scoring == "sigmoid" else "sigmoid"},
        {"selection_bias": None},
        {"capacity_factor": None},
        {"capacity_factor": 0.8},
        {"routed_scale": 1.0},
        {"top_k": 1},
    ):
        assert differs(moe.route(x, router, **options | changed), exact) is not None
    assert differs(moe.route(x, router.roll(1, 0), **options), exact) is not None
    assert differs(moe.route(x.roll(1, 0), router, **options), exact) is not None


# The k largest

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 3.4028234663852886e38,
                     -3.4028234663852886e38, 1e-45, -1e-45]),
    st.floats(width=32),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9).flatmap(lambda e: st.lists(st.lists(SCORES, min_size=e, max_size=e), min_size=1, max_size=3)))
@example([[math.nan, -math.inf, -3.4028234663852886e38, math.inf, math.nan, 0.0, -0.0]])
def test_the_largest_in_order_of_size_and_number(rows):
    """NaN first, then by size, equal ones by number; −inf is the lowest finite number, −0 is 0."""
    lowest = -3.4028234663852886e38

    def order(row):
        numbers = sorted((j for j in range(len(row)) if row[j] == row[j]), key=lambda j: (-max(row[j], lowest), j))
        return [j for j in range(len(row)) if row[j] != row[j]] + numbers

    scores = guarded(torch.tensor(rows))
    for k in {1, len(rows[0])}:
        with Poison() as poison:
            assert choose.largest(scores, k).tolist() == [order(row)[:k] for row in rows]
        assert poison.untouched()


def test_many_tokens_and_experts():
    """More tokens than one program takes, and a number of experts that is no power of two; strided scores too."""
    scores = torch.randn(300, 67, generator=torch.Generator().manual_seed(7)).to(DEVICE)
    scores = (scores * 4).round()  # many ties
    order = torch.argsort(scores, dim=1, descending=True, stable=True)
    assert torch.equal(choose.largest(scores, 9), order[:, :9])
    assert torch.equal(choose.largest(scores.mT.contiguous().mT, 9), order[:, :9])


def test_of_equal_scores_the_lower_expert_is_chosen():
    """In every row, also where all are equal or NaN."""
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [torch.nan, 0.0]], device=DEVICE)
    router = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], device=DEVICE).repeat(8, 1)
    assert moe.route(x, router, top_k=3).experts.tolist() == [[0, 1, 2], [1, 3, 5], [0, 1, 2]]


def test_saturated_sigmoids_are_no_tie():
    """Logits 40 and 41 have the same sigmoid in any float: the larger one is chosen."""
    router = torch.tensor([[40.0], [41.0], [39.0]], device=DEVICE)
    info = moe.route(torch.ones(1, 1, device=DEVICE), router, top_k=2, scoring="sigmoid")
    assert info.experts.tolist() == [[1, 0]]


@pytest.mark.parametrize("low", [-100.0, -1000.0])
def test_sigmoid_scores_that_underflow(low):
    """All logits near −100, in bfloat16: the weights are finite, sum to 1 and keep their ratio."""
    router = torch.tensor([low, low - 8, low - 16, low], dtype=torch.bfloat16, device=DEVICE)[:, None]
    x = torch.ones(3, 1, dtype=torch.bfloat16, device=DEVICE)
    weights = moe.route(x, router, top_k=3, scoring="sigmoid").weights.cpu()
    ratio = np.exp(np.array([0.0, 0.0, float(router[1] - router[0])]))
    np.testing.assert_allclose(weights, np.tile(ratio / ratio.sum(), (3, 1)), rtol=1e-5)


def test_the_router_works_in_float32():
    """bfloat16 tokens whose logits differ by one part in 2000 go to the right expert."""
    x = torch.ones(1, 2, dtype=torch.bfloat16, device=DEVICE)
    router = torch.tensor([[1.0, 0.0], [1.0, 2**-11]], dtype=torch.bfloat16, device=DEVICE)
    assert moe.route(x, router, top_k=1).experts.tolist() == [[1]]
    assert moe.route(x, router.float(), top_k=1).experts.tolist() == [[1]]


# Queues


def test_later_tokens_are_dropped():
    """Capacity ⌈factor · t · k / e⌉: an expert's first tokens stay, the others' weights are 0, loads count all."""
    x = torch.ones(7, 1, device=DEVICE)
    router = torch.tensor([[1.0], [3.0], [2.0], [0.0], [0.0]], device=DEVICE)
    info = moe.route(x, router, top_k=2, capacity_factor=1.1)  # 1.1 · 14 / 5 = 3.08: four
    assert info.dropped.tolist() == [[False] * 2] * 4 + [[True] * 2] * 3
    assert info.loads.tolist() == [0, 7, 7, 0, 0]
    assert (info.weights[4:] == 0).all()
    assert (info.weights[:4] > 0).all()


def test_a_factor_counts_as_the_fraction_that_was_meant():
    """1.1 · 10 is 11, not 11.000000000000002 rounded up to 12."""
    assert routing.room(1.1, 20, 2) == 11
    assert routing.room(1.0, 7, 2) == 4
    assert routing.room(0.1, 1, 5) == 1


def test_a_queue_of_many_tiles():
    """Every third token of 700 goes to one expert: its queue is counted over all tiles of the sort."""
    x = torch.zeros(700, 2, device=DEVICE)
    x[::3, 0], x[1::3, 1], x[2::3, 1] = 1, 1, 1
    router = torch.eye(2, device=DEVICE)
    info = moe.route(x, router, top_k=1, capacity_factor=0.5)  # 175 each
    assert info.loads.tolist() == [234, 466]
    assert (~info.dropped[::3]).flatten().nonzero().flatten().tolist() == list(range(175))
    others = torch.cat([info.dropped[1::3], info.dropped[2::3]], 1).flatten()
    assert (~others).nonzero().flatten().tolist() == list(range(175))


def test_no_tokens():
    """t = 0: empty results, losses 0."""
    x, router = torch.zeros(0, 3, device=DEVICE), torch.ones(5, 3, device=DEVICE)
    info = moe.route(x, router, top_k=2, capacity_factor=1.0)
    assert info.weights.shape == info.experts.shape == info.dropped.shape == (0, 2)
    assert info.loads.tolist() == [0] * 5
    assert (info.aux_loss.item(), info.z_loss.item()) == (0.0, 0.0)


# Gradients


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [True, False])
def test_gradients(scoring, renormalize):
    """Those of weights and losses reach x and the router, as the reference's in float64."""
    draw = torch.Generator().manual_seed(7)
    x, router = torch.randn(T, D, generator=draw), torch.randn(5, D, generator=draw)
    options = {"top_k": 2, "scoring": scoring, "renormalize": renormalize, "capacity_factor": 0.75,
               "top_k_before_scoring": False, "selection_bias": None, "routed_scale": 2.5}  # fmt: skip
    assert options.keys() <= DEFAULTS.keys() | {"top_k"}
    d_weights = torch.randn(T, 2, generator=draw)

    def gradients(route, to, device):
        leaves = [a.to(device, to).requires_grad_() for a in (x, router)]
        info = route(*leaves, **options)
        total = (info.weights * d_weights.to(device, to)).sum() + info.aux_loss + info.z_loss
        return torch.autograd.grad(total, leaves)

    exact = gradients(reference, torch.float64, "cpu")
    for got, wanted in zip(gradients(moe.route, torch.float32, DEVICE), exact, strict=True):
        np.testing.assert_allclose(got.cpu(), wanted, rtol=1e-4, atol=2e-6 * float(wanted.abs().max()))


def test_what_is_missing_is_said():
    """float64 is refused by name."""
    x, router = torch.ones(3, 2, dtype=torch.float64, device=DEVICE), torch.ones(5, 2, device=DEVICE)
    with pytest.raises(BackendUnavailable, match="float64, and the kernels take float32, float16 and bfloat16"):
        moe.route(x, router, top_k=1)
