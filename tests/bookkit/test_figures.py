"""Publishing a figure from a cell."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from attnbook.bookkit.figures import FIGURE, FigureRenderer, figure, subplots


@pytest.fixture
def published(monkeypatch):
    """What a kernel's display publisher was given."""
    calls = []
    publisher = SimpleNamespace(publish=lambda data, metadata: calls.append(data))
    shell = SimpleNamespace(display_pub=publisher, kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, version_info=(9, 0)))
    return calls


def test_in_a_kernel_it_is_published_under_its_name(published) -> None:
    """The output carries name, drawing and size, and nothing that a page would show in place."""
    drawn, axes = subplots(width=5.0, height=3.0)
    axes.plot([0, 1])
    assert figure("two-words", drawn) is None
    ((mime, payload),) = published[0].items()
    assert mime == FIGURE
    assert (payload["name"], payload["width"], payload["height"]) == ("two-words", 360, 216)
    assert payload["svg"].startswith("<g>")


@pytest.mark.parametrize("loaded", [True, False])
def test_outside_a_kernel_nothing_is_published(monkeypatch, capsys, loaded: bool) -> None:
    """A script may call the same code, with IPython loaded or not; it is not loaded for that."""
    asked: list[str] = []
    drawn, _ = subplots()
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    if loaded:
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: asked.append("shell")))
    assert figure("anything", drawn) is None
    assert asked == ["shell"] * loaded
    assert ("IPython" in sys.modules) == loaded
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["", "Scores", "two words", "-x", "x-", "a--b", "図", 'x"onload="'])
def test_a_name_is_words_and_hyphens(name: str) -> None:
    """It becomes part of ids in the page."""
    drawn, _ = subplots()
    with pytest.raises(ValueError, match="expected lower-case words joined by hyphens"):
        figure(name, drawn)


def test_a_pyplot_figure_is_closed() -> None:
    """Or the inline backend would show it a second time, below the cell and without alternative text."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    drawn = pyplot.figure()
    figure("closed", drawn)
    assert not pyplot.get_fignums()


def test_the_renderer_leaves_other_outputs_alone() -> None:
    """None tells MyST-NB to go on looking."""
    assert FigureRenderer.handle_mime(None, SimpleNamespace(mime_type="text/plain"), False) is None
