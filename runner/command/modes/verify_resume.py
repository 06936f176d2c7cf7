"""`--mode=verify_resume`."""

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.runs.call import Call, Outcome


class Options(groups.InDirectory):
    """Options of the dry run."""

    section = "Options of verify_resume"
    allow_config_change: bool = option(
        False, "with --dry_run, accept a run in --model_dir that has another configuration"
    )


def verify_resume(call: Call, _: Options) -> Outcome:
    """Kills and resumes your experiment, and checks that the result is bit-identical."""
    from runner.runs import verify_resume

    return Outcome(verify_resume.verify_resume(call))


MODE = Mode(verify_resume, Options, "Try and verify", trains=True, instead_of_mirror="set it to ''")
