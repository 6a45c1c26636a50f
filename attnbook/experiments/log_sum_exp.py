"""What is the log-sum-exp of a row, and what is it good for?

A soft maximum, whose gradient is softmax, and the one number from which every weight can be read off again.
"""

from __future__ import annotations

import math

import torch

from attnbook.measure import experiment, measure
from attnbook.reference import logsumexp, softmax


@experiment
def run(rows: int = 200, n: int = 97, seed: int = 3) -> None:
    """Rows of n normal scores of very different sizes, in float64."""
    generator = torch.Generator().manual_seed(seed)
    size = 10 ** (torch.rand(rows, 1, generator=generator, dtype=torch.float64) * 4 - 1)  # 0.1 to 1000
    score = (torch.randn(rows, n, generator=generator, dtype=torch.float64) * size).requires_grad_()
    lse, top = logsumexp(score), score.detach().amax(-1)
    lse.sum().backward()
    assert score.grad is not None
    above = lse.detach() - top
    measure("softmax.lse_between", bool((above >= 0).all() and (above <= math.log(n) + 1e-12).all()))
    measure("softmax.lse_gradient_error", (score.grad - softmax(score.detach())).abs().max())
    weight = torch.exp(score - lse[:, None]).detach()
    measure("softmax.weights_from_lse_error", (weight - softmax(score.detach())).abs().max())
    large = torch.tensor([1000.0, 1000.0], dtype=torch.float64)
    measure("softmax.naive_lse_at_1000", torch.log(torch.exp(large).sum()))
    measure("softmax.lse_at_1000", logsumexp(large))
