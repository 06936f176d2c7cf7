"""A run as a row of TensorBoard's HPARAMS table, where `tensorboard --logdir runs` compares runs.

The row contains the changed configuration values, how the run ended, and the best evaluation's
metrics. TensorBoard adds the last point of every chart in the subdirectories, including those of
evaluators. No columns are declared: TensorBoard would read only the declaration of one run, but
without any it collects the columns of all runs.

This module builds the messages itself, because TensorBoard's functions for them are slow to import.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import Message
from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from runner.config import Experiment
from runner.configuration import printing
from runner.core import closing, files, secrets, signals
from runner.history import records
from runner.reporting import tensorboard

_SUFFIX = ".hparams"  # of the event file's name
_EMPTY = tensor_pb2.TensorProto(
    dtype=types_pb2.DT_FLOAT,
    tensor_shape=tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=0)]
    ),
)


class Session:
    """The row of one run (TensorBoard's "session"), in the run's directory itself.

    Args:
        model_dir: The run's directory. The row of an earlier attempt is replaced, because
            TensorBoard would read the older of two.
        values: The changed configuration values, by path.
    """

    def __init__(self, model_dir: Path, values: dict[str, bool | float | str]) -> None:
        for old in model_dir.glob(f"events.out.tfevents.*{_SUFFIX}"):
            files.remove(old)
        self._board = tensorboard.TensorBoard(model_dir, suffix=_SUFFIX)
        begin = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())  # a separate group
        for name, value in values.items():
            if isinstance(value, bool):
                begin.hparams[name].bool_value = value
            elif isinstance(value, str):
                begin.hparams[name].string_value = value
            else:
                begin.hparams[name].number_value = value
        self._add("session_start_info", begin)
        self._board.flush()

    def best(self, row: records.Evaluation | None) -> None:
        """Adds the best evaluation's metrics, `best/...`, if there is one."""
        if row is not None:
            self._board.write(row.step, {f"best/{name}": x for name, x in row.metrics.items()})

    def end(self, *, succeeded: bool) -> None:
        """Records how the run ended."""
        end = plugin_data_pb2.SessionEndInfo(
            status=api_pb2.STATUS_SUCCESS if succeeded else api_pb2.STATUS_FAILURE,
            end_time_secs=time.time(),
        )
        self._add("session_end_info", end)

    def _add(self, field: str, message: Message) -> None:
        data = plugin_data_pb2.HParamsPluginData(**{field: message})
        about = summary_pb2.SummaryMetadata()
        about.plugin_data.plugin_name = "hparams"
        about.plugin_data.content = data.SerializeToString()
        value = summary_pb2.Summary.Value(tag=f"_hparams_/{field}", metadata=about, tensor=_EMPTY)
        self._board.add(0, summary_pb2.Summary(value=[value]))

    def close(self) -> None:
        """Flushes and closes the file."""
        self._board.close()


@contextlib.contextmanager
def session(experiment: Experiment, model_dir: Path) -> Iterator[Session | None]:
    """Yields the run's row during an attempt, or None if `RunConfig.tensorboard` is off.

    If a signal ends the attempt, the row stays open, because the run will be resumed.
    """
    if not experiment.run.draws("hparams"):
        yield None
        return
    with closing.closing(Session(model_dir, values(experiment))) as made:
        try:
            yield made
        except signals.Interrupted:
            raise
        except BaseException:
            made.end(succeeded=False)
            raise
        made.end(succeeded=True)


def values(experiment: Experiment) -> dict[str, bool | float | str]:
    """Returns the changed values by path, as in `--print_config=changed`, with secrets masked.

    Anything except a bool, a finite number or a string is rendered as YAML.
    """
    changed = {path: _plain(value) for path, value in printing.changed(experiment).items()}
    return secrets.masked_all(changed, list(secrets.held(experiment.as_dict())))


def _plain(value: object) -> bool | float | str:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return printing.inline(value)
