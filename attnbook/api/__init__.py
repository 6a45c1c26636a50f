"""The one door: `attention` and its kin check their input once, choose an implementation, and hand over.

No implementation is here except torch's own, made to follow our conventions (`attnbook.api.sdpa`).
"""

from attnbook.api.attention import attention
from attnbook.api.explain import Explanation, explain

__all__ = ["Explanation", "attention", "explain"]
