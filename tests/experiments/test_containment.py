"""NaN stays where it may be seen in every implementation; each way in which it leaks is seen by its own measurement."""

import torch

from attnbook.api import attention
from attnbook.experiments import containment


def broken(monkeypatch, function):
    """The ids that no longer hold when attention is replaced."""
    monkeypatch.setattr(containment, "attention", function)
    return {measured.id.removeprefix("notation.") for measured in containment.run() if not measured.value}


def test_all_hold():
    """Each measurement is a boolean, and true."""
    assert all(measured.value is True for measured in containment.run())


def test_a_product_with_zero_is_seen(monkeypatch):
    """Weights read off, then multiplied with all values: 0 · NaN."""

    def multiplied(q, k, v, **options):
        lse = options.pop("return_lse", False)
        out, its = attention(q, k, torch.eye(3, dtype=v.dtype)[None, None], return_lse=True, **options)
        return (out @ v, its) if lse else out @ v

    assert broken(monkeypatch, multiplied) == {"nan_in_value", "nan_in_padding", "nan_in_query_gradient"}


def test_a_score_with_zero_is_seen(monkeypatch):
    """A NaN score that is hidden by adding −inf stays NaN."""

    def added(q, k, v, *, is_causal=False, **options):
        score = q @ k.mT
        hidden = torch.where(
            torch.ones(2, 3, dtype=torch.bool).tril(1) if is_causal else options["mask"], 0.0, -torch.inf
        )
        weight = torch.softmax(score + hidden, -1)
        v = torch.where(v.isfinite(), v, 0.0)
        return (weight @ v, torch.logsumexp(score + hidden, -1)) if options.get("return_lse") else weight @ v

    assert {"nan_in_key", "nan_in_padding"} <= broken(monkeypatch, added)


def test_cleaning_everything_is_seen(monkeypatch):
    """NaN replaced by 0 on the way in: who may see it must see it."""

    def cleaned(q, k, v, **options):
        return attention(*(torch.nan_to_num(x, nan=0.0) for x in (q, k, v)), **options)

    assert broken(monkeypatch, cleaned) >= {"nan_in_query", "nan_in_key", "nan_in_value"}
