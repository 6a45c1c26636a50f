"""attnbook as an attention implementation of Hugging Face transformers.

```python
import attnbook.integrations.transformers
from transformers import LlamaConfig, LlamaForCausalLM

attnbook.integrations.transformers.register()
config = LlamaConfig(vocab_size=97, hidden_size=48, intermediate_size=59, num_hidden_layers=2, num_attention_heads=6,
                     num_key_value_heads=2, attn_implementation="attnbook")
model = LlamaForCausalLM(config)
```

The name works wherever transformers takes one: `from_pretrained(…, attn_implementation="attnbook")`, a config, or
`model.set_attn_implementation("attnbook")`. Needs `pip install 'attnbook[hf]'`.

What stands out:

- **A mask is booleans or words, never added minimum values.** Causal masks, windows and padding arrive as the options
  `is_causal` and `window` and one row of booleans over the keys, and packed sequences as their lengths, so nothing of
  size t_q × t_kv is made (`lazy_mask`). Anything else, such as chunked attention, becomes a boolean mask.
- **A query that may see no key gets 0**, as everywhere in attnbook. That is so in the rows of padding of a left-padded
  batch, where transformers' own eager attention averages all values. Logits there differ, and mean nothing in both.
- **What we cannot do is an error**: dropout while training, `output_attentions`, a sink of its own for every query, a
  missing mask where the module does not say what that means.
- Keys and values of grouped heads are passed on as they are, never repeated.

Nothing here imports transformers before `register` is called.
"""

from __future__ import annotations

import functools
import inspect
import types

__all__ = ["register"]

OLDEST = "5.4"
"""The first transformers whose mask functions are told where the queries begin, `q_offset`."""

RESERVED = ("flash", "flex_attention", "sdpa", "/", "|", ":", "@")
"""Parts of a name by which transformers takes an implementation for one of its own, or for a kernel to download."""


def register(name: str = "attnbook", *, impl: str = "auto") -> None:
    """Make `attn_implementation=name` mean `attnbook.attention(…, impl=impl)`, masks included.

    Several names may be registered, each with an `impl` of its own; registering one of them again replaces it.

    Raises ImportError where transformers is missing or older than `OLDEST`; ValueError for a name that is taken, or to
    which transformers gives a meaning of its own, and for an unknown `impl`.
    """
    masking = _masking_of_transformers()
    from transformers import AttentionInterface, AttentionMaskInterface

    if not name or any(part in name for part in RESERVED) or name in ("eager", "paged"):
        raise ValueError(
            f"name is {name!r}: transformers gives 'eager', 'paged' and names that contain "
            f"{', '.join(map(repr, RESERVED))} a meaning of its own; choose another"
        )
    taken = AttentionInterface._global_mapping.get(name)
    if taken is not None and not hasattr(taken, "attnbook_impl"):
        raise ValueError(f"name is {name!r}: transformers has that attention implementation already; choose another")
    from attnbook.api.choose import check_impl
    from attnbook.integrations.transformers_attention import attention_forward
    from attnbook.integrations.transformers_masks import attention_mask

    check_impl(impl)
    attend = functools.partial(attention_forward, impl=impl)
    attend.attnbook_impl = impl  # type: ignore[attr-defined]
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, functools.partial(attention_mask, masking))


def _masking_of_transformers() -> types.ModuleType:
    """The module of transformers that makes masks, where it is there and new enough."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ImportError("transformers is not installed: pip install 'attnbook[hf]'", name="transformers") from error
    try:
        from transformers import masking_utils
    except ImportError:
        masking_utils = None
    if masking_utils is None or "q_offset" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        raise ImportError(
            f"transformers is {transformers.__version__}: expected {OLDEST} or newer, pip install -U 'attnbook[hf]'",
            name="transformers",
        )
    return masking_utils  # type: ignore[no-any-return]
