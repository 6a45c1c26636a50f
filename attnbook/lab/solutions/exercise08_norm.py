"""Exercise of chapter 8: LayerNorm."""

import numpy as np


def layer_norm(x, gamma, beta, eps):
    """(x − μ) / √(σ² + eps) · gamma + beta, each token by itself.

    Mean μ and variance σ² are of a token's d components; the variance is divided by d.
    x: (t, d). gamma, beta: (d,). eps: a small number. Returns (t, d).
    """
    # hole: lines
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * gamma + beta
    # end
