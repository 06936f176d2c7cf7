"""`--mode=init`."""

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.runs.call import Call, Outcome


class Options(groups.Options):
    """The kind of project."""

    section = "Options of init"
    like: str = option(
        "",
        "the template: images, keras, tabular or text",
        "KIND",
        examples=("images", "keras", "tabular", "text"),
    )


def init(call: Call, options: Options) -> Outcome:
    """Creates a new project, as in `runner --mode=init --like=images my_project`."""
    from runner.command.projects import create

    return Outcome(create.create(options.like, call.model_dir))


MODE = Mode(
    init,
    Options,
    "Create",
    directory="for the new project, as in runner --mode=init --like=images my_project",
    positional="model_dir",
)
