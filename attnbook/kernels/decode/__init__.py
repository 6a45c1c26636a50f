"""Decoding in Triton: few queries against a cache whose keys lie one after another, or in pages.

Two kernels: `split` attends to one stretch of the keys, `merge` makes the parts one. `launch`, `paged` and `parts` are
what calls them. Importing this needs no Triton.
"""

from attnbook.kernels.decode.launch import decode_forward
from attnbook.kernels.decode.paged import paged_forward
from attnbook.kernels.decode.parts import merge_parts

__all__ = ["decode_forward", "merge_parts", "paged_forward"]
