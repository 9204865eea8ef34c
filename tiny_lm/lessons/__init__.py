"""Whole lessons in a terminal: every number is computed, shown, and compared with the right one."""
