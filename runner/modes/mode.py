"""What a mode is. Each other module here, but for its options' groups, is one, named `MODE`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from runner.modes import groups

if TYPE_CHECKING:
    from runner.runs.call import Call, Outcome

WRITES, LOOKS, READS = "writes", "looks", "reads"
EVALUATES, FOLLOWS = "evaluates", "follows"
"""What a mode does with a URL: it works there as a run does; it reads what tables and pages need,
or all that the run has; it also evaluates in a directory of its own, once or while the run goes on.
Another word is the name of the directory in it that the mode writes."""


@dataclasses.dataclass(frozen=True)
class Mode:
    """A mode: what it does, with which options, and what has to be prepared for it.

    Attributes:
        function: Does it. The first sentence of its docstring describes the mode.
        options: The class of its options, which `function` gets.
        heading: Under which it is listed.
        trains: Whether it needs what training needs.
        evaluates: Whether it evaluates.
        is_training: Whether it trains the run in its directory, in this process.
        dry_run: Its dry run; None for one of what it trains and evaluates.
        takes_several: Whether it works with an experiment that trains several tasks.
        directory: Whose its directory is; empty for a mode that has none. One that has none checks
            itself what it trains.
        positional: The option that arguments without a flag are for; empty if there is none.
        begin: Called with the command's flags while TensorFlow is loaded.
        url: What it does with a URL as its directory; empty: it takes none.
        url_needs: The option that it needs with a URL.
        instead_of_mirror: What to do in place of `RunConfig.mirror`, for a mode that makes several
            runs.
        prints: Whether what it prints is its result, unless `output` keeps that: without stdout,
            it was run for nothing.
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
        """What it does, in a sentence."""
        return (self.function.__doc__ or "").splitlines()[0]
