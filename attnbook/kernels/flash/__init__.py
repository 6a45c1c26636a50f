"""FlashAttention in Triton: forward and backward, dense and packed."""

from attnbook.kernels.flash.forward import attention_forward, varlen_forward

__all__ = ["attention_forward", "varlen_forward"]
