"""Defines a mode. Each other module here, except `groups` and `option`, is a mode, named `MODE`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.command.modes import groups

if TYPE_CHECKING:
    from runner.runs.call import Call, Outcome

WRITES, LOOKS, READS = "writes", "looks", "reads"
EVALUATES, FOLLOWS = "evaluates", "follows"
"""How a mode uses a URL. `writes` works there as in a run's directory. `looks` reads the files for
tables and pages, `reads` all files of the run. `evaluates` and `follows` also evaluate, in a
separate directory, once or while the run continues. Any other word is the subdirectory that the
mode writes.
"""


class Mode(NamedTuple):
    """A mode: its function, its options, and its prerequisites.

    Attributes:
        function: Runs the mode. The first sentence of its docstring describes the mode.
        options: The class of the options passed to `function`.
        heading: The heading under which it is listed.
        trains: Whether it needs the prerequisites of training.
        evaluates: Whether it evaluates.
        is_training: Whether it trains the run in its directory, in this process.
        dry_run: Its dry run, or None for one that follows from `trains` and `evaluates`.
        takes_several: Whether it supports an experiment that trains several tasks.
        directory: A description of its directory, or empty for a mode without one, which then
            checks itself what it trains.
        positional: The option for arguments without a flag, or empty if there is none.
        begin: Called with the command's flags while TensorFlow is loaded.
        url: How it uses a URL as its directory, or empty if it does not support URLs.
        url_needs: The option that it needs with a URL.
        instead_of_mirror: The alternative to `RunConfig.mirror`, for a mode that makes several
            runs.
        prints: Whether its output is its result, unless `output` stores that. Without stdout, the
            mode would then be useless.
        has_trials: Whether processes share its work, and configure the rest of the experiment.
    """

    function: Callable[["Call", Any], "Outcome"]
    options: type[groups.Options]
    heading: str
    trains: bool = False
    evaluates: bool = False
    is_training: bool = False
    dry_run: Callable[["Call", Any], "Outcome"] | None = None
    takes_several: bool = True
    directory: str = "of the run"
    positional: str = ""
    begin: Callable[[Mapping[str, Any]], None] | None = None
    url: str = ""
    url_needs: str = ""
    instead_of_mirror: str = ""
    prints: bool = False
    has_trials: bool = False
    name: str = ""

    @property
    def is_configured(self) -> bool:
        """Whether it needs an experiment."""
        return issubclass(self.options, groups.Experiment)

    @property
    def summary(self) -> str:
        """The first line of its function's docstring."""
        return (self.function.__doc__ or "").splitlines()[0]
