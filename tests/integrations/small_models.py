"""Small random models of transformers, sharp enough that every option of their attention shows in the logits.

The truth is transformers' own eager attention in float64. Two things in it are float32 even then, the softmax of most
models and the smallest number that masks are made of, and together they make NaN of a row of padding: the smallest
float64 becomes −inf as float32. `in_float64` lets softmax keep the dtype that it is given, and both are gone.
"""

import contextlib
from unittest import mock

import torch
import transformers
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen3Config,
)

VOCABULARY = 97
WINDOW = 5

SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 42, "intermediate_size": 43, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 14, "max_position_embeddings": 4096,
    "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False,  # Gemma ties them, and a small one then repeats what it reads
}  # fmt: skip
LAYERS = ["sliding_attention", "full_attention"]

CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZES),
    "qwen3": lambda: Qwen3Config(**SIZES),
    "gemma2": lambda: Gemma2Config(
        **SIZES, layer_types=LAYERS, sliding_window=WINDOW, query_pre_attn_scalar=11, attn_logit_softcapping=1.5,
        final_logit_softcapping=None,
    ),
    "gemma3": lambda: Gemma3TextConfig(**SIZES, layer_types=LAYERS, sliding_window=WINDOW, query_pre_attn_scalar=11),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=WINDOW),
    "gpt_oss": lambda: GptOssConfig(
        **SIZES, layer_types=LAYERS, sliding_window=WINDOW, num_local_experts=3, num_experts_per_tok=3,
        experts_implementation="eager",
    ),
    "mixtral": lambda: MixtralConfig(**SIZES, num_local_experts=3, num_experts_per_tok=2, sliding_window=WINDOW,
                                     experts_implementation="eager"),
}  # fmt: skip
"""One of each family: grouped heads in all, windows in five, a cap in Gemma-2, sinks in gpt-oss."""

OPTIONS = {
    "llama": {"causal"}, "qwen3": {"causal"}, "gemma2": {"causal", "window", "softcap"}, "gemma3": {"causal", "window"},
    "mistral": {"causal", "window"}, "gpt_oss": {"causal", "window", "sinks"}, "mixtral": {"causal", "window"},
}  # fmt: skip
"""What each of them asks of its attention, beside the scale and the grouped heads that all have."""


def model(family, implementation, dtype=torch.float64, **changes):
    """The same weights for every implementation and dtype; `changes` to its configuration."""
    torch.manual_seed(3)
    config = CONFIGS[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    config._attn_implementation = implementation
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, weight in made.named_parameters():
        if name.endswith("sinks"):  # as large as the scores, and another for each head
            torch.nn.init.normal_(weight, mean=1.0)
    return made.to(dtype).eval()


def tokens(b, t, *, seed=5):
    """(b, t) tokens, none of them special."""
    return torch.randint(3, VOCABULARY, (b, t), generator=torch.Generator().manual_seed(seed))


def padded(b, t, side):
    """An attention mask (b, t) for rows of t, t − 4, t − 8 … tokens."""
    mask = torch.ones(b, t, dtype=torch.long)
    for row in range(b):
        filling = 4 * row
        mask[row, : filling if side == "left" else 0] = 0
        mask[row, t - filling if side == "right" else t :] = 0
    return mask


@contextlib.contextmanager
def in_float64():
    """Inside, softmax of float64 stays float64, whatever dtype it is asked for."""
    softmax = torch.nn.functional.softmax

    def wide(x, *args, dtype=None, **kwargs):
        return softmax(x, *args, dtype=torch.float64 if x.dtype == torch.float64 else dtype, **kwargs)

    with mock.patch("torch.nn.functional.softmax", wide):
        yield
