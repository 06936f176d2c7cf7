"""The command in a process of its own, forked from one that has imported all it needs."""

from runner.studies import warm

warm.preload(["runner.runs.train", "runner.runs.evaluator_run", "tasks.image_classification"])
Popen = warm.Popen
