"""The calls that the door's tests make: every option once, alone and together, on tensors of prime and odd sizes."""

import torch

B, H_Q, H_KV, D, D_V = 2, 6, 3, 7, 5
T_Q, T_KV = 13, 17
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
IMPLS = ["reference", "tiled", "sdpa", "auto"]

SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.3, 0.05, 0.01])
SINKS = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0])
ALLOWED = torch.rand(B, 1, T_Q, T_KV, generator=torch.Generator().manual_seed(5)) < 0.6
BIAS = torch.randn(T_Q, T_KV, generator=torch.Generator().manual_seed(6))

OPTIONS = {
    "none": {},
    "scale": {"scale": 0.9},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 5},
    "slopes": {"alibi_slopes": SLOPES},
    "slopes of each sequence": {"alibi_slopes": torch.stack([SLOPES, SLOPES.flip(0)]), "is_causal": True},
    "boolean mask": {"mask": ALLOWED},
    "boolean mask and causal": {"mask": ALLOWED, "is_causal": True},
    "float mask": {"mask": BIAS},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": SINKS},
    "all": {
        "is_causal": True, "window": 7, "softcap": 2.5, "scale": 0.6, "alibi_slopes": SLOPES, "sinks": SINKS,
        "mask": torch.where(ALLOWED, BIAS, -torch.inf),
    },
}  # fmt: skip
SDPA_HAS = [name for name in OPTIONS if name not in ("softcap", "sinks", "all")]
ABLE = [(impl, name) for impl in IMPLS for name in OPTIONS if impl != "sdpa" or name in SDPA_HAS]
"""Every implementation with every option that it has."""


def inputs(dtype=torch.float32, t_q=T_Q, t_kv=T_KV, d_v=D_V, seed=0, b=B, h_kv=H_KV):
    """q, k, v with grouped heads and different sizes along every axis."""
    g = torch.Generator().manual_seed(seed)
    shapes = ((b, H_Q, t_q, D), (b, h_kv, t_kv, D), (b, h_kv, t_kv, d_v))
    return [torch.randn(*shape, dtype=torch.float64, generator=g).to(dtype) for shape in shapes]


def options_of(name, dtype=torch.float32):
    """The options of this name, floats in this dtype."""
    floats = (torch.is_tensor, lambda x: x.dtype != torch.bool)
    return {key: x.to(dtype) if all(f(x) for f in floats) else x for key, x in OPTIONS[name].items()}


def for_truth(options, t_q=T_Q, t_kv=T_KV):
    """The same for `tests.exact`: a mask as what is allowed and what is added, both of the scores' shape."""
    found = {key: x for key, x in options.items() if key not in ("mask", "impl", "return_lse")}
    mask = options.get("mask")
    if mask is not None:
        mask = mask.expand(B, H_Q, t_q, t_kv)
        allowed = mask if mask.dtype == torch.bool else mask != -torch.inf
        found["allowed"] = allowed.numpy()
        if mask.dtype != torch.bool:
            found["bias"] = torch.where(allowed, mask, 0.0)
    return found
