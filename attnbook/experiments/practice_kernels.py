"""How far does an answer move when only the batch changes, in a healthy model? The rounding of sums in another order.

Attention: torch's `scaled_dot_product_attention` on the CPU against `attnbook.tiled`'s decoding, one query against many
keys, alone and in a batch, of equal lengths and filled up to the longest. Products of matrices: the same rows, fewer or
more of them. A trained model: one step of writing, alone and in a batch, and all tokens at once against one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.api.attention import attention
from attnbook.experiments._smollm2 import model, text_tokens
from attnbook.measure import experiment, measure

LENGTHS = (1024, 300, 777, 512)
"""Keys of each sequence, all enough for decoding by splits."""
ROWS = (1, 2, 3, 4, 8, 16)


@experiment
def run(threads: int = 2, heads: int = 8, d: int = 64, tokens: int = 16, b: int = 4, seed: int = 0) -> Any:
    """`threads` for torch's attention, which shares one sequence out otherwise than several. Data: `rows`, `moved`."""
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(len(LENGTHS), heads, 1, d, generator=g)
    k, v = torch.randn(2, len(LENGTHS), heads, max(LENGTHS), d, generator=g)
    with threads_are(threads):
        measure("practice.kernel_sdpa_equal", moved(sdpa, q, k, v, None))
        measure("practice.kernel_sdpa_filled", moved(sdpa, q, k, v, LENGTHS))
        measure("practice.kernel_ours_equal", moved(ours, q, k, v, None))
        measure("practice.kernel_ours_filled", moved(ours, q, k, v, LENGTHS))
        measure("practice.kernel_apart", (sdpa(q, k, v, None) - ours(q, k, v, None)).abs().max())
    x, w = torch.randn(max(ROWS), 576, generator=g), torch.randn(576, 1536, generator=g) / 576**0.5
    rows = {n: float((x[:n] @ w - (x @ w)[:n]).abs().max()) for n in ROWS}
    measure("practice.kernel_rows_moved", max(rows.values()))
    return {"rows": rows, "moved": _trained(g, tokens, b)}


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """What torch has."""
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


def ours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """By splits of a size that no batch changes, each sequence over the keys that it may see."""
    out: Tensor = attention(q, k, v, mask=mask, impl="tiled")
    return out


def moved(attend: Any, q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...] | None) -> float:
    """The largest difference between each sequence alone and in the batch; with lengths, cut off against filled up."""
    t = k.shape[2]
    each = torch.tensor(lengths or (t,) * len(q))
    mask = None if lengths is None else (torch.arange(t) < each[:, None])[:, None, None]  # (b, 1, 1, t)
    together = attend(q, k, v, mask)
    far = []
    for i, n in enumerate(each.tolist()):
        of_i = slice(i, i + 1)
        alone = attend(q[of_i], k[of_i, :, :n], v[of_i, :, :n], None if mask is None else mask[of_i, ..., :n])
        far.append(float((alone[0] - together[i]).abs().max()))
    return max(far)


@contextmanager
def threads_are(n: int) -> Iterator[None]:
    """Torch calculates with n threads inside, and with as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def _trained(g: torch.Generator, tokens: int, b: int) -> dict[str, float]:
    """How far the logits of the last token move, for the text alone, beside others, and read in two steps."""
    text = text_tokens()[:, :tokens]
    others = torch.randint(17, model().config.vocab, (b - 1, tokens), generator=g)
    whole = model()(text)[0]
    alone, beside = (_written(rows)[0] for rows in (text, torch.cat([text, others])))
    found = {"batch": float((beside - alone).abs().max()), "cache": float((alone - whole[-1]).abs().max())}
    for name, far in found.items():
        measure(f"practice.kernel_smollm2_{name}", far)
    best = whole.topk(2, dim=-1).values
    margins = best[:, 0] - best[:, 1]
    measure("practice.kernel_smallest_margin", margins.min())
    measure("practice.kernel_tokens_changed", int((margins <= 2 * max(found.values())).sum()))
    return found


def _written(tokens: Tensor) -> Tensor:
    """Logits after the last token, which is read by itself, from a cache of those before: (b, t) -> (b, vocab)."""
    cache = model().new_cache()
    model().hidden(tokens[:, :-1], cache=cache)
    return model()(tokens[:, -1:], cache=cache)[:, 0]
