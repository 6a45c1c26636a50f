"""Attention is a weighted average: reference code, its measurements, and the tools of the book."""
