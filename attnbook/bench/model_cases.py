"""The cases of a trained model: reading it and letting it go on, against transformers on the same file in one run."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
from typing import Any

import torch
from torch import Tensor

from attnbook import models
from attnbook.bench.case import CannotRun, Disagree, Finding, Setting, in_turns
from attnbook.models.gguf_file import INSTALL

PROMPT = "<|im_start|>user\nWrite a short story about a lighthouse keeper.<|im_end|>\n<|im_start|>assistant\n"
NEEDED = ("transformers", "accelerate", "gguf")
LINE = f"python -m pip install 'attnbook[hf,models]' accelerate && {INSTALL}"
CLOSE = 1e-3
"""How far logits of up to about 30 may lie apart: both sides are float32, and add in another order."""


def loading(setting: Setting) -> Finding:
    """From the file to a model that can be called, the tokenizer included on our side; both have read it before."""
    _check(setting)
    ours, theirs = _ours(), _theirs()
    read = torch.tensor([ours.tokenizer.encode(PROMPT)])
    with torch.no_grad():
        _same_logits(ours(read), theirs(read).logits)
    times = in_turns({"attnbook": _load_ours, "transformers": _load_theirs}, setting, most=3, warm=True)
    return Finding(times.ratio("transformers", "attnbook"), times.medians())


def generation(setting: Setting) -> Finding:
    """64 greedy tokens after a short question, with KV caches; theirs with SDPA. The tokens must be the same."""
    _check(setting)
    ours, theirs = _ours(), _theirs()
    prompt = ours.tokenizer.encode(PROMPT)
    new = 64 if not setting.quick else 8

    def run_theirs() -> list[int]:
        read = torch.tensor([prompt])
        with torch.inference_mode():
            made: Tensor = theirs.generate(
                read, attention_mask=torch.ones_like(read), do_sample=False, pad_token_id=2, eos_token_id=None,
                max_new_tokens=new,
            )  # fmt: skip
        return made[0, len(prompt) :].tolist()

    def run_ours() -> list[int]:
        return models.generate(ours, prompt, max_new_tokens=new, stop=())

    same_tokens(run_ours(), run_theirs())
    times = in_turns({"attnbook": run_ours, "transformers": run_theirs}, setting, warm=True)
    speeds = {name: new / seconds for name, seconds in times.medians().items()}
    note = ", ".join(f"{name} {speed:.1f}" for name, speed in speeds.items()) + " tokens/s"
    return Finding(times.ratio("transformers", "attnbook"), times.medians(), note=note)


def same_tokens(ours: list[int], theirs: list[int]) -> None:
    """Raises Disagree at the first token that differs."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            raise Disagree(f"token {i} is {a} of attnbook and {b} of transformers")
    if len(ours) != len(theirs):
        raise Disagree(f"attnbook has {len(ours)} tokens and transformers {len(theirs)}")


def _same_logits(ours: Tensor, theirs: Tensor) -> None:
    apart = float((ours - theirs).abs().max())
    if not apart < CLOSE:
        raise Disagree(f"logits of attnbook and transformers differ by {apart:.3g}: expected less than {CLOSE}")


def _check(setting: Setting) -> None:
    if setting.device != "cpu":
        raise CannotRun("the model is compared on the CPU")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotRun(f"needs {', '.join(missing)}: run `{LINE}`")
    try:
        models.find_model()
    except models.MissingModel as error:
        raise CannotRun(f"needs the model: run `{INSTALL}`") from error


def _load_ours() -> models.SmolLM2:
    model = models.SmolLM2.load()
    len(model.tokenizer)
    return model


def _load_theirs() -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    path = models.find_model()
    with contextlib.redirect_stderr(io.StringIO()):  # its progress
        return AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()


@functools.cache
def _ours() -> models.SmolLM2:
    return _load_ours()


@functools.cache
def _theirs() -> Any:
    return _load_theirs()
