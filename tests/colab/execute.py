"""Run the notebooks of a folder as Colab would: in order, from the set-up cell on, no error.

Cells that need the real model are left out: they need a network and 93 MB.
"""

import sys
from pathlib import Path

import google.colab
import nbformat
from nbclient import NotebookClient

assert google.colab.output, "the stand-in for Colab's module"
for path in sorted(Path(sys.argv[1]).glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [
        cell for cell in notebook.cells if "needs-smollm2" not in cell.metadata.get("tags", [])
    ]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": path.parent}})
    client.execute()
    labs = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "application/vnd.jupyter.widget-view+json" in output.get("data", {})
    ]
    assert labs, f"no lab in {path.name}"
    print(f"{path.name}: {len(labs)} widgets")
