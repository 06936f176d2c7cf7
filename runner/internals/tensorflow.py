"""Private names of TensorFlow, and formats and messages that no API guarantees.

Only this package uses them. tests/internals reports names that a new version of TensorFlow lacks.
"""

import atexit
import contextlib
import ctypes
import functools
import logging
import random
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import tensorflow_server_pb2, trackable_object_graph_pb2
from tensorflow.python import _pywrap_tfe
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api
from tensorflow.python.distribute import values as distributed_values
from tensorflow.python.eager import context
from tensorflow.python.framework import config
from tensorflow.python.ops import nn_ops, stateful_random_ops
from tensorflow.python.training import checkpoint_state_pb2

from runner.internals import checkpoint_keys

UNFINISHED = "_temp"
"""The end of the name of a directory in which a checkpoint is being written."""

_ATTRIBUTES = "/.ATTRIBUTES/"

_RESTORING = (
    ("tensorflow", "python", "checkpoint"),
    ("tf_keras", "src", "saving"),
    ("tf_keras", "src", "saving", "legacy"),
)
"""The directories of the modules that load checkpoints and weights."""


def cross_entropy() -> Callable[[tf.Tensor, tf.Tensor, str | None], tf.Tensor]:
    """Returns the function for every sparse softmax cross-entropy of this process."""
    return nn_ops._sparse_softmax_cross_entropy_with_rank_2_logits


def replace_cross_entropy(
    function: Callable[[tf.Tensor, tf.Tensor, str | None], tf.Tensor],
) -> None:
    """Makes `function` compute every sparse softmax cross-entropy of this process.

    Args:
        function: Maps logits [batch, classes], labels [batch] and an op's name to losses [batch].
    """
    nn_ops._sparse_softmax_cross_entropy_with_rank_2_logits  # noqa: B018, fails if it is gone
    nn_ops._sparse_softmax_cross_entropy_with_rank_2_logits = function


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes AutoGraph convert `function` in a graph even if it does not convert the caller.

    Conversion takes AutoGraph tens of milliseconds per function, so use this for users' code only.
    """
    status = ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED)
    in_graph = api.tf_convert(function, status)

    def call(*args: Any, **kwargs: Any) -> Any:
        return (function if tf.executing_eagerly() else in_graph)(*args, **kwargs)

    return call


def set_seed_only(seed: int) -> None:
    """Sets the global seed as `tf.random.set_seed` does, but keeps the cache of kernels."""
    there = context.context()
    there._rng, there._seed  # noqa: B018, fails if one is gone
    there._seed, there._rng = seed, random.Random(seed)


def seed() -> int | None:
    """Returns the global seed, or None if it was never set."""
    return context.context()._seed


def random_state() -> tuple[Any, ...]:
    """Returns the global seed, the source of other ops' seeds, and the global generator."""
    there = context.context()
    drawn = there._rng.getstate() if there._seed is not None else None
    generator = stateful_random_ops.global_generator
    return there._seed, drawn, generator, generator and generator.state.numpy()


def set_random_state(state: tuple[Any, ...]) -> None:
    """Restores what `random_state` returned. Kernels that have already drawn restart."""
    seed, drawn, generator, position = state
    there = context.context()
    there._seed = seed
    if drawn is not None:
        there._rng = random.Random()
        there._rng.setstate(drawn)
    stateful_random_ops.global_generator = generator
    if generator is not None:
        generator.state.assign(position)


def is_initialized() -> bool:
    """Returns whether this process has used TensorFlow, so that its forks would hang."""
    return bool(context.context()._initialized)


def connecting(seconds: float) -> Callable[[], None]:
    """Returns a function that connects this process with the other workers in TF_CONFIG.

    The function may never return. TensorFlow's own connection code holds Python's lock, so that no
    other thread runs and no signal is handled while it waits. This function leaves the lock to
    others: call it in a thread. Create the strategy after it has returned.

    Args:
        seconds: How long TensorFlow waits for a worker to register.

    Returns:
        The function, which raises a `tf.errors.OpError`.

    Raises:
        RuntimeError: if this process has used TensorFlow before.
    """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    workers, device = resolver.cluster_spec(), f"/job:worker/task:{resolver.task_id}"
    there = context.context()
    there.configure_collective_ops(
        collective_leader="/job:worker/replica:0/task:0", device_filters=(device,)
    )
    there.configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=int(seconds * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(
                name="worker", num_tasks=workers.num_tasks("worker")
            )
        ],
    )
    there.ensure_initialized()
    server = tensorflow_server_pb2.ServerDef(
        cluster=workers.as_cluster_def(),
        default_session_config=there.config,
        job_name="worker",
        task_index=resolver.task_id,
        protocol="grpc",
    ).SerializeToString()
    library, handle = _c_api(), _pointer(there._context_handle)

    def connect() -> None:
        status = library.TF_NewStatus()
        try:
            library.TFE_EnableCollectiveOps(handle, server, len(server), status)
            if code := library.TF_GetCode(status):
                said = library.TF_Message(status).decode(errors="replace")
                raise tf.errors.OpError(None, None, said, code)
        finally:
            library.TF_DeleteStatus(status)

    return connect


_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError),
    *(tf.errors.DeadlineExceededError, tf.errors.CancelledError),
)
_CONNECTION = re.compile(
    r"Collective ops is aborted|CoordinationService|coordination (service|agent)|[Hh]eartbeat"
    r"|RPC: /tensorflow|Socket closed|Connection reset|failed to connect to all addresses"
)


def has_lost_worker(error: BaseException) -> bool:
    """Returns whether a worker raised this in TensorFlow because it cannot reach another."""
    if not isinstance(error, tf.errors.OpError):
        return False
    return isinstance(error, _LOST) or bool(_CONNECTION.search(error.message))


def lost_workers(error: tf.errors.OpError) -> set[int]:
    """Returns the numbers of the workers that such an error names, or 0 if the group is gone.

    They may include the worker in which it was raised.
    """
    named = {int(number) for number in re.findall(r"task:(\d+)", error.message)}
    return named or ({0} if "CoordinationService" in error.message else set())


def has_taken_sigterm() -> bool:
    """Returns whether TensorFlow has taken a SIGTERM to one of the connected workers.

    TensorFlow handles SIGTERM itself after some time, and informs all workers about one within a
    second.
    """
    try:
        context.context().get_config_key_value("TF_DEFAULT_PREEMPTION_NOTICE_KEY", timeout_in_ms=1)
    except tf.errors.OpError:
        return False
    return True


@contextlib.contextmanager
def connected_before() -> Iterator[None]:
    """Hides TensorFlow's warning that `connecting` came before the strategy inside the block."""

    def keeps(record: logging.LogRecord) -> bool:
        return "Enabling collective ops after program startup" not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(keeps)
    try:
        yield
    finally:
        logger.removeFilter(keeps)


def _c_api() -> Any:
    """Returns TensorFlow's interface for C. Its calls leave Python's lock to other threads."""
    library = ctypes.CDLL(_pywrap_tfe.__file__)
    library.TF_NewStatus.restype = ctypes.c_void_p
    library.TF_Message.restype = ctypes.c_char_p
    for function in (library.TF_Message, library.TF_GetCode, library.TF_DeleteStatus):
        function.argtypes = [ctypes.c_void_p]
    library.TF_DeleteStatus.restype = library.TFE_EnableCollectiveOps.restype = None
    library.TFE_EnableCollectiveOps.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p),
        *(ctypes.c_size_t, ctypes.c_void_p),
    ]
    return library


def _pointer(capsule: Any) -> int:
    """Returns the address in an unnamed Python capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer(capsule, None)
    return address


def is_deterministic() -> bool:
    """Returns whether ops must be deterministic."""
    return bool(config.is_op_determinism_enabled())


def set_deterministic(wanted: bool) -> None:
    """Sets whether ops must be deterministic."""
    if wanted:
        tf.config.experimental.enable_op_determinism()
    else:
        allow_nondeterminism()


def allow_nondeterminism() -> None:
    """Undoes `tf.config.experimental.enable_op_determinism`."""
    config.disable_op_determinism()


def refuses_determinism(error: Exception) -> bool:
    """Returns whether TensorFlow raised this because it cannot do something deterministically."""
    return "determinis" in str(error)


def iterator_resource(iterator: tf.data.Iterator) -> tf.Tensor:
    """Returns the handle of an iterator's state."""
    return iterator._iterator_resource


def dtype_of(serialized: bytes) -> tf.DType:
    """Returns the type of a tensor that `tf.io.serialize_tensor` has written."""
    return tf.as_dtype(tensor_pb2.TensorProto.FromString(serialized).dtype)


def dataset_of(iterator: tf.data.Iterator) -> tf.data.Dataset:
    """Returns the dataset over which an iterator was made."""
    return iterator._dataset


def shuffles(iterator: tf.data.Iterator) -> int:
    """Returns how many shuffles an iterator's dataset has."""

    def count(dataset: tf.data.Dataset) -> int:
        return ("Shuffle" in type(dataset).__name__) + sum(map(count, dataset._inputs()))

    return count(iterator._dataset)


def saved_shuffles(state: bytes) -> int:
    """Returns how many shuffles stored their position in the state of an iterator."""
    return state.count(b"epoch_num_random_samples")


@contextlib.contextmanager
def read_as(values: Iterable[tuple[tf.Variable, tf.Tensor]]) -> Iterator[None]:
    """Makes cross-replica reads of variables inside the block return the given values.

    Args:
        values: Variables that each replica adds to, such as those of metrics, and their values.
    """
    known = list(values)
    for variable, value in known:
        variable._get_cross_replica  # noqa: B018, fails if it is gone
        variable._get_cross_replica = functools.partial(tf.identity, value)
    try:
        yield
    finally:
        for variable, _ in known:
            del variable._get_cross_replica


def replica_spec(spec: Any) -> Any:
    """Returns the spec of one replica's part of a distributed value, and other specs unchanged."""
    return spec._value_specs[0] if "PerReplica" in type(spec).__name__ else spec


def replicas_spec(spec: Any, count: int) -> Any:
    """Returns the spec of a distributed value, from that of each replica's part."""
    kind = distributed_values.PerReplicaSpec
    return tf.nest.map_structure(lambda each: kind(*[each] * count), spec)


def checkpoint_state(content: bytes) -> tuple[str, list[str]]:
    """Returns the newest path and all paths in a file `checkpoint`, as written there.

    `tf.train.get_checkpoint_state` asks for the size before it opens the file. If the file is
    replaced in between, it gets only a part.

    Raises:
        ValueError: it is empty or damaged.
    """
    state = checkpoint_state_pb2.CheckpointState()
    try:
        text_format.Parse(content.decode(), state)
    except text_format.ParseError as error:
        raise ValueError(str(error)) from error
    if not state.model_checkpoint_path:
        raise ValueError("no path")
    return state.model_checkpoint_path, list(state.all_model_checkpoint_paths)


def take_write_error(checkpoint: tf.train.Checkpoint) -> Exception | None:
    """Returns the error that ended the last asynchronous write, once. `sync` does not raise it."""
    writer = checkpoint._async_checkpointer_impl
    if writer is None:
        return None
    error, writer._async_error = writer._async_error, None
    return error


def has_write_error(checkpoint: tf.train.Checkpoint) -> bool:
    """Returns whether an error has ended the last asynchronous write."""
    writer = checkpoint._async_checkpointer_impl
    return writer is not None and writer._async_error is not None


def end_writer(checkpoint: tf.train.Checkpoint) -> None:
    """Ends the thread of asynchronous writes, which until then holds all of the checkpoint."""
    writer, checkpoint._async_checkpointer_impl = checkpoint._async_checkpointer_impl, None
    if writer is not None:
        atexit.unregister(writer._join_async_save_thread)
        writer._join_async_save_thread()


def forget_unmatched(checkpoint: tf.train.Checkpoint) -> None:
    """Releases values that were read for objects not yet created, and all their references."""
    for trackable in tf.train.TrackableView(checkpoint).descendants():
        trackable._deferred_dependencies.clear()


def casts_strings(graph: tf.Graph) -> bool:
    """Returns whether a graph casts strings to numbers, which fails once it runs."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for each in definition.library.function for n in each.node_def)]
    return any(n.op == "Cast" and n.attr["SrcT"].type == tf.string.as_datatype_enum for n in nodes)


def function_graph(graph: tf.Graph, name: str) -> tf.Graph:
    """Returns the graph of a function that `graph` calls."""
    return graph._get_function(name).graph


def object_graph(reader: Any) -> Any | None:
    """Returns the graph of objects in a checkpoint, or None if TensorFlow 1 wrote it."""
    if not reader.has_tensor(checkpoint_keys.OBJECT_GRAPH):
        return None
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(checkpoint_keys.OBJECT_GRAPH))
    return graph


def write_tensors(tensors: dict[str, Any], graph: Any, prefix: str) -> None:
    """Writes a checkpoint of these tensors, by key, and of their graph of objects."""
    tensors = {checkpoint_keys.OBJECT_GRAPH: tf.constant(graph.SerializeToString()), **tensors}
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def is_of_restore(error: BaseException) -> bool:
    """Returns whether an error comes from TensorFlow or Keras loading or checking a checkpoint."""
    files = [Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__)]
    return any(part == parts[-len(part) - 1 : -1] for parts in files for part in _RESTORING)


def readable_key(key: str) -> str:
    """Returns the readable part of a tensor's key."""
    variable, is_slot, rest = key.partition(_ATTRIBUTES)[0].partition(checkpoint_keys.SLOT)
    optimizer, _, slot = rest.rpartition("/")
    readable = f"{optimizer}'s {slot} of {variable}" if is_slot else variable
    return readable.replace(".S", "/")  # TensorFlow's escape for a slash in a name


def is_slot(key: str, slot: str) -> bool:
    """Returns whether a tensor's key is that of a slot of this name."""
    return f"/{slot}{_ATTRIBUTES}" in key


def short_message(message: str) -> str:
    """Returns an error's message without the op, file or tensor at which it was noticed."""
    message = message.strip().partition("\n")[0]
    message = re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", message)
    return re.sub(r"^.*(; |\): )", "", message)


def replica_name(name: str) -> str:
    """Returns a variable's name, the same on every replica: `dense/kernel`."""
    return re.sub(r"(/replica_\d+)?:\d+$", "", name)
