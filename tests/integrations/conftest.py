"""The implementations under test, by the names under which transformers knows them, and broken ones beside them."""

import dataclasses

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

from attnbook.integrations.lazy_mask import LazyMask
from attnbook.integrations.transformers import register
from attnbook.integrations.transformers_attention import attention_forward

BROKEN = ("causal", "window", "softcap", "sinks", "padding", "scale", "heads")


def broken(what):
    """Our attention function with one thing dropped, moved or turned on the way to it."""

    def attend(module, query, key, value, attention_mask, **options):
        if what == "softcap":
            options["softcap"] = None
        if what == "sinks":
            options["s_aux"] = torch.full_like(options["s_aux"], -1e4)
        if what == "scale":
            options["scaling"] *= 0.5
        if what == "heads":
            key, value = key.roll(1, dims=1), value.roll(1, dims=1)
        mask = other_mask(attention_mask) if what in ("causal", "window", "padding") else attention_mask
        return attention_forward(module, query, key, value, mask, impl="auto", **options)

    def other_mask(attention_mask):
        words = attention_mask.words
        if what == "causal":
            words = dataclasses.replace(words, is_causal=False, window=None)
        if what == "window":
            words = dataclasses.replace(words, window=None)
        if what == "padding":
            words = dataclasses.replace(words, keys=None)
        return LazyMask(words, attention_mask.made, shape=attention_mask.shape, device=attention_mask.device)

    return attend


@pytest.fixture(scope="session", autouse=True)
def registered():
    """`attnbook`, `attnbook-tiled`, and `broken-…`."""
    register()
    register("attnbook-tiled", impl="tiled")
    for what in BROKEN:
        AttentionInterface.register(f"broken-{what}", broken(what))
        AttentionMaskInterface.register(f"broken-{what}", AttentionMaskInterface._global_mapping["attnbook"])
    AttentionInterface.register("forgets-padding", AttentionInterface._global_mapping["attnbook"])
    AttentionMaskInterface.register("forgets-padding", forgets_padding)


def forgets_padding(*, attention_mask, **what):
    """Our mask function, not told which tokens are padding."""
    return AttentionMaskInterface._global_mapping["attnbook"](attention_mask=None, **what)
