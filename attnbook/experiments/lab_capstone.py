"""What does a trained model write with an attention of the reader's, and with wrong ones? SmolLM2, every layer.

Beside the function itself four mistakes take its place, one after another. How unlikely the right model finds what came
out, token by token, tells a text that has gone wrong from one that is only another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook import reference
from attnbook.experiments import _smollm2 as shared
from attnbook.experiments._inside import EXACT, MARGIN, OURS, THEIRS, compare
from attnbook.experiments._reader import called
from attnbook.measure import experiment, measure
from attnbook.models import generate

PROMPT = "Attention is a weighted average. Each token looks at"


def own(q: Any, k: Any, v: Any) -> Any:
    """The package's readable attention, q (n_heads, t_q, d), k and v (n_kv_heads, t_kv, d)."""
    return reference.attention(q[None], k[None], v[None], is_causal=True)[0]


def mistaken(q: Any, k: Any, v: Any, *, mistake: str = "") -> Any:
    """The same with one mistake, of `MISTAKES` or "masked_while_reading", which is none; arrays."""
    shared_by = len(q) // len(k)
    reads = np.arange(len(q)) % len(k) if mistake == "groups_in_turn" else np.arange(len(q)) // shared_by
    scores = q @ k[reads].swapaxes(1, 2) / (1 if mistake == "no_scale" else np.sqrt(q.shape[-1]))
    t_q, t_kv = scores.shape[1:]
    seen = np.tri(t_q, t_kv, 0 if mistake == "top_left" else t_kv - t_q, dtype=bool)
    if mistake == "no_mask" or (mistake == "masked_while_reading" and t_q == 1):
        seen[:] = True
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v[reads]


MISTAKES = ("no_mask", "top_left", "groups_in_turn", "no_scale")


@experiment
def run(attention: Callable[..., Any] = own, prompt: str = PROMPT, new: int = 12) -> dict[str, Any]:
    """Go on with a prompt by `new` tokens; `attention` takes arrays or, written with torch, tensors.

    Data: `texts`, by the name of a mistake, "" for the function itself.
    """
    model = shared.model()
    read = torch.tensor(model.tokenizer.encode(prompt))
    found = compare(model, called(attention), read, new)
    measure("lab.capstone_same", found.parted is None)
    measure("lab.capstone_tokens", found.tokens.shape[1] if found.parted is None else found.parted)
    measure("lab.capstone_gap", found.off().max())
    measure("lab.capstone_rounding", (found.logits[EXACT] - found.logits[OURS]).abs().max())
    measure("lab.capstone_factor", MARGIN, unit="ratio", kind="parameter")
    best = found.logits[OURS].topk(2).values
    measure("lab.capstone_lead", (best[:, 0] - best[:, 1]).min())
    ours = found.tokens[OURS].tolist()
    measure("lab.capstone_surprise", surprise(read, ours))
    measure("lab.capstone_uniform", math.log(model.config.vocab))
    measure("lab.capstone_no_mask_needed", written(read, new, "masked_while_reading") == ours)
    texts = {"": model.tokenizer.decode(found.tokens[THEIRS].tolist())}
    for name in MISTAKES:
        tokens = written(read, new, name)
        measure(f"lab.capstone_{name}_same", next((i for i in range(new) if tokens[i] != ours[i]), new))
        measure(f"lab.capstone_{name}_surprise", surprise(read, tokens))
        texts[name] = model.tokenizer.decode(tokens)
    return {"texts": texts}


def written(read: Tensor, new: int, mistake: str) -> list[int]:
    """The tokens that the model adds to `read` (t,) with a mistake in every layer."""

    def wrong(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = torch.from_numpy(mistaken(*(x[0].numpy() for x in (q, k, v)), mistake=mistake))[None]
        return out.to(q.dtype)

    return generate(shared.model().with_attention(wrong), read, max_new_tokens=new, stop=())


@torch.inference_mode()
def surprise(read: Tensor, new: list[int]) -> float:
    """How unlikely the right model finds the tokens `new` after `read` (t,): the mean of −log p over them."""
    tokens = torch.cat([read, torch.tensor(new)])[None]
    return float(shared.losses(shared.model().hidden(tokens), tokens, len(read)))
