"""A small transformer whose every choice is an option: where positions come from, where norms are, what a token sees.

    tokens (b, t) ── embedding [+ positions] ──▶ x (b, t, d_model)
                  ── n_layers × TransformerBlock ──▶ x
                  ── [norm] ── linear ──▶ logits (b, t, vocab)

What stands out: `seed` fixes all starting weights, whatever else the process drew, and is drawn from nobody's
generator; two models with the same seed and sizes that differ in an option without weights start the same.
Vaswani et al. 2017; the pre-norm order and its last norm: Radford et al. 2019, Xiong et al. 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnbook.api.modules import TransformerBlock
from attnbook.api.moe import moe
from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.block import NORMS
from attnbook.reference.heads import next_positions
from attnbook.reference.positions import LearnedPositions, sinusoidal_positions
from attnbook.reference.rope import rope
from attnbook.shapes import check_axes
from attnbook.shapes_moe import RoutingInfo

Positions: TypeAlias = Literal["none", "sinusoidal", "learned", "rope", "alibi"]
POSITIONS = get_args(Positions)


class Transformer(nn.Module):
    """A language model, or with `is_causal=False` an encoder that says something about each token.

    - `vocab` tokens, `d_model` components, `n_layers` blocks of `n_heads` query heads and `n_kv_heads` key/value heads.
    - `positions`: "none", "sinusoidal" and "learned" (added to the embeddings; "learned" ends at `max_positions`),
      "rope" (turns q and k; `rope_theta`, `rope_scaling`) or "alibi" (a penalty on distance).
    - `norm`: "pre" or "post"; `norm_type`: "layer", "rms" or "batch". `residual`: False leaves out every `x +`.
    - `is_causal`, `window`: what a token sees.
    - `mlp`: "dense" (`d_ff`, `activation`), "experts" (`n_experts` SwiGLU experts of width `d_ff`, `top_k` a token,
      whose weights are made to sum to 1 by `renormalize`) or "none", attention alone.
    - `seed` decides the starting weights; embeddings are normal with standard deviation `embedding_std`, linear maps as
      torch's Linear starts them.

    Raises ValueError for an unknown choice or one that lacks what it needs, ShapeError for sizes that don't fit.
    """

    def __init__(
        self,
        vocab: int,
        *,
        d_model: int = 64,
        n_layers: int = 2,
        n_heads: int = 4,
        n_kv_heads: int | None = None,
        positions: Positions = "rope",
        max_positions: int | None = None,
        rope_theta: float = 10000.0,
        rope_scaling: Any = None,
        norm: Literal["pre", "post"] = "pre",
        norm_type: Literal["layer", "rms", "batch"] = "layer",
        residual: bool = True,
        is_causal: bool = True,
        window: int | None = None,
        mlp: Literal["dense", "experts", "none"] = "dense",
        d_ff: int | None = None,
        activation: Literal["gelu", "relu", "swiglu"] = "gelu",
        n_experts: int | None = None,
        top_k: int | None = None,
        renormalize: bool = True,
        embedding_std: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check_choices(positions, max_positions, mlp, n_experts, top_k)
        if vocab < 1 or n_layers < 0:
            raise ShapeError(f"vocab is {vocab} and n_layers {n_layers}: expected at least 1 token and 0 layers")
        self.vocab, self.d_model, self.positions = vocab, d_model, positions
        turn = partial(rope, theta=rope_theta, scaling=rope_scaling) if positions == "rope" else False
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocab, d_model)
            nn.init.normal_(self.embedding.weight, std=embedding_std)
            self.blocks = nn.ModuleList(
                TransformerBlock(
                    d_model, n_heads, n_kv_heads=n_kv_heads, norm=norm, norm_type=norm_type, residual=residual,
                    d_ff=d_ff, activation=activation, rope=turn, alibi=positions == "alibi", is_causal=is_causal,
                    window=window,
                )
                for _ in range(n_layers)
            )  # fmt: skip
            for block in self.blocks:
                if mlp == "none":
                    block.mlp = Nothing()
                elif mlp == "experts":
                    block.mlp = SparseMLP(d_model, n_experts, top_k, d_ff=d_ff, renormalize=renormalize)
            self.norm = NORMS[norm_type](d_model) if norm == "pre" else nn.Identity()
            self.head = nn.Linear(d_model, vocab, bias=False)
            # Last, so that a model with a table starts like one without in everything else.
            self.table = LearnedPositions(max_positions or 1, d_model) if positions == "learned" else None
            if self.table is not None:
                nn.init.normal_(self.table.weight, std=embedding_std)

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        caches: Sequence[Any] | None = None,
    ) -> Tensor:
        """Read tokens (b, t) -> logits (b, t, vocab).

        - `positions` (t,) or (b, t): where the tokens stand; 0 … t − 1 where not given, or on from the caches' lengths.
        - `mask`: as in `attention`, for every layer.
        - `caches`: one KV cache a layer, to which this call's keys and values are appended.

        Raises ShapeError for other axes and a position outside a learned table, DTypeError for tokens that are not
        whole numbers, ValueError for a token outside the vocabulary or another number of caches.
        """
        check_tokens(tokens, self.vocab)
        if caches is not None and len(caches) != len(self.blocks):
            raise ValueError(f"{len(caches)} caches for {len(self.blocks)} layers: expected one a layer")
        if positions is None and caches:
            positions = next_positions(caches[0], tokens.shape[1])
        x = self.embed(tokens, positions)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, positions=positions, cache=None if caches is None else caches[i])
        logits: Tensor = self.head(self.norm(x))
        return logits

    def embed(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """What the first block reads: tokens (b, t) -> (b, t, d_model), with positions added where they are added."""
        x: Tensor = self.embedding(tokens)
        where = tokens.shape[1] if positions is None else positions
        if self.table is not None:
            x = x + self.table(where)
        if self.positions == "sinusoidal":
            x = x + sinusoidal_positions(where, self.d_model, like=x)
        return x


class SparseMLP(nn.Module):
    """Experts in place of the MLP: each token goes to `top_k` of `n_experts` SwiGLU networks. `attnbook.moe` runs them.

    `routing` is what the router decided in the last call; its `aux_loss` is to be added to a training's loss. Weights
    start as torch's Linear does. `d_ff` is 8 · d_model // 3 where not given. `renormalize` as in `moe`: with it and
    top_k = 1 the router gets no gradient through the output.
    """

    def __init__(
        self,
        d_model: int,
        n_experts: int | None,
        top_k: int | None,
        *,
        d_ff: int | None = None,
        renormalize: bool = True,
    ) -> None:
        super().__init__()
        if n_experts is None or top_k is None or not 1 <= top_k <= n_experts:
            raise ValueError(f"top_k is {top_k} of n_experts {n_experts}: expected 1 to n_experts")
        d_ff = 8 * d_model // 3 if d_ff is None else d_ff
        self.top_k, self.renormalize = top_k, renormalize
        self.router = nn.Parameter(_uniform(n_experts, d_model, inputs=d_model))
        self.w_gate = nn.Parameter(_uniform(n_experts, d_model, d_ff, inputs=d_model))
        self.w_up = nn.Parameter(_uniform(n_experts, d_model, d_ff, inputs=d_model))
        self.w_down = nn.Parameter(_uniform(n_experts, d_ff, d_model, inputs=d_ff))
        self.routing: RoutingInfo | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Transform x (b, t, d_model) -> (b, t, d_model)."""
        y, self.routing = moe(
            x, self.router, self.w_gate, self.w_up, self.w_down, top_k=self.top_k, renormalize=self.renormalize
        )
        return y


class Nothing(nn.Module):
    """In place of an MLP: adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """Zeros like x."""
        return torch.zeros_like(x)


@torch.no_grad()
def attention_weights(model: Transformer, tokens: Tensor, **options: Any) -> list[Tensor]:
    """Every layer's attention weights while the model reads tokens (b, t): a list of (b, n_heads, t, t).

    They are what each layer's attention does to unit vectors (`MultiHeadAttention.forward`, `return_weights`), not a
    second formula. `options` as in `Transformer.forward`, without caches.
    """
    if options.get("caches") is not None:
        raise ValueError("caches are given: expected none, since weights are taken of whole sequences")
    weights: list[Tensor] = []

    def keep(attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> None:
        weights.append(attention.forward(*args, **kwargs, return_weights=True)[1])

    layers = [block.attention for block in model.blocks if isinstance(block, TransformerBlock)]
    handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
    try:
        model(tokens, **options)
    finally:
        for handle in handles:
            handle.remove()
    return weights


def _uniform(*shape: int, inputs: int) -> Tensor:
    """Weights as torch's Linear starts them: uniform up to 1 / √inputs on both sides of 0."""
    return torch.empty(shape).uniform_(-(inputs**-0.5), inputs**-0.5)


def _check_choices(
    positions: str, max_positions: int | None, mlp: str, n_experts: int | None, top_k: int | None
) -> None:
    if positions not in POSITIONS:
        raise ValueError(f"positions is {positions!r}: expected one of {', '.join(map(repr, POSITIONS))}")
    if (positions == "learned") != (max_positions is not None):
        needed = "expected the length of the table" if positions == "learned" else "only 'learned' has a table"
        raise ValueError(f"max_positions is {max_positions} with positions {positions!r}: {needed}")
    if mlp not in ("dense", "experts", "none"):
        raise ValueError(f"mlp is {mlp!r}: expected 'dense', 'experts' or 'none'")
    if mlp != "experts" and (n_experts is not None or top_k is not None):
        raise ValueError(f"n_experts is {n_experts} and top_k {top_k} with mlp {mlp!r}: expected mlp='experts'")


def check_tokens(tokens: Tensor, vocab: int) -> None:
    """Raises ShapeError, DTypeError or ValueError unless tokens are (b, t) whole numbers from 0 to vocab − 1."""
    check_axes("tokens", tokens, "b t")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise DTypeError(f"tokens has dtype {tokens.dtype}: expected whole numbers")
    if tokens.numel() and not torch.compiler.is_compiling():
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocab:
            raise ValueError(f"token {low if low < 0 else high} is outside the vocabulary: expected 0 to {vocab - 1}")
