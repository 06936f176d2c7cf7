"""`--launch`: runs the command, or its trials, with a launcher. No TensorFlow."""

import dataclasses
from pathlib import Path

from runner.command import execution, typed, url_folders
from runner.command.typed import Command
from runner.core import layout
from runner.launch import bounds, job, launchers
from runner.runs.call import Call, Results
from runner.storage import urls


def launch(command: Command, call: Call) -> Results | None:
    """Launches the command. Returns None for a dry run that only prints."""
    mode, options = command.mode, command.options
    if call.config is None:
        from runner import config

        settings = config.load_launch(options.gin_file, options.gin_params)
    else:
        settings = call.config.run.launch
    launcher = launchers.LAUNCHERS[options.launch]
    job_command = typed.for_job(command, shares_files=launcher.shares_files)
    if launcher.shares_files and command.model_dir:
        _check_directory(command.model_dir)
    workers = command.flags.get("workers")
    if settings.nodes > 1 and not mode.has_trials:
        url_folders.check_shared(command.model_dir)
    submitted = job.Job(
        mode.name,
        job_command.arguments(),
        job_command.model_dir,
        Path.cwd(),
        settings,
        call.config.runtime.distribution_strategy if call.config else "",
        bounds.Bounds.parse(workers) if workers else None,
        mode.is_training,
        mode.has_trials,
        call.stop,
    )
    if launcher.place and mode.has_trials and not options.dry_run:
        launchers.check_job(options.launch, submitted)
        with launcher.place(submitted) as place:
            return execution.run(mode, dataclasses.replace(call, place=place), options).results
    return launchers.launch(options.launch, submitted, dry_run=options.dry_run)


def _check_directory(model_dir: str) -> None:
    """Raises an error if `model_dir` cannot be a run's directory or its URL."""
    if urls.is_url(model_dir):
        urls.check(model_dir, "--model_dir=")
    else:
        layout.check(Path(model_dir))
