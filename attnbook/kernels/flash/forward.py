"""Launching the forward kernel, on dense and on packed tensors.

What stands out: nothing is copied. Tensors go to the kernel as they lie in memory, with their strides; only slopes and
sinks, a number for each head, become float32, and a mask of float64 float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.kernels import outputs, targets
from attnbook.kernels.flash.call import Call, dense_call, packed_call, strides_of
from attnbook.kernels.flash.configs import Config, again_config, forward_config, padded
from attnbook.kernels.flash.descriptors import descriptor, takes_descriptor
from attnbook.kernels.variant import ALWAYS


def attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(scale · q kᵀ + mask) v -> out (b, n_heads, t_q, d_v) in the dtype of q, lse (b, n_heads, t_q) in float32.

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v), of any strides; d and d_v up to
    256. Options, conventions and errors are those of `attnbook.attention`; BackendUnavailable for float64, a wider
    head, or a machine without what the kernels need.
    """
    call = dense_call(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    sizes = call.sizes
    out = outputs.empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v), q)
    lse = outputs.empty((sizes.b, sizes.n_heads, sizes.t_q), q, torch.float32)
    launch(call, out, lse)
    return out, lse


def varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    longest: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """The same for sequences that lie one after another -> out (t_q, n_heads, d_v), lse (t_q, n_heads) in float32.

    q (t_q, n_heads, d), k (t_kv, n_kv_heads, d), v (t_kv, n_kv_heads, d_v); sequence n has the queries cu_q[n] up to
    cu_q[n + 1], and its keys likewise. Rows beyond the last sequence: output 0, lse −inf. The mask is that of the
    packed axes, the slopes (h,) or (sequences, h), as in `attnbook.attention_varlen`.

    `longest`, the most queries and the most keys of a sequence, says that the values of cu_q and cu_k have been checked
    already. Without it they are, and the call waits for the device. Raises what `attention_forward` raises.
    """
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    call = packed_call(q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks, **options, longest=longest)
    out = outputs.empty((q.shape[0], call.sizes.n_heads, call.sizes.d_v), q)
    lse = outputs.empty((q.shape[0], call.sizes.n_heads), q, torch.float32)
    if call.packing is not None and not call.packing.covers:
        out.zero_()
        lse.fill_(-torch.inf)
    launch(call, out.transpose(0, 1)[None], lse.T[None])
    return out, lse


def launch(call: Call, out: Tensor, lse: Tensor) -> None:
    """Run the kernel on a checked call; out (b, n_heads, t_q, d_v) and lse (b, n_heads, t_q), packed with b = 1.

    Where something may be hidden it runs twice: the second time for the tiles that hold a NaN, usually none. What a
    descriptor brings from the sequence behind is hidden, too.
    """
    # Triton, which a call needs and an import does not
    from attnbook.kernels.flash.forward_kernel import forward_kernel

    strangers = False
    for again in (False, True):
        given, constants, config = prepare(call, out, lse, again=again)
        if again and not (call.hides or strangers):
            return
        strangers = constants["IS_VARLEN"] and constants["HAS_DESCRIPTORS"]
        programs = given["q_tiles"] * call.sizes.n_heads * call.sizes.b
        if programs:
            options = {**ALWAYS, "num_warps": config.num_warps, "num_stages": config.num_stages}
            with targets.on_device_of(call.q):
                forward_kernel[(programs,)](**given, **constants, **options)


def prepare(
    call: Call, out: Tensor, lse: Tensor, *, again: bool = False
) -> tuple[dict[str, Any], dict[str, Any], Config]:
    """The kernel's arguments and its constants, by the names of its parameters, and how it is cut."""
    sizes, element_bytes = call.sizes, call.q.element_size()
    describable = takes_descriptor(call.k) and takes_descriptor(call.v)
    config = (
        again_config(sizes.head_dim, sizes.d_v, element_bytes)
        if again
        else forward_config(
            sizes.head_dim,
            sizes.d_v,
            element_bytes,
            call.target,
            bare=call.bare,
            is_causal=call.is_causal,
            describable=describable,
            packed=call.packing is not None,
        )
    )
    head_tile, value_tile = padded(sizes.head_dim), padded(sizes.d_v)
    described = config.descriptors and describable
    tensors = {"q": call.q, "k": call.k, "v": call.v, "out": out, "lse": lse}
    given: dict[str, Any] = dict(tensors)
    for name, x in tensors.items():
        given |= strides_of(name, x, packed=call.packing is not None)
    given |= call.arguments()
    given["k_tiles"] = descriptor(call.k, config.tile_k, head_tile) if described else None
    given["v_tiles"] = descriptor(call.v, config.tile_k, value_tile) if described else None
    given["q_tiles"] = -(-sizes.t_q // config.tile_q)
    constants = call.constants() | {
        "HEAD_TILE": head_tile,
        "VALUE_TILE": value_tile,
        "TILE_Q": config.tile_q,
        "TILE_K": config.tile_k,
        "HAS_DESCRIPTORS": described,
        "WARP_SPECIALIZE": described and config.warp_specialize,
        "AGAIN": again,
    }
    return given, constants, config
