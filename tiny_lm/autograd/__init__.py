"""The glass box: the block in NumPy, with derivatives one can read; never imports torch."""

from tiny_lm.autograd.tensor import Tensor, where

__all__ = ["Tensor", "where"]
