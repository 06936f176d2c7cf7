"""Folders of runs that were never trained: what a finished run leaves, without checkpoints."""

import json

PARAMS = """\
task:
  init_checkpoint: ''
  train_data:
    input_path: ''
    global_batch_size: 8
trainer:
  optimizer_config:
    optimizer:
      type: {optimizer}
      {optimizer}:
        name: {optimizer}
    learning_rate:
      type: constant
      constant:
        name: Constant
        learning_rate: {rate}
  steps_per_loop: 10
  summary_interval: 10
  train_steps: 40
  best_checkpoint_eval_metric: accuracy
  best_checkpoint_metric_comp: higher
run:
  seed: {seed}
  deterministic: true
  retention:
    from_step: 0
    or_higher: []
    or_lower: []
  evaluation_sets: {sets}
  tags: {tags}
  notes: {notes}
"""


def make(folder, *, accuracy=(0.5, 0.9), state="done", losses=(3.0, 2.0, 1.0, 0.5), **given):
    """A run of 40 steps, evaluated as often as there are accuracies."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"optimizer": "sgd", "rate": 0.1, "seed": 0, "tags": [], "notes": "", "sets": []}
    values = {name: given.get(name, value) for name, value in values.items()}
    texts = {
        name: value if name == "optimizer" else json.dumps(value) for name, value in values.items()
    }
    (folder / "params.yaml").write_text(PARAMS.format(**texts))
    every = 40 // max(len(accuracy), 1)
    rows = [
        {
            **{"kind": "evaluation", "step": every * n, "metrics": {"accuracy": value}},
            **{"seconds": 0.1, "time": 1000.0 + n, "checkpoint": f"ckpt-{every * n}"},
        }
        for n, value in enumerate(accuracy, start=1)
    ]
    lines(folder / "history.jsonl", rows)
    rows = [
        {"step": 10 * n, "training_loss": loss, "steps_per_second": 5.0}
        for n, loss in enumerate(losses, start=1)
    ]
    lines(folder / "train.jsonl", rows)
    status = {"state": state, "step": 40, "reason": "", "heartbeat": 1060.0, "host": "a", "pid": 1}
    (folder / "status.json").write_text(json.dumps(status))
    start = {"started": 1000.0, "ended": 1060.0, "state": state, "step": 40, "host": "a"}
    start |= {"python": "3.11", "versions": {"tensorflow": "2.20.0"}, **given.get("start", {})}
    (folder / "run.json").write_text(json.dumps({"starts": [start]}))
    return folder


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
