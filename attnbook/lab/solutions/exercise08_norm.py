"""Exercise of chapter 8: LayerNorm."""

import numpy as np


def layer_norm(x, gamma, beta, eps):
    """(x − μ) / √(σ² + eps) · gamma + beta, with each token's own mean μ and variance σ² over its d components.

    x: (t, d). gamma, beta: (d,). eps: a small number. The variance is divided by d. Returns (t, d).
    """
    # hole: lines
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * gamma + beta
    # end
