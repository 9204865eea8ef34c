"""Controls around probes and plots: the only part of the package that imports ipywidgets."""
