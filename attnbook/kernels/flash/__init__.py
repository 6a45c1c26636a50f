"""FlashAttention in Triton: forward and backward, dense and packed."""

from attnbook.kernels.flash.backward import attention_backward, varlen_backward
from attnbook.kernels.flash.forward import attention_forward, varlen_forward

__all__ = ["attention_backward", "attention_forward", "varlen_backward", "varlen_forward"]
