"""What the tests of the door share: tensors where the kernels run, and calls that are compared with their compiled."""

import importlib

import pytest
import torch

from tests.kernels.device import DEVICE

NOISE = [
    # torch's own: of any autograd.Function that it compiles, of inductor's imports, of array-api-compat's caches
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"),
]


def moved(options):
    """The options, their tensors where the kernels run."""
    return {name: x.to(DEVICE) if torch.is_tensor(x) else x for name, x in options.items()}


def there(x, grad):
    """A copy where the kernels run, with or without a gradient."""
    return x.detach().to(DEVICE, copy=True).requires_grad_(grad)


def leaves(tensors):
    """The same numbers where the kernels run, each with a gradient."""
    return [there(x, True) for x in tensors]


def assert_same(call, compiled, make):
    """Results and gradients of `compiled` are those of `call`, for inputs that `make` makes."""
    found = []
    for function in (call, compiled):
        tensors = make()
        out = function(*tensors)
        outs = out if isinstance(out, tuple) else (out,)
        needs = [x for x in tensors if x.requires_grad]
        total = sum((x * torch.linspace(0.5, 1.5, x.numel(), device=DEVICE).reshape(x.shape)).sum() for x in outs)
        found.append((*outs, *torch.autograd.grad(total, needs)))
    for plain, traced in zip(*found, strict=True):
        assert plain.isfinite().all()
        torch.testing.assert_close(traced, plain)


def watch(monkeypatch, module, name, went):
    """Write down each call of a module's function."""
    place = importlib.import_module(module)
    run = getattr(place, name)

    def noted(*args, **options):
        went.append(name)
        return run(*args, **options)

    monkeypatch.setattr(place, name, noted)
