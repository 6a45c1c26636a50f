"""The balance loss of chapter 9c beside that of transformers: another normalisation, the same loss."""

import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from attnbook.experiments._experts import routed
from attnbook.experiments.experts_balance import per_token


def test_loads_counted_for_each_token_are_the_convention_of_transformers():
    """Its loss is what `per_token` gives, and k times ours."""
    logits = torch.randn(19, 6, generator=torch.Generator().manual_seed(0))
    info = routed(logits, 2)
    theirs = load_balancing_loss_func((logits,), 6, 2)
    torch.testing.assert_close(per_token(logits, info), theirs)
    torch.testing.assert_close(2 * info.aux_loss, theirs)
