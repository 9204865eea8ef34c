"""Every word on a lab that does not move: labels of controls, titles, axes, ticks, legends.

They are kept in lab_labels.txt, so that a wrong one is seen as a difference. After a change that
is meant, `python tests/lab_labels.py` writes the file anew: read what changed.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.legend import Legend
from matplotlib.lines import Line2D

FILE = Path(__file__).parent / "lab_labels.txt"


def words(lab):
    """One line for each control, each part of the figure, and each option of a menu."""
    for name, control in lab.controls.items():
        label = getattr(control, "field", control).description
        options = (o if isinstance(o, str) else o[0] for o in getattr(control, "options", ()))
        yield f"{name}: {label!r} {' | '.join(options)}".rstrip()
    moving = set(lab.picture._moving)
    for k, axes in enumerate(lab.picture.figure.axes, start=1):
        if axes.axison:
            texts = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
            yield f"axes {k}: {' | '.join(texts)} ({axes.get_xscale()}, {axes.get_yscale()})"
        for text in axes.texts:
            if text not in moving:
                yield f"axes {k} says {text.get_text()!r}"
    for legend in lab.picture.figure.findobj(Legend):
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
            style = handle.get_linestyle() if isinstance(handle, Line2D) else ""
            yield f"legend: {text.get_text()!r} {style}".rstrip()


def stored():
    parts = FILE.read_text(encoding="utf-8").split("\n\n")
    return {part.split("\n")[0]: part.strip().split("\n")[1:] for part in parts if part.strip()}


if __name__ == "__main__":
    from labs import all_labs

    parts = ["\n".join([each.id, *words(each.values[0]())]) for each in all_labs()]
    FILE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
