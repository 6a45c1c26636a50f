"""What flows along the residual of a trained model: how long it becomes, and whether a few components carry it."""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.experiments._smollm2 import model
from attnbook.measure import experiment, measure

TEXT = "The harbour was quiet when the last boat came in, and nobody on the quay asked where it had been all night."


@experiment
def run(text: str = TEXT) -> dict[str, Tensor]:
    """Read a text. Data: `size` (layers, t), the root mean square of each token, and `first`, the first token's x."""
    smol = model()
    tokens = torch.tensor([smol.tokenizer.encode(text)])
    found: list[Tensor] = []

    def keep(layer: int, name: str, x: Tensor) -> None:
        if name == "x":
            found.append(x[0])

    smol.hidden(tokens, watch=keep)
    stream = torch.stack(found).double()  # (layers, t, d)
    size = stream.square().mean(-1).sqrt()
    first, rest = size[:, 0], size[:, 1:].mean(1)
    measure("norm.stream_layers", len(size))
    measure("norm.stream_width", stream.shape[-1])
    measure("norm.stream_growth", rest[-2] / rest[0], unit="ratio")
    middle = stream[len(size) // 2, 0].square()
    measure("norm.stream_first_over_rest", first[len(size) // 2] / rest[len(size) // 2], unit="ratio")
    measure("norm.stream_top_three", middle.topk(3).values.sum() / middle.sum(), unit="ratio")
    measure("norm.stream_largest", stream.abs().max())
    return {"size": size, "stream": stream}
