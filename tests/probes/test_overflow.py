"""The first operation that leaves the finite range is named, with its module; nothing healthy is."""

import pytest
import torch
from torch import nn

from attnbook.probes import overflow
from attnbook.reference import attention, naive_softmax, softmax


class Scores(nn.Module):
    """q kᵀ of x with itself, hidden above the diagonal, times a factor."""

    def __init__(self, factor=1.0, value=-torch.inf):
        super().__init__()
        self.factor, self.value = factor, value

    def forward(self, x):
        """(b, t, d) -> (b, t, t)."""
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return (x @ x.mT * self.factor).masked_fill(future, self.value)


class Softmax(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, score):
        """(b, t, t) -> (b, t, t)."""
        return self.function(score)


def model(factor=1.0, function=softmax):
    return nn.Sequential(nn.Linear(5, 5), nn.Sequential(Scores(factor), Softmax(function)), nn.Linear(7, 3))


@pytest.fixture(autouse=True)
def seeded():
    """Modules draw their weights from torch's own generator."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        yield


@pytest.fixture
def x():
    """Two sequences of 7 vectors."""
    return torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(6))


def test_a_healthy_model_passes(x):
    """−inf hides, and is no finding; the report says how much was watched."""
    report = overflow(model(), x)
    assert report.ok, report
    assert " operations in 6 calls of modules, largest finite number " in report.checked


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_softmax_that_overflows(x, dtype):
    """exp, in the softmax and nowhere else."""
    broken = model(1e4, naive_softmax).to(dtype)
    report = overflow(broken, x.to(dtype))
    (finding,) = report.findings
    assert finding.module == "1.1"
    assert finding.text.startswith("in 1.1, aten.exp.default made ")
    assert f"({str(dtype).removeprefix('torch.')} (2, 7, 7)) from inputs up to " in finding.text
    assert str(report).splitlines()[-1].startswith("  look at: the operation: exp")
    assert overflow(model(10.0, softmax).to(dtype), x.to(dtype)).ok


def test_the_first_is_told_and_not_the_last(x):
    """In a product of float16, two modules before the output."""
    layers = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)).half()
    with torch.no_grad():
        layers[1].weight.fill_(6e4)
        layers[1].bias.zero_()
    (finding,) = overflow(layers, x.half()).findings
    assert finding.module == "1"


def test_a_row_that_is_hidden_whole(x):
    """NaN out of −inf alone: the softmax is told, and the mask was meant."""
    everything = nn.Sequential(Scores(), Softmax(lambda s: (s - torch.inf).softmax(-1)))
    (finding,) = overflow(everything, x).findings
    assert finding.module == "1"
    assert "softmax" in finding.text


def test_where_minus_inf_came_from(x):
    """log 0 is −inf, which is no finding yet; that it came first is told with the NaN that it makes."""
    steps = nn.Sequential(nn.ReLU(), Softmax(torch.log), Softmax(lambda y: y * 0))
    (finding,) = overflow(steps, x).findings
    assert finding.module == "2"
    assert finding.text.endswith("; −inf came first in 1 from aten.log.default")


def test_any_function(x):
    """Without modules there is no name, and the operation is told."""
    (finding,) = overflow(lambda a, b: a / (b - b), x.abs(), x).findings
    assert finding.module is None
    assert finding.text.startswith("aten.div.Tensor made 70 of 70 numbers NaN or inf (float32 (2, 7, 5))")
    assert overflow(lambda q: attention(q, q, q, is_causal=True), x[:, None]).ok


def test_fresh_memory_and_numbers_that_are_meant():
    """What lies in memory before it is written, and inf by name, are nobody's overflow."""

    def fn(x):
        y = torch.empty_like(x).copy_(x)
        least = torch.full((7,), torch.inf).minimum(y[0, :, 0])
        return y + least[:, None].clamp(max=torch.inf)

    assert overflow(fn, torch.ones(2, 7, 5)).ok


def test_what_is_bad_from_the_start(x):
    """An input, a weight: each is named, and nothing is run."""
    broken = model()
    with torch.no_grad():
        broken[2].weight[0, 0] = torch.nan
    report = overflow(broken, x.index_fill(1, torch.tensor([3]), torch.inf))
    assert [(finding.kind, finding.module) for finding in report.findings] == [("input", None), ("parameter", "2")]
    assert report.findings[1].text == "2.weight, float32 (3, 7), holds 1 numbers that are NaN or inf"
    assert report.checked.endswith("not run")


def test_hooks_are_gone_afterwards(x):
    """Also where the module raises, which is passed on."""
    layers = model()
    overflow(layers, x)
    with pytest.raises(RuntimeError):
        overflow(layers, x[..., :3])
    for part in layers.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks
