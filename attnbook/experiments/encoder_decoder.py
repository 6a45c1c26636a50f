"""Is a model without a mask better at filling blanks, and one with a causal mask better at going on?

The same model, the same data (`_complement`), two masks and the training that belongs to each: the decoder predicts
every next digit, the encoder fills in one blank anywhere in the sequence. Then both do both jobs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _complement as task
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import causal_mask

LENGTH = 2 * task.HALF


def causal(t: int) -> Tensor:
    """The decoder's mask."""
    return torch.as_tensor(causal_mask(t, t, like=torch.empty(0)))


def everything(t: int) -> Tensor:
    """The encoder's: no mask."""
    return torch.ones(t, t, dtype=torch.bool)


@experiment
def run(seed: int = 0, models: int = 8, steps: int = 200, batch: int = 32, rate: float = 0.01) -> dict[str, Any]:
    """Train `models` encoders and `models` decoders; accuracy in filling each place, and in writing the second half."""
    generator = torch.Generator().manual_seed(seed)
    decoder, encoder = (task.Model.fresh(generator, models) for _ in range(2))

    def next_digit() -> Tensor:
        return task.next_digit_loss(decoder, task.sequences(generator, models, batch), causal(LENGTH - 1))

    def one_blank() -> Tensor:
        x = task.sequences(generator, models, batch)
        place = torch.randint(LENGTH, (models, batch, 1), generator=generator)
        logits = encoder(x.scatter(-1, place, task.BLANK), everything(LENGTH))
        losses = task.cross_entropy(logits, x)
        return losses.gather(-1, place).mean(dim=(1, 2))

    task.train(decoder, next_digit, steps=steps, rate=rate)
    task.train(encoder, one_blank, steps=steps, rate=rate)

    x = task.sequences(generator, models, 512)
    encoder_fill, decoder_fill = _encoder_fill(encoder, x), _decoder_fill(decoder, x)  # (s, 12), (s, 11)
    measure_mean("mask.encoder_fill_first", encoder_fill[:, : task.HALF].mean(1).tolist(), unit="ratio")
    measure_mean("mask.encoder_fill_second", encoder_fill[:, task.HALF :].mean(1).tolist(), unit="ratio")
    measure_mean("mask.decoder_fill_first", decoder_fill[:, : task.HALF - 1].mean(1).tolist(), unit="ratio")
    measure_mean("mask.decoder_fill_second", decoder_fill[:, task.HALF - 1 :].mean(1).tolist(), unit="ratio")
    measure_mean("mask.decoder_goes_on", task.free_running(decoder, x, causal).tolist(), unit="ratio")
    measure_mean("mask.encoder_goes_on", task.free_running(encoder, x, everything, blank=True).tolist(), unit="ratio")

    measure("mask.decoder_past_moves", _past_moves(decoder, x, causal))
    measure("mask.encoder_past_moves", _past_moves(encoder, x, everything) > 0)
    _scores_needed()
    return {"encoder_fill": encoder_fill, "decoder_fill": decoder_fill}


@torch.no_grad()
def _encoder_fill(model: task.Model, x: Tensor) -> Tensor:
    """Blank out one place after the other: share of right digits, (s, 12)."""
    hits = []
    for place in range(LENGTH):
        given = x.clone()
        given[..., place] = task.BLANK
        hits.append(model(given, everything(LENGTH))[..., place, :].argmax(-1) == x[..., place])
    return torch.stack(hits, dim=-1).double().mean(1)


@torch.no_grad()
def _decoder_fill(model: task.Model, x: Tensor) -> Tensor:
    """Predict each place but the first from those before it: share of right digits, (s, 11)."""
    logits = model(x[..., :-1], causal(LENGTH - 1))
    return (logits.argmax(-1) == x[..., 1:]).double().mean(1)


@torch.no_grad()
def _past_moves(model: task.Model, x: Tensor, mask: Any) -> Tensor:
    """How far do the outputs at the first eleven places move when the twelfth token changes?"""
    other = x.clone()
    other[..., -1] = (x[..., -1] + 1) % task.DIGITS
    return (model(x, mask(LENGTH)) - model(other, mask(LENGTH)))[..., :-1, :].abs().max()


def _scores_needed() -> None:
    """Scores computed while the second half is written, one head, one layer."""
    decoder, encoder = (measure(f"mask.{who}_scores", scores(task.HALF)) for who, scores in _SCORES.items())
    ratio = measure("mask.scores_ratio", _ratio(task.HALF), unit="ratio", derived_from=[decoder, encoder])
    measure("mask.scores_ratio_grows", _ratio(2 * task.HALF) > ratio.value)


def _decoder_scores(half: int) -> int:
    """Nothing computed before ever moves, so it is kept: each place meets itself and each earlier one once."""
    return sum(int(causal(t)[-1].sum()) for t in range(1, 2 * half))


def _encoder_scores(half: int) -> int:
    """Every place moves with each new token, so each step computes what is written, and the blank, whole."""
    return sum(int(everything(t).sum()) for t in range(half + 1, 2 * half + 1))


_SCORES = {"decoder": _decoder_scores, "encoder": _encoder_scores}


def _ratio(half: int) -> Fraction:
    return Fraction(_encoder_scores(half), _decoder_scores(half))
