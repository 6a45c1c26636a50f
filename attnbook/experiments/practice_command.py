"""`attnbook probe` on a model that a reader wrote: a file in a folder of its own, the command, and what it prints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from attnbook.experiments._command import Printed, command
from attnbook.measure import experiment, measure

SOURCE = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(17, 8)
        self.mix = nn.Conv1d(8, 8, 3, padding=1)   # neighbours on both sides
        self.head = nn.Linear(8, 17)

    def forward(self, tokens):                     # (b, t) -> (b, t, 17)
        x = self.embedding(tokens)
        return self.head(x + self.mix(x.mT).mT)

torch.manual_seed(0)
model = Model()
"""
MENDED = (
    ("padding=1)   # neighbours on both sides", "padding=2)   # the past, and two too many"),
    ("self.mix(x.mT).mT", "self.mix(x.mT)[..., :-2].mT"),
)


@experiment
def run(t: int = 6) -> Any:
    """The model as it is, and mended. Data: `source`; `printed` and `mended`, what the command says of each."""
    mended = SOURCE
    for old, new in MENDED:
        mended = mended.replace(old, new)
    found, quiet = probed(SOURCE, t), probed(mended, t)
    verdicts = [line.partition(" (")[0] for line in found.text.splitlines() if line[:1].isalpha()]
    measure("practice.command_status_found", found.status)
    measure("practice.command_status_mended", quiet.status)
    measure("practice.command_probes", len(verdicts))
    measure("practice.command_only_the_leak", [v for v in verdicts if "FOUND" in v] == ["causal leak: FOUND"])
    return {"source": SOURCE, "printed": found.text, "mended": quiet.text}


def probed(source: str, t: int) -> Printed:
    """`attnbook probe my_model:model` in a folder that holds this source as my_model.py."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "my_model.py").write_text(source, encoding="utf-8")
        asked = ("probe", "my_model:model", "--shape", f"2,{t}", "--tokens", "17")
        return command(*asked, folder=Path(folder))
