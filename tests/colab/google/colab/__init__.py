"""Stands in for Colab's module, which exists only there: what a notebook may import and call."""

from . import output as output
