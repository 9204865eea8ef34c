"""Names for the values inside a forward pass, and a way to record or change them.

A forward pass takes `tap`, a function `tap(name, value) -> value`, and calls it where it makes a
value. A block names `norm.attn`, `attn.weights`, `resid.attn`, `norm.ffn` and `resid.ffn`; the
model puts `blocks.{i}.` before them and adds `embed` and `norm.final`. `norm.*` is the output of a
norm, what a branch reads; `resid.*` is a completed sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Tap = Callable[[str, Any], Any]


def ignore(name: str, value: Any) -> Any:
    """The tap of a pass that nobody listens to."""
    return value


def under(prefix: str, tap: Tap) -> Tap:
    """A tap that puts `prefix.` before every name; `ignore` stays `ignore`, which costs nothing."""
    if tap is ignore:
        return ignore
    return lambda name, value: tap(f"{prefix}.{name}", value)


class Recorder(Mapping):
    """Keeps every value of a forward pass by name, in the order of computation.

    `Recorder(edit={"blocks.3.resid.ffn": f})` replaces that value by `f(value)` on its way, and
    records the replacement. `unused` lists the edits whose name never came up: a misspelt name
    would otherwise change nothing and say nothing.
    """

    def __init__(self, edit: Mapping[str, Callable[[Any], Any]] | None = None):
        self._edit = dict(edit or {})
        self._values: dict[str, Any] = {}

    def __call__(self, name: str, value: Any) -> Any:
        if name in self._edit:
            value = self._edit[name](value)
        self._values[name] = value
        return value

    @property
    def unused(self) -> list[str]:
        return [name for name in self._edit if name not in self._values]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Recorder({', '.join(self._values)})"
