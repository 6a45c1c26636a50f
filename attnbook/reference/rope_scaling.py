"""How fast each pair of RoPE turns, and the ways to make it turn slower for contexts longer than the trained one.

Pair i of a head turns by `theta ** (-2i / rotary_dim)` radians a position: the first pair by 1, the last by almost
1 / theta. Each class below is one published way to change these frequencies. Plain Python floats, which are float64:
there are only rotary_dim / 2 of them, and no library has to be known.

    linear     every frequency / factor                          the whole clock slower
    NTK        a larger theta                                    the fast pairs kept, the slow ones slowed by `factor`
    YaRN       fast kept, slow / factor, a ramp between          and scores sharpened by `attention_factor`
    Llama-3    the same idea, another ramp                       chosen by wavelength
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class RopeScaling(ABC):
    """What `rope` asks of a scaling; the classes below answer."""

    needs_length: ClassVar[bool] = False
    """Do the frequencies depend on how long the sequence is?"""

    @abstractmethod
    def frequencies(self, theta: float, rotary_dim: int, length: int | None = None) -> list[float]:
        """Radians a position of each of the rotary_dim / 2 pairs; `length` is the largest position plus 1."""

    def sharpening(self) -> float:
        """What the turned components of q and of k are multiplied by; their scores therefore by its square."""
        return 1.0


def plain_frequencies(theta: float, rotary_dim: int) -> list[float]:
    """theta^(−2i / rotary_dim) for pair i, in radians a position. Su et al. 2021, section 3.2.2."""
    return [theta ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]


@dataclass(frozen=True)
class LinearScaling(RopeScaling):
    """Position interpolation: every position divided by `factor`, so that a longer context fits the trained range.

    Chen et al. 2023, "Extending context window of large language models via positional interpolation", section 2.3.
    Raises ValueError for a factor that is not a finite number above 0.
    """

    factor: float

    def __post_init__(self) -> None:
        _check_positive("factor", self.factor)

    def frequencies(self, theta: float, rotary_dim: int, length: int | None = None) -> list[float]:
        """Those of plain RoPE divided by the factor; `length` is not used."""
        return [f / self.factor for f in plain_frequencies(theta, rotary_dim)]


@dataclass(frozen=True)
class NTKScaling(RopeScaling):
    """NTK-aware scaling: theta grows by factor^(r / (r − 2)), r = rotary_dim.

    The exponent makes the slowest pair turn exactly `factor` times slower and leaves the fastest as it is. Proposed by
    bloc97 on r/LocalLLaMA, June 2023; written down in Peng et al. 2023 (YaRN), section 3.1. With rotary_dim 2 the only
    pair is the fastest. Raises ValueError for a factor that is not a finite number above 0.
    """

    factor: float

    def __post_init__(self) -> None:
        _check_positive("factor", self.factor)

    def frequencies(self, theta: float, rotary_dim: int, length: int | None = None) -> list[float]:
        """Those of plain RoPE with the larger theta; `length` is not used."""
        if rotary_dim > 2:
            theta = theta * self.factor ** (rotary_dim / (rotary_dim - 2))
        return plain_frequencies(theta, rotary_dim)


@dataclass(frozen=True)
class DynamicNTKScaling(RopeScaling):
    """NTK-aware scaling whose factor grows with the sequence: 1 up to `original_length`, then a straight line.

    At `length` tokens the factor is factor · length / original_length − (factor − 1). emozilla on r/LocalLLaMA, July
    2023; `"dynamic"` in Hugging Face transformers' `modeling_rope_utils.py`. Every longer sequence turns *all* of its
    keys at other speeds, so keys that a cache keeps rotated belong to an older, shorter length: cached decoding past
    `original_length` is not the full forward.
    Raises ValueError for a factor or original_length that is not above 0.
    """

    factor: float
    original_length: int
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_positive("factor", self.factor)
        _check_positive("original_length", self.original_length)

    def frequencies(self, theta: float, rotary_dim: int, length: int | None = None) -> list[float]:
        """Those of `NTKScaling` with the factor of this length; `original_length` where no length is given."""
        length = max(length or 0, self.original_length)
        grown = self.factor * length / self.original_length - (self.factor - 1)
        return NTKScaling(grown).frequencies(theta, rotary_dim)


@dataclass(frozen=True)
class YarnScaling(RopeScaling):
    """YaRN: pairs that turn often within `original_length` are kept, those that hardly turn are slowed by `factor`.

    "Often" is `beta_fast` full turns or more, "hardly" `beta_slow` or fewer; between them a straight ramp over the
    pair's number i (not over its turns), whose ends are rounded outwards to whole pairs unless `truncate` is False.
    Scores are sharpened too: rotated components are multiplied by `attention_factor`, by default 0.1 · ln factor + 1;
    with `mscale` and `mscale_all_dim` (DeepSeek) it is the quotient of that expression with ln factor times each.

    Peng et al. 2023, "YaRN: efficient context window extension of large language models", section 3.2 to 3.4; rounding
    and mscale as in its code and Hugging Face transformers' `modeling_rope_utils.py`.
    Raises ValueError for numbers that are not above 0, or beta_fast below beta_slow.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        for name in ("factor", "original_length", "beta_fast", "beta_slow"):
            _check_positive(name, getattr(self, name))
        if self.beta_fast < self.beta_slow:
            raise ValueError(f"beta_fast is {self.beta_fast} but beta_slow is {self.beta_slow}: expected at least that")
        if self.attention_factor is not None:
            _check_positive("attention_factor", self.attention_factor)

    def sharpening(self) -> float:
        """`attention_factor`, or what the formula above gives."""

        def formula(mscale: float) -> float:
            return 0.1 * mscale * math.log(self.factor) + 1 if self.factor > 1 else 1.0

        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return formula(self.mscale) / formula(self.mscale_all_dim)
        return formula(1.0)

    def frequencies(self, theta: float, rotary_dim: int, length: int | None = None) -> list[float]:
        """Kept, slowed, or between; `length` is not used. Raises ValueError for a theta that is not above 1."""
        if theta <= 1:
            raise ValueError(f"theta is {theta}: expected above 1, or no pair turns slower than another")

        def pair_that_turns(turns: float) -> float:  # original_length · theta^(−2i / rotary_dim) = 2π · turns, for i
            return rotary_dim * math.log(self.original_length / (2 * math.pi * turns)) / (2 * math.log(theta))

        low, high = pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        if low == high:
            high += 0.001  # a step, without dividing by 0
        slowed = (min(max((i - low) / (high - low), 0.0), 1.0) for i in range(rotary_dim // 2))
        plain = plain_frequencies(theta, rotary_dim)
        return [f * (1 - share) + f / self.factor * share for f, share in zip(plain, slowed, strict=True)]


@dataclass(frozen=True)
class Llama3Scaling(RopeScaling):
    """Llama 3.1's: by wavelength, the number of positions a full turn takes.

    Wavelengths up to original_length / high_freq_factor are kept, those from original_length / low_freq_factor on are
    slowed by `factor`, and between them the frequency is a mean of both, weighted by the turns within original_length.
    The defaults are Llama 3.1's; Llama 3.2 has factor 32. `apply_scaling` in Meta's llama-models repository
    (models/llama3/model.py); Grattafiori et al. 2024 give theta only.
    Raises ValueError for numbers that are not above 0, or high_freq_factor not above low_freq_factor.
    """

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_length"):
            _check_positive(name, getattr(self, name))
        low, high = self.low_freq_factor, self.high_freq_factor
        if high <= low:
            raise ValueError(f"high_freq_factor is {high} but low_freq_factor is {low}: expected more than that")

    def frequencies(self, theta: float, rotary_dim: int, length: int | None = None) -> list[float]:
        """Kept, slowed, or between; `length` is not used."""

        def scaled(f: float) -> float:
            turns = self.original_length * f / (2 * math.pi)
            kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
            kept = min(max(kept, 0.0), 1.0)
            return kept * f + (1 - kept) * f / self.factor

        return [scaled(f) for f in plain_frequencies(theta, rotary_dim)]


def scaling_from_config(
    config: Mapping[str, Any] | None, *, max_position_embeddings: int | None = None
) -> RopeScaling | None:
    """The scaling that `rope_scaling` (or `rope_parameters`) of a Hugging Face `config.json` asks for; None for none.

    `config` is that entry, which most files have as null: None. A whole file is refused, and so is an entry with a
    mapping for each kind of layer (Gemma 3 in transformers 5): give one of those. `max_position_embeddings` is the
    config's entry of that name: the dynamic kind reads its trained length there, and the others where the mapping has
    no `original_max_position_embeddings`. Entries that concern no scaling, such as `rope_theta`, are passed over.

    Raises ValueError for an unknown kind or a missing entry, naming it, and for the mappings above, saying which part
    is meant; TypeError for anything but a mapping or None.
    """
    if config is None:
        return None
    _check_entry(config)
    kind = str(config.get("rope_type", config.get("type", "default")))
    if kind not in _KINDS:
        raise ValueError(f"rope scaling is {kind!r}: expected one of {', '.join(map(repr, _KINDS))}")
    scaling, needed, optional = _KINDS[kind]
    if scaling is None:
        return None
    given = {key: value for key, value in config.items() if value is not None}
    length = given.get(_LENGTH, max_position_embeddings)
    if kind == "dynamic":  # transformers reads the model's own length here, whatever else is written
        length = max_position_embeddings or length
    if length is not None:
        given["original_length"] = length
    missing = [_named(key) for key in needed if key not in given]
    if missing:
        raise ValueError(
            f"rope scaling {kind!r} has no {' and no '.join(missing)}: expected {', '.join(map(_named, needed))}"
        )
    made: RopeScaling = scaling(**{key: given[key] for key in (*needed, *optional) if key in given})
    return made


def _check_entry(config: object) -> None:
    """Raises for what is no entry about scaling but holds one: it would read as "no scaling"."""
    if not isinstance(config, Mapping):
        raise TypeError(f"rope scaling is a {type(config).__name__}: expected a mapping of Hugging Face's, or None")
    for key in ("rope_scaling", "rope_parameters"):
        if key in config:
            raise ValueError(f"rope scaling is a whole config, with {key}: expected what it has there, config[{key!r}]")
    if "rope_type" in config or "type" in config:
        return
    for key in ("model_type", "hidden_size"):
        if key in config:
            raise ValueError(f"rope scaling is a whole config, with {key}: expected its rope_scaling, or None")
    parts = [key for key, value in config.items() if isinstance(value, Mapping)]
    if parts:
        raise ValueError(f"rope scaling has a mapping for each of {', '.join(parts)}: expected one of them alone")


_LENGTH = "original_max_position_embeddings"


def _named(key: str) -> str:
    """An argument of the classes by its name in a config."""
    return _LENGTH if key == "original_length" else key


_YARN = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")
_KINDS: dict[str, tuple[Callable[..., RopeScaling] | None, tuple[str, ...], tuple[str, ...]]] = {
    "default": (None, (), ()),
    "linear": (LinearScaling, ("factor",), ()),
    "ntk": (NTKScaling, ("factor",), ()),
    "dynamic": (DynamicNTKScaling, ("factor", "original_length"), ()),
    "yarn": (YarnScaling, ("factor", "original_length"), _YARN),
    "llama3": (Llama3Scaling, ("factor", "low_freq_factor", "high_freq_factor", "original_length"), ()),
}
"""Hugging Face's names (and "ntk", which it has not): the class, the entries it needs, those it may have."""


def _check_positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}: expected a finite number above 0")
