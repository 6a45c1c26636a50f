"""Do weights counted from the table's shapes agree with what is published of the models, and with their names?

What is published is read from `attnbook/costs/published.csv`, with the source of each; the count knows the shape
alone. Two makers leave the input's embedding out of the active weights: then it is left out of ours as well.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from attnbook.costs import count_parameters, names
from attnbook.costs.published import BILLION, Published, agrees, in_name, published
from attnbook.measure import experiment, measure

SHOWN = {
    "llama": "Llama-3.1-8B",
    "qwen": "Qwen2.5-7B",
    "llama70": "Llama-3.1-70B",
    "mixtral": "Mixtral-8x7B",
    "a3b": "Qwen3-30B-A3B",
    "oss": "gpt-oss-120b",
    "deepseek": "DeepSeek-V3",
}

ROUNDED = 6
"""A statement of so few characters is rounded; a longer one is a count to the last weight."""


@experiment
def run() -> Any:
    """All models of the table. Data: `apart`, the names whose numbers are not those of their weights."""
    stated = published()
    measure("costs.published_models", len(stated))
    measure("costs.published_agree", all(agrees(count_parameters(name).total, stated[name].total) for name in stated))
    exact = [entry for entry in stated.values() if len(entry.total) > ROUNDED]
    measure("costs.exact_models", len(exact))
    measure("costs.exact_agree", all(billions(entry.total) == count_parameters(entry.model).total for entry in exact))
    sparse = [entry for entry in stated.values() if entry.active]
    measure("costs.published_sparse", len(sparse))
    measure("costs.active_agree", all(agrees(active(entry), entry.active) for entry in sparse))
    for key, name in SHOWN.items():
        entry = stated[name]
        measure(f"costs.total_{key}", count_parameters(name).total)
        _cite(f"costs.stated_{key}", entry.total, entry)
        if entry.active:
            measure(f"costs.active_{key}", active(entry))
            _cite(f"costs.stated_active_{key}", entry.active, entry)
    mixtral = count_parameters(SHOWN["mixtral"])
    measure("costs.rest_mixtral", mixtral.total - mixtral.feed_forward)
    named = {name: in_name(name) for name in names() if in_name(name)[0]}
    apart = [name for name, sizes in named.items() if not _fits(name, *sizes)]
    measure("costs.names_read", len(named))
    measure("costs.names_apart", len(apart))
    return {"apart": apart}


def active(entry: Published) -> int:
    """The weights that a token uses, with or without the input's embedding as the maker counts."""
    found = count_parameters(entry.model)
    return found.active - (found.embedding if entry.without_input_embedding else 0)


def billions(text: str) -> int:
    """What is stated in billions, as a count."""
    return int(Decimal(text) * BILLION)


def _fits(name: str, total: str, active: str) -> bool:
    """Do both numbers of a name agree with the weights?"""
    found = count_parameters(name)
    return agrees(found.total, total) and (not active or agrees(found.active, active))


def _cite(id: str, text: str, entry: Published) -> None:
    measure(id, billions(text), kind="cited", source=f"{entry.source} (attnbook/costs/published.csv)")
