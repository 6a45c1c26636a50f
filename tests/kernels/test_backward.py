"""The backward kernels: right on every pair of options, dtypes, shapes and layouts; memory is poisoned first."""

import pytest

from attnbook.kernels.flash import backward
from attnbook.kernels.flash.configs import Config
from tests.kernels.backward_product import OPTIONS, Case, pairs, run


@pytest.mark.parametrize("case", pairs(), ids=str)
def test_it_is_right(case):
    """Every gradient, of out and lse together, is as near to float64 as a plain one, whatever is asked for."""
    run(case)


@pytest.mark.parametrize("options", OPTIONS)
def test_garbage_would_be_refused(options):
    """The check above has teeth: the gradient of another mask, scale, cap or head, or none of the lse, do not pass."""
    run(Case(options, "float32", "small", "contiguous"), controls=True)


@pytest.mark.parametrize("config", [Config(16, 64, 4, 1), Config(64, 16, 4, 1)], ids=str)
@pytest.mark.parametrize("options", ["window", "everything"])
@pytest.mark.parametrize("shape", ["square", "more queries"])
def test_how_it_is_cut_changes_nothing(monkeypatch, shape, options, config):
    """Tiles of other sizes: right too."""
    for name in ("keys_config", "queries_config", "mask_config"):
        monkeypatch.setattr(backward, name, lambda *sizes, **how: config)
    run(Case(options, "float16", shape, "contiguous"))
