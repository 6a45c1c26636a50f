"""Models that the book's experiments train and open: small transformers of the package's own parts, and a trained one.

Nothing here is a new idea: `Transformer` puts embeddings below `attnbook.TransformerBlock`s and a read-out above them,
every choice that a chapter compares is an option, and a seed fixes where it starts. `SmolLM2` reads a trained model
from a GGUF file, with its tokenizer, and `generate` lets it go on. Imported lazily: needs torch.
"""

from attnbook.models.generate import generate, stream
from attnbook.models.gguf_file import GGUFFile, MissingModel, find_model
from attnbook.models.smollm2 import SmolLM2
from attnbook.models.tokenizer import Tokenizer
from attnbook.models.training import IGNORE, Batch, mean_token_loss, right_tokens, train
from attnbook.models.transformer import SparseMLP, Transformer, attention_weights

__all__ = [
    "IGNORE",
    "Batch",
    "GGUFFile",
    "MissingModel",
    "SmolLM2",
    "SparseMLP",
    "Tokenizer",
    "Transformer",
    "attention_weights",
    "find_model",
    "generate",
    "mean_token_loss",
    "right_tokens",
    "stream",
    "train",
]
