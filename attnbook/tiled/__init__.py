"""FlashAttention's algorithm in plain torch: exact attention, one tile of scores at a time.

`plan` says which tiles there are, `forward` and `backward` go through them, `attention` is both as one differentiable
function. Only tiles that some query may see are visited, and memory grows with the length, not with its square.
"""

from attnbook.tiled.attention import attention
from attnbook.tiled.backward import attention_backward
from attnbook.tiled.decode import decode
from attnbook.tiled.forward import attention_forward
from attnbook.tiled.varlen import attention_varlen, varlen_backward, varlen_forward

__all__ = [
    "attention",
    "attention_backward",
    "attention_forward",
    "attention_varlen",
    "decode",
    "varlen_backward",
    "varlen_forward",
]
