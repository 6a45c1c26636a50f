"""Small models with one fault each, and the same without it: what the probes of chapter 11 are tried on.

No experiment: several share these. All are quick, untrained, seeded, and silent: none raises anything.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnbook.api.moe import moe
from attnbook.models import Transformer

VOCAB = 16
PAD = 0
"""The token of the filling; sentences hold the others."""


class Mixed(nn.Module):
    """A causal model behind a convolution over neighbours, which sees one token ahead unless it is shifted."""

    def __init__(self, *, ahead: bool, d_model: int = 32, seed: int = 0) -> None:
        super().__init__()
        self.ahead = ahead
        self.model = Transformer(VOCAB, d_model=d_model, n_layers=1, n_heads=2, seed=seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.mix = nn.Conv1d(d_model, d_model, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) -> (b, t, VOCAB)."""
        x = self.model.embed(tokens)
        sides = (1, 1) if self.ahead else (2, 0)  # zeros on the left and on the right
        x = x + self.mix(nn.functional.pad(x.mT, sides)).mT
        for block in self.model.blocks:
            x = block(x)
        logits: Tensor = self.model.head(self.model.norm(x))
        return logits


class Normed(nn.Module):
    """A model with BatchNorm, in training mode or not."""

    def __init__(self, *, training: bool) -> None:
        super().__init__()
        self.model = Transformer(VOCAB, d_model=32, norm_type="batch")
        self.model.train(training)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) -> (b, t, VOCAB)."""
        logits: Tensor = self.model(tokens)
        return logits


class Answering(nn.Module):
    """The logits after each sentence's last token, as who serves a model calculates them.

    Sentences come filled up with `PAD`; a batch is cut to its longest. The filling, on the left or on the right, is
    hidden from the attention, or forgotten.
    """

    def __init__(self, *, side: str, hidden: bool) -> None:
        super().__init__()
        self.side, self.hidden = side, hidden
        self.model = Transformer(
            VOCAB, d_model=32, positions="alibi"
        )  # distances: where a sentence begins is no matter

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t), filling on the right as given -> (b, VOCAB)."""
        lengths = (tokens != PAD).sum(1)
        rows = [row[:n] for row, n in zip(tokens, lengths.tolist(), strict=True)]
        longest = int(lengths.max())
        empty = [row.new_full((longest - len(row),), PAD) for row in rows]
        pairs = zip(empty, rows, strict=True) if self.side == "left" else zip(rows, empty, strict=True)
        padded = torch.stack([torch.cat(pair) for pair in pairs])
        mask = (padded != PAD)[:, None, None] if self.hidden else None  # (b, 1, 1, t)
        last = torch.full_like(lengths, longest - 1) if self.side == "left" else lengths - 1
        logits: Tensor = self.model(padded, mask=mask)[torch.arange(len(rows)), last]
        return logits


class Crowded(nn.Module):
    """Experts whose room is shared by the whole batch: who comes late finds them full."""

    def __init__(self, *, capacity_factor: float | None, d: int = 16, n: int = 4, seed: int = 0) -> None:
        super().__init__()
        self.capacity_factor = capacity_factor
        g = torch.Generator().manual_seed(seed)
        self.weights = [torch.randn(shape, generator=g) / d**0.5 for shape in ((n, d), (n, d, d), (n, d, d), (n, d, d))]
        self.embedding = torch.randn(VOCAB, d, generator=g)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) -> (b, t, d)."""
        y: Tensor = moe(self.embedding[tokens], *self.weights, top_k=1, capacity_factor=self.capacity_factor)[0]
        return y


def sentences(generator: torch.Generator, b: int, t: int, *, shortest: int | None = None) -> Tensor:
    """Random tokens filled up on the right (b, t): `shortest` (default t // 2) to t in a row, in the first one t."""
    tokens = torch.randint(1, VOCAB, (b, t), generator=generator)
    lengths = torch.randint(t // 2 if shortest is None else shortest, t + 1, (b,), generator=generator)
    lengths[0] = t
    return tokens.masked_fill(torch.arange(t) >= lengths[:, None], PAD)


FAULTS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm, training": lambda: Normed(training=True),
    "filling attended to": lambda: Answering(side="left", hidden=False),
    "room of experts shared": lambda: Crowded(capacity_factor=1.0),
}
"""What makes an answer depend on the batch."""

MENDED: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm, evaluation": lambda: Normed(training=False),
    "filling hidden": lambda: Answering(side="left", hidden=True),
    "filling on the right": lambda: Answering(side="right", hidden=False),
    "room for all": lambda: Crowded(capacity_factor=None),
}
"""The same without the fault."""
