"""The manual's notebook runs from its first cell to its last, in a kernel of its own."""

from pathlib import Path

import nbformat
import pytest

nbclient = pytest.importorskip("nbclient")
NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "keras_notebook.ipynb"


def test_the_notebook_runs(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    mistake = nbformat.v4.new_code_cell("runner.load_model('nowhere')")
    mistake.metadata.tags = ["raises-exception"]
    notebook.cells.append(mistake)
    place = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=600, resources=place)
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    fitted, drawn, again, loaded, mistaken = cells[2:]
    shown = [each["data"]["text/plain"] for each in fitted.outputs if "data" in each]
    assert len([text for text in shown if text.startswith("step")]) == 1, "redrawn in place"
    assert fitted.outputs[-1].data["text/plain"].startswith("<done at step")
    assert "image/png" in drawn.outputs[-1].data
    assert again.outputs[-1].data["text/plain"].count(",") == 5
    assert loaded.outputs[-1].output_type == "execute_result"
    text = "".join(
        each.get("text", "") for cell in notebook.cells for each in cell.get("outputs", ())
    )
    assert "retracing" not in text
    (error,) = [each for each in mistaken.outputs if each.output_type == "error"]
    assert error.traceback[-1].startswith("ConfigError: nowhere")
    assert len(error.traceback) <= 2, "the cell's line and the message"
