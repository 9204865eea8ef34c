"""Measurements of speed and growth, each beside other people's code on the same work.

`python -m tiny_lm bench` prints them. Every figure is a ratio of times that were taken in turns, so
that a machine that slows down slows everybody. Other libraries take part when they are installed.
"""
