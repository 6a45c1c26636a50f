"""The backward kernels against float64: every set of options × dtype × shape × way the memory lies.

Sizes and options are those of the forward kernel's product. Out and lse are the truth's, rounded: what is judged is the
backward pass alone, next to plain ones from the same two.
"""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import torch

from attnbook.kernels import flash
from tests.kernels import forward_product
from tests.kernels.device import DEVICE
from tests.kernels.forward_product import DTYPES, OPTIONS, VIEWS, Case, every_other, met, options_of, oracle
from tests.tolerance import as_float64, assert_refuses, assert_right, exact, plain_gradients

# (b, n_heads, n_kv_heads, t_q, t_kv, d, d_v). The interpreter's tiles have 32 or 64 queries and keys.
SHAPES = forward_product.SHAPES | {"small": (1, 4, 2, 37, 43, 9, 7)}
LAYOUTS = ("contiguous", "positions first", "components first", "sliced", "mask sliced")
AXES = (OPTIONS, tuple(DTYPES), tuple(SHAPES), LAYOUTS)
NAMES = {"mask": "bias", "alibi_slopes": "alibi_slopes", "sinks": "sinks"}
"""What the truth calls the options that have gradients."""


def cases() -> Iterator[Case]:
    """Every case there is."""
    return itertools.starmap(Case, itertools.product(*AXES))


FEWER = {
    0: {"window of one", "long window", "first tile hidden", "lowest floats"},
    2: {"more keys", "one query", "whole tiles", "small"},
}
"""What pairs leave to the whole product: values of the axes options and shapes."""


def pairs(seed: int = 0) -> list[Case]:
    """Cases in which every two values of two axes meet: greedy, the same list for the same seed."""
    choose = random.Random(seed)
    every = [case for case in cases() if not any(case[axis] in left_out for axis, left_out in FEWER.items())]
    missing = {pair for case in every for pair in met(case)}
    chosen: list[Case] = []
    while missing:
        best = max(choose.sample(every, 150), key=lambda case: len(missing & met(case)))
        missing -= met(best)
        chosen.append(best)
    return chosen


def check(case: Case) -> str | None:
    """What is wrong with the kernels' gradients; None where nothing is."""
    try:
        run(case)
    except AssertionError as error:
        return str(error) or "an assertion without words"
    return None


def run(case: Case, *, controls: bool = False) -> None:
    """AssertionError unless every gradient is right; with `controls`, unless garbage would be refused too."""
    b, n_heads, n_kv_heads, t_q, t_kv, d, d_v = SHAPES[case.shape]
    seed, dtype = torch.Generator().manual_seed(11), DTYPES[case.dtype]
    shapes = ((b, n_heads, t_q, d), (b, n_kv_heads, t_kv, d), (b, n_kv_heads, t_kv, d_v), (b, n_heads, t_q, d_v))
    q, k, v, d_out = (torch.randn(shape, generator=seed).to(dtype) for shape in shapes)
    d_lse = torch.randn(b, n_heads, t_q, generator=seed)
    options = options_of(case.options, (b, n_heads, t_q, t_kv), seed, dtype)
    known = oracle(options, (b, n_heads, t_q, t_kv), dtype) | {"d_out": d_out, "d_lse": d_lse}
    mask = options.get("mask")
    if "bias" in known:  # the truth sums over the axes that a mask does not have
        known["bias"] = torch.where(mask > torch.finfo(dtype).min, mask, 0.0)
    right = exact(q, k, v, **known)
    out, lse = torch.from_numpy(right["out"]).to(dtype), torch.from_numpy(right["lse"]).float()
    baseline = plain_gradients(q, k, v, **known, right=right, given=(out, lse))
    found = gradients(case.layout, q, k, v, out, lse, d_out, d_lse, options)
    assert set(found) == set(baseline), f"gradients of {set(found)}, expected {set(baseline)}"
    for name, grad in found.items():
        try:
            assert_right(grad, right[name], baseline[name])
        except AssertionError as error:
            raise AssertionError(f"d_{name}: {error}") from None
    if controls:
        wrong = garbage(q, k, v, known)
        for name in found:
            plainly = torch.as_tensor(baseline[name]).to(dtype)
            assert_refuses(differing(wrong, right, name), right[name], plainly)


def gradients(layout, q, k, v, out, lse, d_out, d_lse, options):
    """The kernels' gradients by the truth's names, on the CPU, of tensors that lie as asked for."""
    given = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    tensors = [x.to(DEVICE) for x in (q, k, v, d_out, out)]
    lse, d_lse = lse.to(DEVICE), d_lse.to(DEVICE)
    if layout == "mask sliced":
        given = {name: every_other(x) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
        lse, d_lse = every_other(lse), every_other(d_lse)
    elif layout != "contiguous":
        tensors = [VIEWS[layout](x) for x in tensors]
    q, k, v, d_out, out = tensors
    return named(flash.attention_backward(d_out, d_lse, q, k, v, out, lse, **everything(given)), (q, k, v), given)


def everything(options):
    """The arguments of a backward pass that asks for every gradient there is."""
    given = dict.fromkeys(("mask", "alibi_slopes", "sinks", "window", "softcap", "scale")) | {"is_causal": False}
    given |= options
    floats = given["mask"] is not None and given["mask"].is_floating_point()
    return given | {"needs_mask": floats, "needs_alibi": True, "needs_sinks": True}


def named(grads, qkv, options):
    """Gradients by the truth's names, those that are None left out; shapes and dtypes are those of the inputs."""
    inputs = dict(zip("qkv", qkv, strict=True)) | {NAMES[name]: options.get(name) for name in NAMES}
    found = {name: grad for name, grad in zip(inputs, grads, strict=True) if grad is not None}
    for name, grad in found.items():
        assert grad.shape == inputs[name].shape, f"d_{name} has shape {tuple(grad.shape)}"
        assert grad.dtype == inputs[name].dtype, f"d_{name} has dtype {grad.dtype}"
    # A mask of float64 gets what was summed in float32.
    return {name: x.cpu().float() if x.dtype == torch.float64 else x.cpu() for name, x in found.items()}


def garbage(q, k, v, known):
    """Wrong gradients of everything, by what is wrong: mistakes that backward passes have been seen to make."""

    def result(**changed):
        return exact(q, k, v, **(known | changed))

    wrong = {"lse forgotten": result(d_lse=None), "scale not there": result(scale=1.0)}
    if known.get("is_causal"):
        t_q, t_kv = q.shape[2], k.shape[2]
        behind = np.arange(t_q)[:, None] + (t_kv - t_q) - np.arange(t_kv)
        allowed = known.get("allowed", np.array(True))
        wrong["not causal"] = result(is_causal=False, window=None)
        wrong["one key too many"] = result(is_causal=False, allowed=(behind >= -1) & allowed)
        wrong["aligned at the top left"] = result(is_causal=False, allowed=(behind - (t_kv - t_q) >= 0) & allowed)
    if known.get("window") is not None:
        wrong["window one shorter"] = result(window=known["window"] - 1)
    for name in ("softcap", "bias", "alibi_slopes", "sinks"):
        if known.get(name) is not None:
            wrong[f"{name} doubled"] = result(**{name: 2 * known[name]})
    if k.shape[1] > 1:
        wrong["key heads turned"] = exact(q, k.roll(1, 1), v.roll(1, 1), **known)
    return wrong


def differing(wrong, right, name):
    """The garbage about one gradient, with some that any gradient has; what happens to be right is left out."""
    found = {what: grads[name] for what, grads in wrong.items() if name in grads}
    found |= {"zeros": 0 * right[name], "half as large": right[name] / 2, "turned": np.roll(right[name], 1, -1)}
    return {what: as_float64(x) for what, x in found.items() if not np.allclose(x, right[name], rtol=1e-9, atol=1e-12)}
