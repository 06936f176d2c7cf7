"""The manual's notebook runs from its first cell to its last, in a kernel of its own."""

import os
import signal
import threading
import time
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
    bars = [each["data"].get("text/html", "") for each in fitted.outputs if "data" in each]
    assert any("<progress" in text for text in bars)
    assert fitted.outputs[-1].data["text/plain"].startswith("<done at step")
    assert "image/png" in drawn.outputs[-1].data
    assert again.outputs[-1].data["text/plain"].count(",") == 5
    assert loaded.outputs[-1].output_type == "execute_result"
    text = "".join(
        each.get("text", "") for cell in notebook.cells for each in cell.get("outputs", ())
    )
    assert "retracing" not in text
    assert "oneDNN" not in text, "TensorFlow's messages at its start are hidden"
    (error,) = [each for each in mistaken.outputs if each.output_type == "error"]
    assert error.traceback[-1].startswith("ConfigError: nowhere")
    assert len(error.traceback) <= 2, "the cell's line and the message"


def test_an_interrupt_of_the_kernel_saves_a_checkpoint(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"][:2]
    long = "runner.fit(build_model(), x, y, epochs=100_000, model_dir='runs/long')"
    code.append(nbformat.v4.new_code_cell(long))
    code[-1].metadata.tags = ["raises-exception"]
    notebook.cells = code
    rows = tmp_path / "runs" / "long" / "train.jsonl"
    place = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=600, resources=place)

    def interrupt():
        while not rows.exists():
            time.sleep(0.1)
        os.kill(client.km.provisioner.pid, signal.SIGINT)  # as the button of Jupyter does

    threading.Thread(target=interrupt, daemon=True).start()
    client.execute()
    (error,) = [each for each in code[-1].outputs if each.output_type == "error"]
    assert "Interrupt" in error.ename
    assert list(rows.parent.glob("ckpt-*.index"))
