"""Every kernel against float64, in every dtype that it takes, before anything is timed.

The figure of a check is the worst error as a multiple of what is allowed (`attnbook.bench.truth`): up to 1 is right.
Sizes are odd, heads share keys, the last tile is ragged. On a GPU a check calls what is compiled for it; on the CPU,
Triton's interpreter.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbook.bench import truth
from attnbook.bench.case import CannotRun, Disagree, Finding, Setting
from attnbook.errors import BackendUnavailable

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def kernels(operation: str, setting: Setting) -> Any:
    """The room of an operation in `attnbook.kernels`; raises CannotRun where it can't work here."""
    try:
        from attnbook.kernels.available import require

        require(torch.empty(1, device=setting.device))
        return importlib.import_module(f"attnbook.kernels.{operation}")
    except BackendUnavailable as error:
        raise CannotRun(str(error)) from error
    except ImportError as error:
        raise CannotRun(f"the kernels can't be imported: {error}") from error


class Sample(NamedTuple):
    """One call of attention: sizes, and options by name as `make` builds them from its tensors."""

    name: str
    heads: tuple[int, int] = (4, 2)
    t: tuple[int, int] = (517, 771)
    d: tuple[int, int] = (128, 128)
    options: dict[str, Any] = {}  # noqa: RUF012 (a NamedTuple's default, read only)
    extras: tuple[str, ...] = ()
    """Of "mask", "alibi_slopes", "sinks": tensors to make."""


SAMPLES = (
    Sample("causal", options={"is_causal": True}),
    Sample("not causal, d_v 64", t=(771, 517), d=(128, 64)),
    Sample("window 129, d 64", heads=(6, 2), t=(771, 771), d=(64, 64), options={"is_causal": True, "window": 129}),
    Sample("all options, d 80", d=(80, 80), options={"is_causal": True, "softcap": 7.0, "scale": 0.11},
           extras=("mask", "alibi_slopes", "sinks")),
    Sample("d 256", heads=(2, 2), t=(259, 387), d=(256, 256), options={"is_causal": True}),
)  # fmt: skip
EXTRAS = ("mask", "alibi_slopes", "sinks")


class Made(NamedTuple):
    """The tensors of a call."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    alibi_slopes: Tensor | None
    sinks: Tensor | None
    how: dict[str, Any]
    """is_causal, window, softcap, scale, all of them."""

    def call(self, dtype: torch.dtype) -> Callable[..., tuple[Tensor, Tensor]]:
        """`truth.dense` as a function of the six tensors, whose mask stays as it is where it is of booleans."""

        def run(q: Tensor, k: Tensor, v: Tensor, *extras: Tensor) -> tuple[Tensor, Tensor]:
            names = [name for name in EXTRAS if getattr(self, name) is not None]
            options: dict[str, Any] = dict(zip(names, extras, strict=True))
            return truth.dense(q, k, v, **options, **self.how)

        return run

    @property
    def given(self) -> list[Tensor]:
        """q, k, v and the extras that there are."""
        return [x for x in self[:6] if isinstance(x, Tensor)]


def make(sample: Sample, dtype: torch.dtype, setting: Setting, b: int = 2) -> Made:
    """The tensors of a sample: standard normal, the same in every run; shorter where it must be quick."""
    generator = torch.Generator().manual_seed(0)
    n_heads, n_kv_heads = sample.heads
    t_q, t_kv = (_odd(t, setting) for t in sample.t)
    d, d_v = sample.d

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(setting.device, dtype)

    q, k, v = normal(b, n_heads, t_q, d), normal(b, n_kv_heads, t_kv, d), normal(b, n_kv_heads, t_kv, d_v)
    mask = normal(b, 1, t_q, t_kv) if "mask" in sample.extras else None
    slopes = normal(n_heads).abs() / 16 if "alibi_slopes" in sample.extras else None
    sinks = normal(n_heads) if "sinks" in sample.extras else None
    how = {"is_causal": False, "window": None, "softcap": None, "scale": d**-0.5} | sample.options
    if how["window"] is not None:
        how["window"] = min(how["window"], t_kv // 2)
    return Made(q, k, v, mask, slopes, sinks, how)


def _odd(t: int, setting: Setting) -> int:
    return setting.length(t) | 1


class Worst:
    """Collects errors as multiples of what is allowed; the worst is the figure."""

    def __init__(self) -> None:
        self.figure, self.where, self.checked = 0.0, "", 0

    def add(self, where: str, got: Tensor, right: Tensor, plain: Tensor, dtype: torch.dtype | None = None) -> None:
        """Raises Disagree for a result that is wrong."""
        got, right, plain = (x.detach() for x in (got, right, plain))
        error = truth.excess(got, right, plain, dtype)
        self.checked += 1
        if not error <= 1:
            raise Disagree(f"{where}: the error is {error:.3g} times what rounding explains")
        if error >= self.figure:
            self.figure, self.where = error, where

    def finding(self) -> Finding:
        """Raises Disagree where nothing was looked at."""
        if not self.checked:
            raise Disagree("nothing was checked")
        return Finding(self.figure, {}, note=f"{self.checked} results, worst {self.where}", ran="triton")


def must_refuse(made: Made, right: Tensor, plain: Tensor) -> None:
    """Raises Disagree where the check would let something plausible and wrong through."""
    q, k, v = (x.double() for x in made[:3])
    extras = {name: getattr(made, name) for name in EXTRAS if getattr(made, name) is not None}
    for name, bad in truth.wrong(q, k, v, right, extras | made.how):
        if truth.excess(bad.to(made.q.dtype), right, plain) <= 1:
            raise Disagree(f"the check itself would let {name} through")


def forward(setting: Setting) -> Finding:
    """The output and lse of every sample."""
    flash, worst = kernels("flash", setting), Worst()
    for where, made in _samples(setting, SAMPLES):
        (right, right_lse), (plain, plain_lse) = _both(made)
        must_refuse(made, right, plain)
        out, lse = flash.attention_forward(*made[:6], **made.how)
        worst.add(f"out, {where}", out, right, plain)
        worst.add(f"lse, {where}", lse, right_lse, plain_lse, made.q.dtype)
    return worst.finding()


def backward(setting: Setting) -> Finding:
    """The gradients of q, k, v, and of mask, slopes and sinks where they are given."""
    flash, worst = kernels("flash", setting), Worst()
    for where, made in _samples(setting, SAMPLES):
        out, lse = flash.attention_forward(*made[:6], **made.how)
        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
        needs = {f"needs_{short}": getattr(made, name) is not None
                 for short, name in (("mask", "mask"), ("alibi", "alibi_slopes"), ("sinks", "sinks"))}  # fmt: skip
        got = flash.attention_backward(grad, None, *made[:3], out, lse, *made[3:6], **made.how, **needs)
        names = ["q", "k", "v", *(name for name in EXTRAS if getattr(made, name) is not None)]
        right, plain = (
            truth.gradients(lambda *x, made=made: made.call(x[0].dtype)(*x)[0], made.given, grad, dtype)
            for dtype in (torch.float64, made.q.dtype)
        )
        for name, ours, r, p in zip(names, (x for x in got if x is not None), right, plain, strict=True):
            worst.add(f"gradient of {name}, {where}", ours, r, p, made.q.dtype)
    return worst.finding()


def _samples(setting: Setting, samples: tuple[Sample, ...]) -> Iterator[tuple[str, Made]]:
    for dtype in DTYPES:
        for sample in samples if dtype == torch.bfloat16 else samples[:1]:  # each is another program to compile
            yield f"{sample.name}, {str(dtype).removeprefix('torch.')}", make(sample, dtype, setting)


def _both(made: Made) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Out and lse in float64, and in the dtype of q."""
    exact = [x.double() if x.is_floating_point() else x for x in made.given]
    return made.call(torch.float64)(*exact), made.call(made.q.dtype)(*made.given)


LENGTHS = (517, 0, 1, 130, 259)
"""Of packed sequences: one without tokens, one with one."""


def varlen(setting: Setting) -> Finding:
    """Packed sequences, causal: each against attention of its own; and their gradients."""
    flash, worst = kernels("flash", setting), Worst()
    for dtype in DTYPES:
        lengths = [_odd(n, setting) if n > 1 else n for n in LENGTHS]
        t, where = sum(lengths), str(dtype).removeprefix("torch.")
        generator = torch.Generator().manual_seed(0)
        q, k, v, grad = (
            torch.randn(t, h, 64, generator=generator).to(setting.device, dtype) for h in (4, 2, 2, 4)
        )  # (t, h, d)
        ends = torch.tensor([0, *lengths]).cumsum(0).to(setting.device, torch.int32)
        how = {"is_causal": True, "window": None, "softcap": None, "scale": 0.125}
        out, lse = flash.varlen_forward(q, k, v, ends, ends, None, None, None, **how)
        needs = {"needs_mask": False, "needs_alibi": False, "needs_sinks": False}
        got = flash.varlen_backward(grad, None, q, k, v, out, lse, ends, ends, None, None, None, **how, **needs)

        each = functools.partial(_each, lengths)
        worst.add(f"out, packed, {where}", out, each(*(x.double() for x in (q, k, v))), each(q, k, v))
        both = (truth.gradients(each, (q, k, v), grad, kind) for kind in (torch.float64, dtype))
        for name, ours, r, p in zip("qkv", got[:3], *both, strict=True):
            worst.add(f"gradient of {name}, packed, {where}", ours, r, p)
    return worst.finding()


def _each(lengths: list[int], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output (t, h, d) of packed sequences, one after another."""
    parts = zip(*(torch.split(x.transpose(0, 1)[None], lengths, 2) for x in (q, k, v)), strict=True)  # (1, h, n, d)
    return torch.cat([truth.dense(*part, is_causal=True, scale=0.125)[0][0].transpose(0, 1) for part in parts])


DECODING = (
    Sample("1 query", heads=(8, 2), t=(1, 2_051)),
    Sample("3 queries, causal", heads=(8, 2), t=(3, 2_051), options={"is_causal": True}),
    Sample("1 query, d 64, window, sinks", heads=(6, 6), t=(1, 2_051), d=(64, 64),
           options={"is_causal": True, "window": 517}, extras=("sinks",)),
)  # fmt: skip


def decode(setting: Setting) -> Finding:
    """Few queries against a contiguous cache; the first sequence alone gives the same bits as in its batch."""
    room, worst = kernels("decode", setting), Worst()
    for where, made in _few(setting):
        (right, right_lse), (plain, plain_lse) = _both(made)
        must_refuse(made, right, plain)
        out, lse = room.decode_forward(*made[:6], **made.how)
        worst.add(f"out, {where}", out, right, plain)
        worst.add(f"lse, {where}", lse, right_lse, plain_lse, made.q.dtype)
        alone, _ = room.decode_forward(*(x[:1] for x in made[:3]), *made[3:6], **made.how)
        if not torch.equal(alone, out[:1]):
            raise Disagree(f"{where}: a sequence alone gives other bits than in a batch of {out.shape[0]}")
    return worst.finding()


def _few(setting: Setting) -> Iterator[tuple[str, Made]]:
    """The samples of decoding: few queries stay few."""
    for dtype in DTYPES:
        for sample in DECODING:
            made = make(sample, dtype, setting)
            q = made.q[:, :, : sample.t[0]].contiguous()
            yield f"{sample.name}, {str(dtype).removeprefix('torch.')}", made._replace(q=q)


PAGE = 16


def paged(setting: Setting) -> Finding:
    """The same from pages in random order, for sequences of three lengths, one of them a single token."""
    room, worst = kernels("decode", setting), Worst()
    for dtype in DTYPES:
        generator = torch.Generator().manual_seed(0)
        lengths = [1, _odd(803, setting), _odd(2_051, setting)]
        m = -(-max(lengths) // PAGE)
        order = torch.randperm(len(lengths) * m, generator=generator)
        table = order.view(len(lengths), m).to(setting.device, torch.int32)
        pages_k, pages_v = (
            torch.randn(len(order), 2, PAGE, 128, generator=generator).to(setting.device, dtype) for _ in "kv"
        )
        q = torch.randn(len(lengths), 8, 1, 128, generator=generator).to(setting.device, dtype)
        how = {"window": None, "softcap": None, "scale": 128**-0.5}
        length = torch.tensor(lengths, device=setting.device, dtype=torch.int32)
        out, lse = room.paged_forward(q, pages_k, pages_v, table, length, None, None, **how)
        for i, n in enumerate(lengths):
            k, v = (pages[table[i].long()].transpose(0, 1).flatten(1, 2)[None, :, :n] for pages in (pages_k, pages_v))
            right, right_lse = truth.dense(q[i : i + 1].double(), k.double(), v.double())
            plain, plain_lse = truth.dense(q[i : i + 1], k, v)
            where = f"length {n}, {str(dtype).removeprefix('torch.')}"
            worst.add(f"out, pages, {where}", out[i : i + 1], right, plain)
            worst.add(f"lse, pages, {where}", lse[i : i + 1], right_lse, plain_lse, dtype)
    return worst.finding()
