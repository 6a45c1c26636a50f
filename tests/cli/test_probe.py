"""`attnbook probe`: a model of one's own from the command line."""

import json

import pytest

pytest.importorskip("torch")

from attnbook.cli import main

MODEL = """
import torch
from torch import nn

torch.manual_seed(0)


class Holder:
    inner = staticmethod(lambda x: x.cumsum(1))


def causal(x):
    return x.cumsum(1)


def leaky(x):
    return x - x.mean(1, keepdim=True)


def overflowing(x):
    return (x * 1e6).exp()


def per_token(x):
    return x * 2


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout()

    def forward(self, x):
        return self.dropout(x).cumsum(1)


noisy = Noisy()
table = nn.Embedding(13, 3)


def tokens(x):
    return table(x).cumsum(1).detach()


number = 3
"""


@pytest.fixture
def probe(tmp_path, monkeypatch, capsys):
    """Runs the command in a folder that holds the model; its status, and what it printed on both streams."""
    (tmp_path / "probed_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "probed_model", raising=False)

    def run(target, *arguments, shape="2,5,3"):
        status = main(["probe", f"probed_model:{target}", "--shape", shape, *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.mark.parametrize("target", ["causal", "noisy", "Holder.inner"])
def test_healthy(probe, target):
    """The three usual probes, a line each; a module is put into evaluation mode."""
    status, printed, _ = probe(target)
    assert status == 0
    assert [line.split(" (")[0] for line in printed.splitlines()] == [
        "causal leak: ok", "batch dependence: ok", "overflow: ok",
    ]  # fmt: skip


def test_found(probe):
    """Status 1, the finding and where to look; other probes still run."""
    status, printed, _ = probe("leaky")
    assert status == 1
    assert "causal leak: FOUND" in printed
    assert "  look at: the mask" in printed
    assert "batch dependence: ok" in printed


def test_json(probe):
    """Every field of every finding."""
    status, printed, _ = probe("overflowing", "--probe", "overflow", "--json")
    (report,) = json.loads(printed)
    assert status == 1
    assert (report["probe"], report["ok"]) == ("overflow", False)
    assert report["findings"][0]["text"].startswith("aten.exp.default made ")


def test_probes_by_name(probe):
    """Only those named, once each."""
    status, printed, _ = probe(
        "per_token", "--probe", "permutation_equivariance", "--probe", "permutation_equivariance"
    )
    assert status == 0
    assert printed.startswith("permutation equivariance: ok (")
    assert len(printed.splitlines()) == 1


def test_tokens_and_models_that_are_made(probe):
    """Whole numbers below N; a class or function is called first when asked."""
    assert probe("tokens", "--tokens", "13", shape="2,7")[0] == 0
    assert probe("Noisy", "--call")[0] == 0


@pytest.mark.parametrize(
    ("target", "arguments", "said"),
    [
        ("absent", (), "probed_model has no absent"),
        ("number", (), "probed_model:number is int: expected a torch.nn.Module or a function"),
        ("Noisy", (), "probed_model:Noisy is a class: name an object, or a function that makes one, with --call"),
        ("causal", ("--tokens", "13"), "expected at least 2 tokens and the axes b,t"),
        ("causal", ("--dtype", "int8"), "--dtype int8: expected a floating dtype of torch"),
        (
            "causal",
            ("--shape", "1,5,3"),
            "batch_dependence: x has shape (1, 5, 3): expected (b, ...) with b at least 2",
        ),
    ],
)
def test_what_cannot_be_run(probe, target, arguments, said):
    """Why, on standard error; status 2."""
    status, printed, error = probe(target, *arguments)
    assert (status, printed) == (2, "")
    assert said in error


def test_a_target_is_a_module_and_a_name(capsys):
    """Both are needed, and the module must be there."""
    for target, said in (("model", "expected module:callable"), ("no_such_module_here:x", "cannot be imported")):
        assert main(["probe", target, "--shape", "2,5,3"]) == 2
        assert said in capsys.readouterr().err


def test_a_shape_is_whole_numbers(capsys):
    """Or the option is named."""
    with pytest.raises(SystemExit):
        main(["probe", "model:x", "--shape", "2,0"])
    assert "--shape" in capsys.readouterr().err
