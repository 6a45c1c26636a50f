"""Window, cap, slopes, sinks and packed sequences: do all implementations keep the conventions of the notation page?

As in `conventions`, one small case each whose answer is worked out by hand, and booleans.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.api import attention, attention_varlen
from attnbook.experiments.conventions import EXACT, Attend, logistic, measure_all, near, seen
from attnbook.measure import experiment
from attnbook.reference import merge


@experiment
def run() -> dict[str, Any]:
    """All conventions of options, in the order of the page."""
    measure_all(_window, _cap, _slopes, _sinks, _sinks_without_keys, door=attention)
    measure_all(_packed, door=attention_varlen)
    return {}


def _window(attend: Attend) -> dict[str, bool]:
    some = torch.tensor([True, False, True])
    return {
        "window": seen(attend, 4, 4, is_causal=True, window=2) == ["1...", "11..", ".11.", "..11"],
        "window_of_one": seen(attend, 3, 3, is_causal=True, window=1) == ["1..", ".1.", "..1"],
        "window_aligned": seen(attend, 2, 5, is_causal=True, window=2) == ["..11.", "...11"],
        "window_and_mask": seen(attend, 3, 3, mask=some, is_causal=True, window=2) == ["1..", "1..", "..1"],
    }


def _cap(attend: Attend) -> dict[str, bool]:
    def score(*, q: float = 12.0, t_kv: int = 1, **options: Any) -> Tensor:
        """The score of key 0: of the only key that is seen, it is the log-sum-exp."""
        keys = torch.ones(1, 1, t_kv, 1, dtype=EXACT)
        only = {"mask": torch.arange(t_kv) == 0} if t_kv > 1 else {}
        return attend(q * keys[:, :, :1], keys, keys, return_lse=True, **only | options)[1]  # type: ignore[no-any-return]

    scores = torch.tensor([-49.0, -49.5, 0.0], dtype=EXACT)[None, None, :, None]
    hidden = {"mask": torch.tensor([0.0, 0.0, -torch.inf], dtype=EXACT), "softcap": 50.0}
    weight = attend(torch.ones(1, 1, 1, 1, dtype=EXACT), scores, torch.eye(3, dtype=EXACT)[None, None], **hidden)
    bias, slope = torch.tensor([-5.0], dtype=EXACT), torch.tensor([0.5], dtype=EXACT)
    return {
        "cap": near(score(softcap=4.0), 4 * math.tanh(3)) and near(score(q=-1e9, softcap=4.0), -4.0),
        "scale_then_cap": near(score(scale=0.25, softcap=4.0), 4 * math.tanh(0.75)),
        "cap_then_bias": near(score(softcap=4.0, mask=bias), 4 * math.tanh(3) - 5),
        "cap_then_slopes": near(score(t_kv=11, softcap=4.0, alibi_slopes=slope), 4 * math.tanh(3) - 5),
        "cap_then_mask": weight[0, 0, 0, 2].item() == 0 and bool(weight[0, 0, 0, 1] > 0),
    }


def _slopes(attend: Attend) -> dict[str, bool]:
    def penalty(t_q: int, t_kv: int, slopes: list[float], **options: Any) -> Tensor:
        """What each weight has lost against the weight at distance 0, as a logarithm; (h, t_q, t_kv)."""
        h = len(slopes)
        q, k = torch.zeros(1, h, t_q, 2, dtype=EXACT), torch.zeros(1, h, t_kv, 2, dtype=EXACT)
        v = torch.eye(t_kv, dtype=EXACT).expand(1, h, t_kv, t_kv)
        weight: Tensor = attend(q, k, v, alibi_slopes=torch.tensor(slopes, dtype=EXACT), **options)[0]
        return (weight / weight.diagonal(t_kv - t_q, 1, 2)[..., None]).log().round(decimals=12)

    positive = attend(
        torch.zeros(1, 1, 1, 2, dtype=EXACT), torch.zeros(1, 1, 3, 2, dtype=EXACT),
        torch.eye(3, dtype=EXACT)[None, None], mask=torch.tensor([0.0, 0.5, 1.0], dtype=EXACT),
    )  # fmt: skip
    ours = attend(
        torch.zeros(1, 1, 1, 2, dtype=EXACT), torch.zeros(1, 1, 3, 2, dtype=EXACT),
        torch.eye(3, dtype=EXACT)[None, None], alibi_slopes=torch.tensor([0.5], dtype=EXACT), is_causal=True,
    )  # fmt: skip
    return {
        "slopes": near(penalty(1, 3, [0.5]), [-1.0, -0.5, 0.0]),
        "slopes_both_sides": near(penalty(3, 3, [0.5])[0, 1], [-0.5, 0.0, -0.5]),
        "slopes_of_heads": near(penalty(1, 2, [0.5, 0.25])[:, 0, 0], [-0.5, -0.25]),
        "slopes_of_keys": near(ours, positive.flatten().tolist()),
    }


def _sinks(attend: Attend) -> dict[str, bool]:
    zero, one = torch.zeros(1, 1, 1, 1, dtype=EXACT), torch.ones(1, 1, 1, 1, dtype=EXACT)
    sink = torch.tensor([3.0], dtype=EXACT)
    out, lse = attend(zero, one, one, sinks=sink, return_lse=True)  # one key of score 0 and value 1
    alike = ({"scale": 7.0}, {"softcap": 2.0}, {"mask": torch.tensor([True])}, {"mask": torch.tensor([0.0])})
    q, k, v = torch.arange(24.0, dtype=EXACT).sin().reshape(3, 1, 1, 8, 1)[..., :3].expand(3, 1, 1, 8, 3)
    whole = attend(q, k, v, sinks=sink, return_lse=True)
    parts = (
        attend(q, k[:, :, :5], v[:, :, :5], sinks=sink, return_lse=True),
        attend(q, k[:, :, 5:], v[:, :, 5:], return_lse=True),
    )
    merged = merge(*parts[0], *parts[1])
    pairs = zip(merged, whole, strict=True)
    return {
        "sinks": near(out, logistic(-3)),
        "sinks_as_they_are": all(
            near(attend(zero, one, one, sinks=sink, **options), logistic(-3)) for options in alike
        ),
        "sinks_in_lse": near(lse, math.log(1 + math.exp(3))),
        "sinks_once": all(near(got, wanted.flatten().tolist()) for got, wanted in pairs),
    }


def _sinks_without_keys(attend: Attend) -> dict[str, bool]:
    q, k = torch.ones(1, 2, 2, 3, requires_grad=True), torch.ones(1, 2, 1, 3)
    sinks = torch.tensor([3.0, -1.0], requires_grad=True)
    out, lse = attend(q, k, k, is_causal=True, sinks=sinks, return_lse=True)  # row 0 sees no key
    rest = lse[0, :, 0].sum() + out[0, :, 0].sum()
    rest.backward()
    gradients = q.grad is not None and not q.grad.any() and sinks.grad is not None and sinks.grad.tolist() == [1.0, 1.0]
    return {
        "sinks_alone": not out[0, :, 0].any() and lse[0, :, 0].tolist() == [3.0, -1.0],
        "sinks_alone_gradient": gradients,
    }


def _packed(attend: Attend) -> dict[str, bool]:
    """Lengths 2, 0 and 1 of q and 3, 1 and 2 of k; a row of each is left over."""
    ends_q, ends_k = [0, 2, 2, 3], [0, 3, 4, 6]
    q, k = torch.zeros(4, 2, 5), torch.zeros(7, 1, 5)
    v = torch.eye(7)[:, None]  # the output is the weights
    out, lse = attend(q, k, v, ends_q, torch.tensor(ends_k), return_lse=True)
    if (tuple(out.shape), tuple(lse.shape)) != ((4, 2, 7), (4, 2)):
        return dict.fromkeys(("packed", "packed_own", "packed_causal", "packed_rest"), False)
    causal = attend(q, k, v, ends_q, ends_k, is_causal=True)
    own, causal_own = (
        ["".join("1" if w > 0 else "." for w in row) for row in x[:3, 0].tolist()] for x in (out, causal)
    )
    return {
        "packed": True,
        "packed_own": own == ["111....", "111....", "....11."],
        "packed_causal": causal_own == ["11.....", "111....", "....11."],
        "packed_rest": not out[3].any() and bool((lse[3] == -torch.inf).all()),
    }
