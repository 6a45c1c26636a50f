"""The table of published models, `models.csv`: one row a model, every number with the file that it was taken from.

Only shapes, no weights. Columns that are empty say "no" or "none": no window, no experts, no bias. `local_period` p
means that every p-th layer sees everything and the others see `window` keys; `local_layers` is how many those are, and
is checked against it. `source` is the file in which the sizes were read, with its version. The columns from `qkv_bias`
on are what the family's class in transformers 5.24.0 builds: built from each row, without weights, it has as many
parameters as `count_parameters` says. What others state of the weights is in `published.csv` and in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from attnbook.costs.shape import Experts, Latent, ModelShape

TABLE = Path(__file__).with_name("models.csv")


def names() -> list[str]:
    """The names of all models of the table, in its order."""
    return list(_table())


def model(name: str) -> ModelShape:
    """The shape of a published model, by its name in the table; capitals do not matter.

    Raises ValueError that suggests the names nearest to an unknown one.
    """
    table = _table()
    folded = {known.lower(): known for known in table}
    if name.lower() not in folded:
        from difflib import get_close_matches

        near = [folded[found] for found in get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
        advice = f"did you mean {' or '.join(near)}?" if near else "attnbook.costs.models.names() lists them"
        raise ValueError(f"model: expected a name of the table or a config, got {name!r}: {advice}")
    return table[folded[name.lower()]]


def find_shape(model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape | Any) -> ModelShape:
    """The shape that an argument stands for: itself, a name of the table, or a Hugging Face config.

    A string that ends in `.json` or names an existing file or folder is a path; a folder holds a `config.json`. An
    object with `to_dict()`, such as a config of transformers, is read as its dictionary. Raises ValueError for an
    unknown name or a config that cannot be read, TypeError for anything else.
    """
    from attnbook.costs.config import read_config

    if isinstance(model_or_config, ModelShape):
        return model_or_config
    if isinstance(model_or_config, Mapping):
        return read_config(model_or_config)
    if isinstance(model_or_config, str | PathLike):
        path = Path(fspath(model_or_config))
        if not isinstance(model_or_config, str) or path.suffix == ".json" or path.exists():
            return read_config(path)
        return model(model_or_config)
    if hasattr(model_or_config, "to_dict"):
        return read_config(model_or_config.to_dict())
    raise TypeError(
        "model_or_config: expected a name, a ModelShape, a path, a dictionary or an object with to_dict(), "
        f"got {type(model_or_config).__name__}"
    )


@cache
def _table() -> dict[str, ModelShape]:
    from csv import DictReader

    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["model"]: _shape(row) for row in DictReader(file)}


def _shape(row: dict[str, str]) -> ModelShape:
    def number(column: str) -> int | None:
        return int(row[column]) if row[column] else None

    def sized(column: str) -> int:
        if not row[column]:
            raise ValueError(f"{row['model']}: {column}: expected a number, got nothing")
        return int(row[column])

    layers = sized("layers")
    return ModelShape(
        name=row["model"],
        layers=layers,
        d_model=sized("d_model"),
        n_heads=sized("n_heads"),
        n_kv_heads=sized("n_kv_heads"),
        head_dim=sized("head_dim"),
        vocab=sized("vocab"),
        windows=_windows(row["model"], layers, number("window"), number("local_period"), number("local_layers")),
        d_ff=number("d_ff"),
        latent=None
        if number("kv_lora_rank") is None
        else Latent(
            sized("kv_lora_rank"),
            sized("qk_rope_head_dim"),
            sized("qk_nope_head_dim"),
            sized("v_head_dim"),
            number("q_lora_rank"),
        ),
        experts=None
        if number("experts") is None
        else Experts(
            n=sized("experts"),
            active=sized("active_experts"),
            d_ff=sized("expert_d_ff"),
            layers=tuple(layer >= (number("dense_layers") or 0) for layer in range(layers)),
            shared_d_ff=number("shared_d_ff") or 0,
            router_bias=bool(row["router_bias"]),
            expert_bias=bool(row["expert_bias"]),
        ),
        qkv_bias=bool(row["qkv_bias"]),
        o_bias=bool(row["o_bias"]),
        qk_norm=_qk_norm(row),
        norms=number("norms") or 2,
        sinks=bool(row["sinks"]),
        tied=bool(row["tied"]),
        context=number("context"),
        rope_theta=number("rope_theta"),
        local_rope_theta=number("local_rope_theta"),
        source=row["source"],
    )


def _qk_norm(row: dict[str, str]) -> Literal["", "head", "full"]:
    match row["qk_norm"]:
        case "" | "head" | "full" as known:
            return known
        case other:
            raise ValueError(f"{row['model']}: qk_norm: expected 'head', 'full' or nothing, got {other!r}")


def _windows(
    name: str, layers: int, window: int | None, period: int | None, local: int | None
) -> tuple[int | None, ...]:
    windows = tuple(window if period and (layer + 1) % period else None for layer in range(layers))
    found = sum(entry is not None for entry in windows)
    if found != (local or 0):
        raise ValueError(f"{name}: local_layers: expected {found}, as local_period {period} has it, got {local}")
    return windows
