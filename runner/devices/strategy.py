"""Sets up the devices of a run: distribution strategy, precision, threads and seeds.

All of it follows Model Garden's `RuntimeConfig`. Requesting missing hardware is a `ConfigError`.
"""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tf_keras
from official.common import distribute_utils
from official.core import config_definitions
from official.modeling import performance
from official.utils.misc import keras_utils

from runner.core import http2
from runner.devices import cluster, cross_entropy, garbage, meeting, team
from runner.errors import ConfigError, RunnerError
from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals

_STRATEGIES = ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
_ON_ONE_DEVICE = ("off", "one_device")
_OF_WORKERS = "multi_worker_mirrored"
_IMPLEMENTATIONS = {
    "": tf.distribute.experimental.CommunicationImplementation.AUTO,
    "ring": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}
_TPU_SECONDS = 10
_LOOK_SECONDS = 0.01  # a SIGTERM is lost while TensorFlow holds the signal handler


def workers(runtime: config_definitions.RuntimeConfig) -> cluster.Cluster | None:
    """Returns the workers to which this process belongs, or None for a single process.

    Raises:
        ConfigError: if they are not described correctly, or the strategy is not for several
            workers.
    """
    name = str(runtime.distribution_strategy).lower()
    # Tasks of a Slurm step may also be separate runs.
    found = cluster.find(
        os.environ if name == _OF_WORKERS else _tf_config(),
        runtime.worker_hosts,
        runtime.task_index,
    )
    if found is None or found.size == 1:
        return None
    if name != _OF_WORKERS:
        raise ConfigError(
            f"RuntimeConfig.worker_hosts, or TF_CONFIG, names {found.size} workers, but "
            f"RuntimeConfig.distribution_strategy = {name!r} is for one: use {_OF_WORKERS!r}"
        )
    return found


def connected(devices: tf.distribute.Strategy) -> cluster.Cluster | None:
    """Returns the workers that a caller's strategy has connected, or None for a single process.

    Raises:
        ConfigError: if TF_CONFIG names several workers, but the strategy is for one.
    """
    if not isinstance(devices, tf.distribute.MultiWorkerMirroredStrategy):
        _refuse_alone(devices)
        return None
    resolver = devices.cluster_resolver
    jobs = resolver.cluster_spec().as_dict() if resolver else {}
    chiefs, hosts = jobs.get("chief", []), jobs.get("worker", [])
    if len(chiefs) + len(hosts) < 2 or resolver.task_type not in ("chief", "worker"):
        return None
    first = len(chiefs) if resolver.task_type == "worker" else 0
    return cluster.Cluster((*chiefs, *hosts), first + resolver.task_id)


def check_joined(devices: tf.distribute.Strategy) -> None:
    """Rejects a caller's strategy for several workers in a mode that runs in one process."""
    own = connected(devices)
    if own is not None and team.current().size == 1:
        raise ConfigError(f"this mode runs in one process, but the given strategy makes it {own}")


def _tf_config() -> dict[str, str]:
    """Returns the environment with only TF_CONFIG."""
    return {each: os.environ[each] for each in ("TF_CONFIG",) if each in os.environ}


def _refuse_alone(devices: tf.distribute.Strategy) -> None:
    """Rejects a setup in which each of several workers would train alone in one directory."""
    own = cluster.find(_tf_config())
    if own is not None and own.size > 1:
        raise ConfigError(
            f"TF_CONFIG names {own.size} workers, but the strategy ({name(devices)}) is for one: "
            "give a tf.distribute.MultiWorkerMirroredStrategy, or leave out TF_CONFIG"
        )


def build_together(
    runtime: config_definitions.RuntimeConfig,
    own: cluster.Cluster,
    lines: meeting.Lines,
    *,
    seconds: float,
    serve: Callable[[], object],
) -> tf.distribute.Strategy:
    """Returns the strategy of a worker, once TensorFlow has connected all workers.

    Args:
        runtime: Sets the all-reduce algorithm.
        own: The workers.
        lines: The connections to the others, which end with them.
        seconds: How long they may take to connect.
        serve: Takes signals back from TensorFlow, and raises if one has arrived. Called repeatedly.

    Raises:
        RunnerError: if they did not connect.
        ConfigError: if this process has used TensorFlow before.
        signals.Interrupted: if a signal arrives at this worker or at another.
    """
    implementation = _implementation(runtime)
    os.environ["TF_CONFIG"] = own.tf_config()
    try:
        _connect(own, lines, seconds, serve)
        options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
        with tf_internals.connected_before():
            made = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        serve()
        return made
    except tf.errors.OpError as error:
        said = tf_internals.short_message(error.message)
        name = own.name(own.index)
        raise RunnerError(f"TensorFlow could not connect {name}: {said}") from error
    except RuntimeError as error:
        raise ConfigError(
            f"{own}: TensorFlow connects workers only before it has run anything ({error}): make no"
            " model and no tensor before. For runner.fit, use a gin file that names its functions"
        ) from error


def _connect(
    own: cluster.Cluster, lines: meeting.Lines, seconds: float, serve: Callable[[], object]
) -> None:
    """Connects the workers. TensorFlow alone would wait forever for one that has ended."""
    connect = tf_internals.connecting(seconds)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            connect()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="connecting the workers")
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
        serve()
        lines.check()
        if thread.is_alive() and time.monotonic() > end:
            names = lines.unreachable()
            where = f"; no answer from {', '.join(names)}" if names else ""
            raise RunnerError(
                f"{own.name(own.index)}: TensorFlow did not connect all workers within "
                f"{seconds:g} s ({meeting.FIELD}){where}"
            )
    if errors:
        raise errors[0]


def build(
    runtime: config_definitions.RuntimeConfig, *, logical_cpus: int = 1
) -> tf.distribute.Strategy:
    """Returns the distribution strategy that `runtime` requests for a single process.

    Args:
        runtime: Strategy name, number of GPUs (-1 for all), all-reduce, TPU address.
        logical_cpus: How many CPU devices `mirrored` uses if there is no GPU.

    Raises:
        ConfigError: if the name is unknown, there are several workers, or this machine lacks the
            devices.
    """
    name = str(runtime.distribution_strategy).lower()
    if found := workers(runtime):
        raise ConfigError(
            f"RuntimeConfig.worker_hosts, or TF_CONFIG, names {found.size} workers, but this is "
            "done by one process: leave them out"
        )
    os.environ.pop("TF_CONFIG", None)  # with one worker or an evaluator, TensorFlow would wait
    if name == "parameter_server":
        raise ConfigError(
            "RuntimeConfig.distribution_strategy = 'parameter_server' is not supported; several "
            f"workers train with {_OF_WORKERS!r}"
        )
    if name not in _STRATEGIES:
        raise ConfigError(
            f"RuntimeConfig.distribution_strategy: {runtime.distribution_strategy!r} is not "
            f"one of {', '.join(_STRATEGIES)}"
        )
    gpus = _gpus(runtime)
    if gpus > 1 and name in _ON_ONE_DEVICE:
        raise ConfigError(
            f"RuntimeConfig.num_gpus = {runtime.num_gpus} means {gpus} GPUs here, but "
            f"RuntimeConfig.distribution_strategy = {name!r} uses one device: set it to 'mirrored'"
        )
    try:
        if name == "mirrored" and not gpus and logical_cpus > 1:
            # TensorFlow's collectives would mix up the strategies of two runs in one process.
            reduction = tf.distribute.ReductionToOneDevice()
            return tf.distribute.MirroredStrategy(
                _logical_cpus(logical_cpus), cross_device_ops=reduction
            )
        if name == _OF_WORKERS:
            return _of_one_worker(runtime)
        if name == "tpu":
            return _of_tpu(runtime.tpu)
        return distribute_utils.get_distribution_strategy(
            name,
            num_gpus=gpus,
            all_reduce_alg=runtime.all_reduce_alg,
            num_packs=runtime.num_packs,
        )
    except ValueError as error:
        raise ConfigError(f"RuntimeConfig.distribution_strategy = {name!r}: {error}") from error
    except tf.errors.NotFoundError as error:
        raise ConfigError(f"RuntimeConfig.tpu = {runtime.tpu!r}: no TPU was found there") from error
    except tf.errors.OpError as error:
        said = tf_internals.short_message(error.message)
        raise RunnerError(f"RuntimeConfig.distribution_strategy = {name!r}: {said}") from error


def _implementation(
    runtime: config_definitions.RuntimeConfig,
) -> tf.distribute.experimental.CommunicationImplementation:
    """Returns the implementation with which workers sum their gradients."""
    found = _IMPLEMENTATIONS.get(runtime.all_reduce_alg or "")
    if found is None:
        raise ConfigError(
            f"RuntimeConfig.all_reduce_alg = {runtime.all_reduce_alg!r}: workers have ring and nccl"
        )
    return found


def _of_one_worker(runtime: config_definitions.RuntimeConfig) -> tf.distribute.Strategy:
    """Returns a strategy without collectives, which a single worker does not need.

    It trains on all GPUs of the machine. On one device the result is bit-exact.
    """
    _implementation(runtime)
    gpus = len(tf.config.list_physical_devices("GPU"))
    return distribute_utils.get_distribution_strategy(
        "mirrored" if gpus > 1 else "one_device",
        num_gpus=gpus,
        all_reduce_alg="nccl" if runtime.all_reduce_alg == "nccl" else None,  # it has no ring
        num_packs=runtime.num_packs,
    )


def _of_tpu(address: str | None) -> tf.distribute.Strategy:
    """Returns the strategy for a TPU that is attached to one machine."""
    _reach_tpu(address)
    made = distribute_utils.get_distribution_strategy("tpu", tpu_address=address)
    if (hosts := made.extended.num_hosts) > 1:
        raise ConfigError(
            f"RuntimeConfig.tpu = {address!r} is a pod slice of {hosts} hosts, which is not "
            "supported: use a TPU of one host"
        )
    return made


def _reach_tpu(address: str | None) -> None:
    """Checks that a TPU answers at `address`, because TensorFlow would wait silently.

    Raises:
        ConfigError: if there is no address.
        RunnerError: if no TPU answers.
    """
    if not address:
        raise ConfigError(
            "RuntimeConfig.distribution_strategy = 'tpu' needs the TPU's name or address: "
            "RuntimeConfig.tpu, or --tpu"
        )
    if address == "local":
        return
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TPU_SECONDS)
    try:
        master = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address).master()
        host, _, port = master.removeprefix("grpc://").rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port))) as connection:
            if not http2.is_spoken(connection):
                raise RunnerError(
                    f"RuntimeConfig.tpu = {address!r}: what answers at {host}:{port} is no TPU"
                )
    except (OSError, ValueError) as error:
        raise RunnerError(f"RuntimeConfig.tpu = {address!r} does not answer: {error}") from error
    finally:
        socket.setdefaulttimeout(before)


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name of its class, which is private in TensorFlow for the default strategy."""
    kind = type(strategy).__name__
    return "no strategy" if kind.startswith("_") else kind


def is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy is `one_device` on a CPU, which computes like the default."""
    one = isinstance(strategy, tf.distribute.OneDeviceStrategy)
    return one and "CPU" in strategy.extended.worker_devices[0]


def is_in_one_process(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy distributes over the CPUs or GPUs of this process alone."""
    local = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy)
    return isinstance(strategy, local) and team.current().size == 1


def describe(strategy: tf.distribute.Strategy, model: tf_keras.Model) -> str:
    """Describes the devices that hold a model, and how many GPUs stay idle."""
    variable, *_ = strategy.experimental_local_results(keras_internals.variables(model)[0])
    kind = tf.DeviceSpec.from_string(variable.device).device_type
    count = strategy.num_replicas_in_sync
    gpus = len(tf.config.list_physical_devices("GPU"))
    idle = gpus - count if kind == "GPU" else gpus
    where = f"on {count} {kind}s" if count > 1 else f"on one {kind}"
    if (mates := team.current().size) > 1:
        where += f" of {mates} workers"
    rest = (
        f"; {idle} of {gpus} GPUs idle: RuntimeConfig.distribution_strategy = 'mirrored' with "
        "num_gpus = -1 takes all"
    )
    return where + rest if idle else where


def lacking(runtime: config_definitions.RuntimeConfig) -> str:
    """Reports that GPUs were requested but there are none, or returns ""."""
    wants_gpus = runtime.num_gpus and str(runtime.distribution_strategy).lower() != "tpu"
    if not wants_gpus or tf.config.list_physical_devices("GPU"):
        return ""
    return (
        f"RuntimeConfig.num_gpus = {runtime.num_gpus}, but TensorFlow finds no GPU: the CPU is "
        "used (set TF_CPP_MIN_LOG_LEVEL=0 in the environment to see why)"
    )


def set_threads(*, intra_op: int, inter_op: int) -> None:
    """Sets how many CPU threads this process computes with. 0 keeps TensorFlow's default.

    Raises:
        ConfigError: if TensorFlow has already started with other numbers.
    """
    for field, count, limit in (
        ("intra_op_threads", intra_op, tf.config.threading.set_intra_op_parallelism_threads),
        ("inter_op_threads", inter_op, tf.config.threading.set_inter_op_parallelism_threads),
    ):
        try:
            if count:
                limit(count)
        except RuntimeError as error:
            raise _too_late(field, count) from error


def configure(
    runtime: config_definitions.RuntimeConfig, *, seed: int, deterministic: bool = True
) -> None:
    """Sets the process's precision, threads, eager mode and seeds, before any model is built.

    Layers draw from generators, whose state can be saved. Ops are deterministic if requested.
    """
    dtype = runtime.mixed_precision_dtype or "float32"
    if dtype not in ("float32", "float16", "bfloat16"):
        raise ConfigError(
            f"RuntimeConfig.mixed_precision_dtype: {dtype!r} is not float32, float16 or bfloat16"
        )
    performance.set_mixed_precision_policy(dtype)
    if runtime.gpu_thread_mode:
        keras_utils.set_gpu_thread_mode_and_count(
            runtime.gpu_thread_mode,
            runtime.dataset_num_private_threads,
            _gpus(runtime),
            runtime.per_gpu_thread_count,
        )
    if runtime.batchnorm_spatial_persistent:
        os.environ["TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"] = "1"
    tf.config.run_functions_eagerly(runtime.run_eagerly)
    tf_keras.backend.experimental.enable_tf_random_generator()
    random.seed(seed)
    np.random.seed(seed)
    keras_internals.seed_layers(seed)
    set_seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
        cross_entropy.keep_kernel()
    else:
        tf_internals.allow_nondeterminism()


def set_seed(seed: int) -> None:
    """Sets TensorFlow's seed without emptying its cache of kernels if that holds a tokenizer.

    `tf.random.set_seed` empties the cache so that eager ops repeat their random numbers, but a
    SentencepieceTokenizer keeps its model there. Random numbers drawn in functions, such as a
    dataset's shuffle, are the same either way.
    """
    if garbage.has_tokenizer():
        tf_internals.set_seed_only(seed)
    else:
        tf.random.set_seed(seed)


@contextlib.contextmanager
def without_determinism() -> Iterator[None]:
    """Allows ops that are not deterministic inside the context."""
    before = tf_internals.is_deterministic()
    tf_internals.allow_nondeterminism()
    try:
        yield
    finally:
        if before:
            tf.config.experimental.enable_op_determinism()


def check_batch(
    strategy: tf.distribute.Strategy,
    data: config_definitions.DataConfig,
    name: str,
    *,
    parts: int = 1,
) -> None:
    """Checks that the replicas can share a global batch evenly.

    Args:
        strategy: Its replicas share the batch.
        data: May have a `global_batch_size`.
        name: The name of `data` in messages.
        parts: The number of parts that each replica splits its batch into.

    Raises:
        ConfigError: if they cannot.
    """
    size = getattr(data, "global_batch_size", 0)
    replicas = strategy.num_replicas_in_sync
    unit = replicas * parts
    if size % unit:
        near = [n for n in (size - size % unit, size + unit - size % unit) if n]
        shared = f"shared by {replicas} replicas" if replicas > 1 or parts == 1 else "split"
        into = f" into {parts} parts (RunConfig.gradient_accumulation)" if parts > 1 else ""
        raise ConfigError(
            f"{name}.global_batch_size = {size} cannot be {shared}{into}; "
            f"{' or '.join(map(str, near))} could"
        )


def _gpus(runtime: config_definitions.RuntimeConfig) -> int:
    """Returns the number of GPUs to use."""
    found = len(tf.config.list_physical_devices("GPU"))
    if runtime.num_gpus > found:
        raise ConfigError(
            f"RuntimeConfig.num_gpus = {runtime.num_gpus}: TensorFlow finds {found} on this "
            "machine (set TF_CPP_MIN_LOG_LEVEL=0 in the environment to see why)"
        )
    return found if runtime.num_gpus == -1 else runtime.num_gpus


def _logical_cpus(count: int) -> list[str]:
    """Splits the first CPU into `count` logical devices and returns their names."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or [0]) < count:
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * count
            )
        except RuntimeError as error:
            raise _too_late("logical_cpus", count) from error
    return [f"CPU:{index}" for index in range(count)]


def _too_late(field: str, value: int) -> ConfigError:
    return ConfigError(
        f"RunConfig.{field} = {value} must be set before TensorFlow starts in this process"
    )
