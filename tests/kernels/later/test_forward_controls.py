"""The check of the forward kernel refuses garbage, and how the kernel is cut changes nothing."""

import pytest

from attnbook.kernels.flash import forward
from attnbook.kernels.flash.configs import Config
from tests.kernels.forward_product import OPTIONS, Case, run


@pytest.mark.parametrize("options", OPTIONS)
def test_garbage_would_be_refused(options):
    """The check above has teeth: an option dropped, moved or doubled, heads exchanged and the like do not pass it."""
    run(Case(options, "float32", "square", "contiguous"), controls=True)


@pytest.mark.parametrize(
    "config", [Config(16, 64, 4, 1), Config(64, 16, 4, 1), Config(32, 32, 4, 1, True, True)], ids=str
)
@pytest.mark.parametrize("options", ["bare", "window", "sinks", "floats"])
@pytest.mark.parametrize("shape", ["square", "more queries", "more keys"])
def test_how_it_is_cut_changes_nothing(monkeypatch, shape, options, config):
    """Tiles of other sizes, and k and v by descriptors, as on newer cards: right too."""
    monkeypatch.setattr(forward, "forward_config", lambda *sizes, **how: config)
    run(Case(options, "float16", shape, "contiguous"))
