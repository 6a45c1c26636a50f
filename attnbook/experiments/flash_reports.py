"""What the papers on FlashAttention report of its speed, on their machines: cited, not measured here.

Each number is in the abstract of the paper named beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnbook.measure import experiment, measure

FIRST = "Dao et al. 2022, arXiv:2205.14135, abstract"
SECOND = "Dao 2023, arXiv:2307.08691, abstract"
THIRD = "Shah et al. 2024, arXiv:2407.08608, abstract"


@dataclass(frozen=True)
class Reported:
    """One number of a paper."""

    id: str
    value: float
    source: str
    unit: str = "ratio"


REPORTED = (
    Reported("flash.paper_bert", 0.15, FIRST),
    Reported("flash.paper_gpt2", 3, FIRST),
    Reported("flash.paper_long_range", 2.4, FIRST),
    Reported("flash.paper_second_over_first", 2, SECOND),
    Reported("flash.paper_second_least", 0.50, SECOND),
    Reported("flash.paper_second_most", 0.73, SECOND),
    Reported("flash.paper_third_over_second_least", 1.5, THIRD),
    Reported("flash.paper_third_over_second_most", 2.0, THIRD),
    Reported("flash.paper_second_on_hopper", 0.35, THIRD),
    Reported("flash.paper_third_most", 0.75, THIRD),
)


@experiment
def run() -> None:
    """Name the numbers, so that sentences can quote them with their source."""
    for reported in REPORTED:
        measure(reported.id, reported.value, unit=reported.unit, kind="cited", source=reported.source)
