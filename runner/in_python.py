"""What the functions that Python calls do around their work: `runner.run`, `fit` and `load`."""

import contextlib
import re
from collections.abc import Iterator

from runner.errors import RunnerError

_SWITCHES = re.compile(r"--(allow_config_change|allow_lost_history|overwrite|dry_run)\b(?!=)")
_OVERWRITE = re.compile(r"--overwrite=([^\s:,;]+)")
_MODE = re.compile(r"(?<!runner )--mode=")
_NAMES = re.compile(r"--(model_dir|runs|steps|like|to|data|output|select|metric)\b(?!=)")


@contextlib.contextmanager
def called(*, loads_tensorflow: bool = True) -> Iterator[None]:
    """Inside, messages name arguments; on leaving, the process has the settings that it had.

    Args:
        loads_tensorflow: Whether the work needs TensorFlow; if not, it changes no settings.
    """
    with contextlib.ExitStack() as stack:
        if loads_tensorflow:
            from runner.devices import process_state

            stack.enter_context(process_state.restored())
        stack.enter_context(arguments_for_flags())
        yield


@contextlib.contextmanager
def arguments_for_flags() -> Iterator[None]:
    """Inside, messages name arguments: `allow_config_change=True`, not `--allow_config_change`."""
    try:
        yield
    except RunnerError as error:
        if error.args and isinstance(said := error.args[0], str):
            said = _OVERWRITE.sub(r"overwrite='\1'", _SWITCHES.sub(r"\1=True", said))
            said = _MODE.sub("mode=", _NAMES.sub(r"\1", said))
            error.args = (said, *error.args[1:])
        raise
