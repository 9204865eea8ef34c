"""The numbers behind the lessons, one module a chapter: no plots, no widgets."""
