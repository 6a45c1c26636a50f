"""Models that the book's experiments train and open: small transformers, built of the package's own parts.

Nothing here is a new idea: `Transformer` puts embeddings below `attnbook.TransformerBlock`s and a read-out above them,
every choice that a chapter compares is an option, and a seed fixes where it starts. Imported lazily: needs torch.
"""

from attnbook.models.training import IGNORE, Batch, mean_token_loss, right_tokens, train
from attnbook.models.transformer import SparseMLP, Transformer, attention_weights

__all__ = [
    "IGNORE",
    "Batch",
    "SparseMLP",
    "Transformer",
    "attention_weights",
    "mean_token_loss",
    "right_tokens",
    "train",
]
