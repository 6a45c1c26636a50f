"""`explain`: which implementation a call would take, and why not the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attnbook.api.attention import check_library
from attnbook.api.call import checked
from attnbook.api.choose import choose, others

OPTIONS: dict[str, Any] = {
    "mask": None, "is_causal": False, "window": None, "alibi_slopes": None, "softcap": None,
    "sinks": None, "scale": None, "return_lse": False,
}  # fmt: skip
"""What `attention` takes by name, beside `impl`, and its defaults."""


@dataclass(frozen=True)
class Explanation:
    """Which implementation runs, why, and for each other one why not."""

    impl: str
    why: str
    rejected: dict[str, str]

    def __str__(self) -> str:
        width = max(len(name) for name in (self.impl, *self.rejected))
        lines = [f"{self.impl:{width}} runs: {self.why}"]
        return "\n".join(lines + [f"{name:{width}} not: {reason}" for name, reason in self.rejected.items()])


def explain(q: Any, k: Any, v: Any, *, impl: str = "auto", **options: Any) -> Explanation:
    """What `attention(q, k, v, **options)` would run; raises what it would raise. Nothing is calculated.

    The answer is that of the same functions which choose for `attention`, so it holds for these tensors: their sizes,
    dtype and device, whether they need gradients, and whether they are finite.
    """
    if not isinstance(q, Tensor):
        check_library(q, impl)
        missing = f"it needs torch tensors, and q is a {type(q).__name__}"
        return Explanation("reference", "it takes any array", dict.fromkeys(("tiled", "sdpa", "triton"), missing))
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(f"attention has no option {', '.join(sorted(unknown))}; it has {', '.join(OPTIONS)}")
    call = checked(q, k, v, **(OPTIONS | options))
    choice = choose(call, impl)
    return Explanation(choice.impl, choice.why, dict(others(call, choice.impl)))
