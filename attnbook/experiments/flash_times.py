"""How fast are tiles in plain torch on a CPU? Not measured here: read from the record of `attnbook bench --device cpu`.

The rival is torch's own `scaled_dot_product_attention`, which makes no table either and is written in C++. Case
`causal-forward` of `attnbook.bench.attention_cases`: a ratio of one run, in which the two took turns.
"""

from __future__ import annotations

from attnbook.measure import experiment
from attnbook.records import recorded

RECORD = "records/bench-cpu.json"


@experiment
def run(record: str = RECORD) -> None:
    """Quote the record. Raises RecordError where there is none, or where it lacks the case."""
    recorded("flash.time_causal", record, "causal-forward")
