"""`explain`: which implementation a call would take, and why not the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attnbook.api.autocast import cast
from attnbook.api.call import checked
from attnbook.api.choose import check_library, choose, others, others_varlen
from attnbook.api.varlen import checked_varlen

OPTIONS: dict[str, Any] = {
    "mask": None, "is_causal": False, "window": None, "alibi_slopes": None, "softcap": None,
    "sinks": None, "scale": None, "return_lse": False,
}  # fmt: skip
"""What `attention` takes by name, beside `impl`, and its defaults."""

CU_SEQLENS = ("cu_seqlens_q", "cu_seqlens_k")


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


def explain(q: Any, k: Any, v: Any, *packed: Any, impl: str = "auto", **options: Any) -> Explanation:
    """What `attention(q, k, v, **options)` would run; raises what it would raise. No attention is calculated.

    Arrays that are no torch tensors are not looked at: the reference is the only one that takes them.

    With `cu_seqlens_q` and `cu_seqlens_k`, by position or name, what `attention_varlen` would run. The answer comes
    from the same functions that choose for both, so it holds for these tensors: their sizes, dtype and device, whether
    they need gradients, and whether they are finite.

        print(explain(q, k, v, is_causal=True, window=512))

    Raises TypeError for an option that does not exist.
    """
    ends = [*packed, *(options.pop(name) for name in CU_SEQLENS[len(packed) :] if name in options)]
    if len(ends) not in (0, 2):
        raise TypeError("explain takes cu_seqlens_q and cu_seqlens_k, or neither")
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(f"attention has no option {', '.join(sorted(unknown))}; it has {', '.join(OPTIONS)}")
    if not isinstance(q, Tensor):
        check_library(q, impl)
        missing = f"it needs torch tensors, and q is a {type(q).__name__}"
        return Explanation("reference", "it takes any array", dict.fromkeys(("tiled", "sdpa", "triton"), missing))
    if ends:
        choice, sdpa = checked_varlen(*cast(q, k, v), ends[0], ends[1], impl, **options)
        return Explanation(*choice, dict(others_varlen(q, v, choice.impl, sdpa)))
    call = checked(q, k, v, **(OPTIONS | options))
    choice = choose(call, impl)
    return Explanation(*choice, dict(others(call, choice.impl)))
