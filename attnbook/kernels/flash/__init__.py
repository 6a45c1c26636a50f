"""FlashAttention in Triton: forward and backward, dense and packed."""
