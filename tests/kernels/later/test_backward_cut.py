"""The backward kernels, cut into tiles of other sizes than they choose."""

import pytest

from attnbook.kernels.flash import backward
from attnbook.kernels.flash.configs import Config
from tests.kernels.backward_product import Case, run


@pytest.mark.parametrize("config", [Config(16, 64, 4, 1), Config(64, 16, 4, 1)], ids=str)
@pytest.mark.parametrize("options", ["window", "everything"])
@pytest.mark.parametrize("shape", ["square", "more queries"])
def test_how_it_is_cut_changes_nothing(monkeypatch, shape, options, config):
    """Tiles of other sizes: right too."""
    for name in ("keys_config", "queries_config", "mask_config"):
        monkeypatch.setattr(backward, name, lambda *sizes, **how: config)
    run(Case(options, "float16", shape, "contiguous"))
