"""From times to a figure: our rate, every other side's, the share of a ceiling, the ratio to the best of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attnbook.bench import truth
from attnbook.bench.case import Disagree, Finding, Setting, Times, in_turns
from attnbook.bench.ceilings import PREFIX, Ceiling
from attnbook.bench.rivals import Rivals


def inputs(setting: Setting, *shapes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Standard normal tensors, the same in every run on one device; made there, for there are billions of numbers."""
    generator = torch.Generator(setting.device).manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=dtype, device=setting.device) for shape in shapes]


OURS = "attnbook"
MOST = 100
"""Rounds, at most."""


def measured(
    run: Callable[[], Any],
    rivals: Rivals,
    setting: Setting,
    *,
    amount: int,
    unit: str,
    ceiling: tuple[str, Ceiling],
    as_share: bool = False,
) -> Finding:
    """Our call, torch's and the ceiling's in turns -> the finding. `amount`: what one call does, in FLOP or bytes.

    The figure is our rate; with `as_share` it is that in percent of the ceiling's.
    """
    limit, card = ceiling
    times = in_turns({OURS: run, **rivals.sides, limit: card.run}, setting, most=MOST)
    medians = times.medians()
    rates = {name: (card.amount if name == limit else amount) / seconds / PREFIX[unit]
             for name, seconds in medians.items()}  # fmt: skip
    # Ratios round by round: what slows a whole round leaves its ratio alone.
    shares = {f"of {limit}": times.ratio(limit, OURS) * amount / card.amount} | best_of(times, rivals)
    return Finding(
        100 * shares[f"of {limit}"] if as_share else rates[OURS], medians, ran="triton", rates=rates, rate_unit=unit,
        shares=shares, spread=rates[OURS] * times.spread(OURS), absent=rivals.absent,
    )  # fmt: skip


def best_of(times: Times, rivals: Rivals) -> dict[str, float]:
    """How many times as long the fastest of torch's sides takes; nothing where none ran."""
    medians = {name: seconds for name, seconds in times.medians().items() if name in rivals.sides}
    if not medians:
        return {}
    best = min(medians, key=lambda name: medians[name])
    return {f"over {best}": times.ratio(best, OURS)}


def keep_right(ours: Tensor | tuple[Tensor, ...], rivals: Rivals, judge: Callable[[Any], float]) -> None:
    """Our result must be right (raises Disagree); a rival whose result is not is no rival.

    `judge` gives the error of a result as a multiple of what is allowed.
    """
    error = judge(ours)
    if not error <= 1:
        raise Disagree(f"the error is {error:.3g} times what rounding explains")
    for name in list(rivals.sides):
        error = judge(rivals.sides[name]())
        if not error <= RIVAL:
            del rivals.sides[name]
            rivals.absent[name] = f"wrong: the error is {error:.3g} times what rounding explains"


RIVAL = 2.0
"""Torch's own sides may be twice as far off as ours: whoever is right within that does the same job."""


def rows_judge(q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any], rows: int = 256) -> Callable[..., float]:
    """Judges an output (b, n_heads, t_q, d_v) by the first and the last rows of two heads, each for itself.

    The first rows see few keys and are large, the last see many and are small: a limit for both would hide the latter.
    """
    places = []
    n_heads, t_q, t_kv = q.shape[1], q.shape[2], k.shape[2]
    group = n_heads // k.shape[1]
    for b, h in {(0, 0), (q.shape[0] - 1, n_heads - 1)}:
        for first in {0, max(t_q - rows, 0)}:
            last = min(first + rows, t_q)
            end = last + t_kv - t_q if options.get("is_causal") else t_kv  # keys beyond are hidden from these rows
            part = (
                q[b : b + 1, h : h + 1, first:last],
                *(x[b : b + 1, h // group : h // group + 1, :end] for x in (k, v)),
            )
            right, plain = (
                truth.dense(*(x.to(dtype) for x in part), **options)[0] for dtype in (torch.float64, q.dtype)
            )
            places.append((b, h, first, last, right, plain))

    def judge(out: Tensor) -> float:
        return max(truth.excess(out[b : b + 1, h : h + 1, first:last], right, plain)
                   for b, h, first, last, right, plain in places)  # fmt: skip

    return judge
