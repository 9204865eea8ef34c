"""Run notebooks in place and store them so that running again changes nothing.

python tests/execute_notebooks.py                 every notebook
python tests/execute_notebooks.py notebooks/02_rms_computation.ipynb
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}


def execute(notebook: nbformat.NotebookNode, folder: Path = NOTEBOOKS) -> nbformat.NotebookNode:
    """Run every cell in a new kernel, then drop whatever differs from run to run."""
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # a slow cell may print in several pieces, here or there
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    notebook.metadata = nbformat.from_dict(METADATA)  # no widget state: GitHub would refuse it
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            view = output.get("data", {}).get(WIDGET_MIME)
            if view:
                view["model_id"] = f"not-saved-{cell.id}"  # a random number otherwise
    nbformat.validate(notebook)
    return notebook


def main(names: list[str]) -> None:
    for path in map(Path, names) if names else sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        start = time.perf_counter()
        notebook = execute(nbformat.read(path, as_version=4))
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
