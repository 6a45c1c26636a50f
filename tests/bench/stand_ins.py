"""Stand-ins for the kernels' rooms, in plain torch, so that the GPU's cases run whole where no GPU is."""

from types import SimpleNamespace

import torch

from attnbook.bench import truth
from attnbook.tiled import routing


def attention_forward(q, k, v, mask, alibi_slopes, sinks, **how):
    """In float32, rounded at the end: as good as a kernel."""
    single = (None if x is None else x.float() if x.is_floating_point() else x for x in (q, k, v))
    out, lse = truth.dense(*single, mask=mask, alibi_slopes=alibi_slopes, sinks=sinks, **how)
    return out.to(q.dtype), lse


def attention_backward(grad, grad_lse, q, k, v, out, lse, mask, alibi_slopes, sinks, **how):
    """Through autograd."""
    how = {name: value for name, value in how.items() if not name.startswith("needs_")}
    extras = {"mask": mask, "alibi_slopes": alibi_slopes, "sinks": sinks}
    names = [name for name, x in extras.items() if x is not None]

    def run(q, k, v, *more):
        return truth.dense(q, k, v, **dict(zip(names, more, strict=True)), **how)[0]

    given = [q, k, v, *(extras[name] for name in names)]
    found = truth.gradients(run, given, grad, torch.float32)
    by_name = dict(
        zip(("q", "k", "v", *names), (g.to(x.dtype) for g, x in zip(found, given, strict=True)), strict=True)
    )
    return tuple(by_name.get(name) for name in ("q", "k", "v", "mask", "alibi_slopes", "sinks"))


def varlen_forward(q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks, **how):
    """One sequence after another."""
    out, lse = torch.zeros_like(q), torch.full(q.shape[:2], -torch.inf)
    for first, last in zip(cu_q[:-1].tolist(), cu_q[1:].tolist(), strict=True):
        part = (x[first:last].transpose(0, 1)[None] for x in (q, k, v))
        got, got_lse = attention_forward(*part, None, None, None, **how)
        out[first:last], lse[first:last] = got[0].transpose(0, 1), got_lse[0].T
    return out, lse


def varlen_backward(grad, grad_lse, q, k, v, out, lse, cu_q, cu_k, mask, alibi_slopes, sinks, **how):
    """One sequence after another."""
    found = tuple(torch.zeros_like(x) for x in (q, k, v))
    for first, last in zip(cu_q[:-1].tolist(), cu_q[1:].tolist(), strict=True):
        if first == last:
            continue
        part = (x[first:last].transpose(0, 1)[None] for x in (grad, q, k, v))
        got = attention_backward(next(part), None, *part, None, None, None, None, None, **how)
        for whole, of_part in zip(found, got[:3], strict=True):
            whole[first:last] = of_part[0].transpose(0, 1)
    return (*found, None, None, None)


def decode_forward(*inputs, **how):
    """Each sequence by itself: the same bits in any batch."""
    q, k, v, *extras = inputs
    parts = [attention_forward(q[b : b + 1], k[b : b + 1], v[b : b + 1], *extras, **how) for b in range(len(q))]
    return tuple(torch.cat(of_all) for of_all in zip(*parts, strict=True))


def paged_forward(q, k_pages, v_pages, page_table, lengths, alibi_slopes, sinks, longest=None, **how):
    """Gathered first."""
    parts = []
    for b, n in enumerate(lengths.tolist()):
        k, v = (x[page_table[b].long()].transpose(0, 1).flatten(1, 2)[None, :, :n] for x in (k_pages, v_pages))
        parts.append(attention_forward(q[b : b + 1], k, v, None, alibi_slopes, sinks, is_causal=True, **how))
    return tuple(torch.cat(of_all) for of_all in zip(*parts, strict=True))


def experts_forward(x, experts, weights, *matrices):
    """In float32."""
    return truth.experts(x.float(), experts, weights, *(w.float() for w in matrices)).to(x.dtype)


def experts_backward(grad, x, experts, weights, *matrices, needs_experts):
    """Through autograd."""
    assert needs_experts
    given = (x, experts, weights, *matrices)
    found = truth.gradients(truth.experts, given, grad, torch.float32)
    return tuple(g.to(like.dtype) for g, like in zip(found, (x, weights, *matrices), strict=True))


ROOMS = {
    "flash": SimpleNamespace(
        attention_forward=attention_forward,
        attention_backward=attention_backward,
        varlen_forward=varlen_forward,
        varlen_backward=varlen_backward,
    ),
    "decode": SimpleNamespace(decode_forward=decode_forward, paged_forward=paged_forward),
    "moe": SimpleNamespace(route=routing.route, experts_forward=experts_forward, experts_backward=experts_backward),
}
MODULES = ("kernel_checks", "expert_checks", "gpu_attention", "gpu_decode", "gpu_moe")
"""Of attnbook.bench: those that ask for a room."""


def put_in_place(monkeypatch, **changed):
    """Give every case these rooms; `changed` replaces functions in them, as flash_attention_forward=…"""
    rooms = {name: SimpleNamespace(**vars(room)) for name, room in ROOMS.items()}
    for name, function in changed.items():
        room, _, attribute = name.partition("_")
        setattr(rooms[room], attribute, function)
    for module in MODULES:
        monkeypatch.setattr(f"attnbook.bench.{module}.kernels", lambda operation, setting: rooms[operation])


class Ticks:
    """A clock on which everything takes a millisecond, and which runs the call all the same."""

    def __init__(self, seconds=1e-3):
        self.seconds, self.at = seconds, 0.0

    def now(self):
        return self.at

    def wait(self):
        pass

    def time(self, run):
        run()
        self.at += self.seconds
        return self.seconds
