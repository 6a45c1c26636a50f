"""How much time does a window save? Not measured here: read from the record of `attnbook bench --device cpu`.

Both figures are ratios of one run, in which the two sides took turns: the window in tiles against the same window given
to torch's `scaled_dot_product_attention` as a boolean mask. Cases `window-forward` and `window-training` of
`attnbook.bench.attention_cases`.
"""

from __future__ import annotations

from attnbook.measure import experiment
from attnbook.records import recorded

RECORD = "records/bench-cpu.json"


@experiment
def run(record: str = RECORD) -> None:
    """Quote the record. Raises RecordError where there is none, or where it lacks a case."""
    recorded("window.time_forward", record, "window-forward")
    recorded("window.time_training", record, "window-training")
