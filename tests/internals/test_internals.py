"""What the runner takes of other libraries beyond their public names is there, and does its work.

Where a new version lacks something, a test here fails and names it.
"""

import argparse
import atexit
import importlib
import linecache
import random
import subprocess
import sys
import threading
import types
from pathlib import Path

import buckets
import gcsfs
import gin
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg
from official.core import exp_factory, registry, task_factory
from official.modeling import optimization
from official.modeling.hyperparams import base_config
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api
from tensorflow.python.autograph.pyct import inspect_utils
from tensorflow.python.checkpoint import async_checkpoint_helper
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.distribute import values
from tensorflow.python.eager import context
from tensorflow.python.framework import config, func_graph
from tensorflow.python.ops import nn_ops, stateful_random_ops
from tensorflow.python.trackable import base as trackable
from tf_keras.src import backend
from tf_keras.src.engine import base_layer

from runner.internals import autograph, checkpoint_keys, standard_library
from runner.internals import gcsfs as gcsfs_internals
from runner.internals import gin as gin_internals
from runner.internals import keras as keras_internals
from runner.internals import keras3 as keras3_internals
from runner.internals import official as official_internals
from runner.internals import tensorflow as tf_internals

ROOT = Path(__file__).parents[2]

# TensorFlow.


def cross_entropy(tmp_path):
    """Silent: TensorFlow would go on with seventy ops."""
    before = nn_ops._sparse_softmax_cross_entropy_with_rank_2_logits
    tf_internals.replace_cross_entropy(lambda logits, labels, name: logits[:, 0] * 0 + 7)
    try:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1], [[1.0, 2.0], [3.0, 4.0]])
    finally:
        tf_internals.replace_cross_entropy(before)
    said = "_sparse_softmax_cross_entropy_with_rank_2_logits is not what TensorFlow uses any more"
    assert losses.numpy().tolist() == [7, 7], said


def iterator_state(tmp_path):
    dataset = tf.data.Dataset.range(5)
    iterator, other = iter(dataset), iter(dataset)
    next(iterator)
    tf.raw_ops.DeserializeIterator(
        resource_handle=tf_internals.iterator_resource(other),
        serialized=tf.raw_ops.SerializeIterator(
            resource_handle=tf_internals.iterator_resource(iterator)
        ),
    )
    assert next(other).numpy() == 1, "_iterator_resource holds no state"


def shuffles(tmp_path):
    """Silent: a resume at the end of a pass would go on in another order."""
    dataset = tf.data.Dataset.range(90).shuffle(90, seed=1).batch(4)
    iterator = iter(tf.data.Dataset.zip(dataset.repeat(), dataset.repeat()).map(lambda a, b: a))
    next(iterator)
    state = tf.raw_ops.SerializeIterator(resource_handle=tf_internals.iterator_resource(iterator))
    saved = tf_internals.saved_shuffles(tf.io.serialize_tensor(state).numpy())
    assert tf_internals.shuffles(iterator) == saved == 2, "shuffles are not found"


def replica_spec(tmp_path):
    """Silent: a batch of all replicas would be taken for that of one."""
    spec = tf.TensorSpec([8, 2])
    both = values.PerReplicaSpec(spec, spec)
    assert tf_internals.replica_spec(both) == spec, "_value_specs is not a replica's"
    assert tf_internals.replica_spec(spec) == spec


def seed(tmp_path):
    """Silent: what a run draws would depend on what was drawn before."""

    def draw():
        return float(tf.function(lambda: tf.random.uniform([]))())

    tf.random.set_seed(3)
    drawn = draw()
    tf.random.set_seed(4)
    tf_internals.set_seed_only(3)
    assert draw() == drawn, "_seed and _rng of the context are not TensorFlow's seed"
    assert context.context()._rng.random() == random.Random(3).random(), "_rng"


def initialized(tmp_path):
    """Silent: forks of such a process hang."""
    tf.constant(0)
    assert tf_internals.is_initialized(), "_initialized"


def determinism(tmp_path):
    tf.random.set_seed(None)
    tf.config.experimental.enable_op_determinism()
    try:
        assert tf_internals.is_deterministic(), "is_op_determinism_enabled"
        with pytest.raises(RuntimeError) as refused:
            tf.random.uniform([])
        assert tf_internals.refuses_determinism(refused.value), "the message on determinism"
    finally:
        tf_internals.allow_nondeterminism()
        tf.random.set_seed(0)
    assert not tf_internals.is_deterministic(), "disable_op_determinism"


def write_error(tmp_path):
    """Silent: `sync` returns as if all were written."""
    made = tf.train.Checkpoint(x=tf.Variable(1.0))
    assert tf_internals.take_write_error(made) is None
    options = tf.train.CheckpointOptions(enable_async=True)
    made.write(str(tmp_path / "first"), options=options)
    made.sync()
    assert tf_internals.take_write_error(made) is None
    (tmp_path / "file").touch()
    made.write(str(tmp_path / "file" / "second"), options=options)
    made.sync()
    error = tf_internals.take_write_error(made)
    assert isinstance(error, tf.errors.OpError), "_async_error does not tell what went wrong"
    assert tf_internals.take_write_error(made) is None
    threads = threading.active_count()
    tf_internals.end_writer(made)
    assert threading.active_count() < threads, "_join_async_save_thread ends none"


def forgetting(tmp_path):
    """Silent: memory would grow with each restore."""
    path = tf.train.Checkpoint(x=tf.Variable(1.0), y=tf.Variable(2.0)).write(str(tmp_path / "xy"))
    made = tf.train.Checkpoint(x=tf.Variable(0.0))
    made.read(path).expect_partial()
    tf_internals.forget_unmatched(made)
    made.y = tf.Variable(0.0)
    assert (made.x.numpy(), made.y.numpy()) == (1, 0), "_deferred_dependencies is not what is kept"


def function_graph(tmp_path):
    inner = tf.function(lambda x: x * 3)
    outer = tf.function(lambda x: inner(x)).get_concrete_function(tf.TensorSpec([])).graph
    (call,) = (op for op in outer.get_operations() if "Call" in op.type)
    graph = tf_internals.function_graph(outer, call.get_attr("f").name)
    assert "Mul" in [op.type for op in graph.get_operations()], "_get_function gives another graph"


def saved_with_slot(folder):
    weight, optimizer = tf.Variable([1.0]), tf_keras.optimizers.legacy.Adam()
    optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    path = tf.train.Checkpoint(weight=weight, optimizer=optimizer).write(str(folder / "slot"))
    return tf.train.load_checkpoint(path)


def key_formats(tmp_path):
    reader = saved_with_slot(tmp_path)
    names = reader.get_variable_to_shape_map()
    assert f"weight{checkpoint_keys.VALUE}" in names, "VALUE: keys of variables have another format"
    slot = f"weight{checkpoint_keys.SLOT}optimizer/m{checkpoint_keys.VALUE}"
    assert slot in names, "SLOT: keys of slots have another format"
    assert tf_internals.is_slot(slot, "m")
    assert tf_internals.readable_key(slot) == "optimizer's m of weight"
    graph = tf_internals.object_graph(reader)
    assert graph is not None, "OBJECT_GRAPH: the graph of objects has another key"
    assert {child.local_name for child in graph.nodes[0].children} >= {"weight", "optimizer"}
    tensors = {f"weight{checkpoint_keys.VALUE}": tf.constant([5.0])}
    tf_internals.write_tensors(tensors, graph, str(tmp_path / "again"))
    weight = tf.Variable([0.0])
    tf.train.Checkpoint(weight=weight).read(str(tmp_path / "again")).expect_partial()
    assert weight.numpy() == [5], "OBJECT_GRAPH: tensors are not restored by it"


def unfinished(tmp_path):
    """Silent: what a kill left of a save would be taken for a checkpoint, or never be removed."""
    (tmp_path / f"x{tf_internals.UNFINISHED}").touch()  # where a folder is to be
    try:
        tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "x"))
    except tf.errors.OpError:
        return
    pytest.fail("UNFINISHED: TensorFlow writes a checkpoint elsewhere first")


def messages(tmp_path):
    with pytest.raises(tf.errors.OpError) as error:
        tf.io.read_file(str(tmp_path / "no"))
    said = tf_internals.short_message(error.value.message)
    assert said == "No such file or directory", "short_message: ops are named in another way"
    path = tf.train.Checkpoint(x=tf.Variable(tf.zeros([99]))).write(str(tmp_path / "x"))
    (tmp_path / "x.index").write_bytes(b"x" * 99)
    with pytest.raises(tf.errors.OpError) as error:
        tf.train.load_checkpoint(path)
    said = tf_internals.short_message(str(error.value))
    assert str(tmp_path) not in said, "short_message: files are named in another way"


# tf_keras.


def seeds_of_layers(tmp_path):
    """Silent: a model would begin with other weights each time."""
    tf_keras.backend.experimental.enable_tf_random_generator()
    first, second = (
        (keras_internals.seed_layers(7), tf_keras.initializers.GlorotUniform()((2, 2)))[1]
        for _ in range(2)
    )
    assert np.array_equal(first, second), "_SEED_GENERATOR is not what seeds initializers"


def hidden_state(tmp_path):
    """Silent: a resumed run would draw other numbers for dropout."""
    tf_keras.backend.experimental.enable_tf_random_generator()
    model = tf_keras.Sequential([tf_keras.layers.Dropout(0.5), tf_keras.layers.Dense(1)])
    model.build((None, 3))
    assert len(keras_internals.hidden_state(model)) == 1, (
        "_flatten_layers, _random_generator or _generator: a dropout's generator is not found"
    )
    before = keras_internals.hidden_state(model)[0].state.numpy().tolist()
    model(tf.ones((1, 3)), training=True)
    after = keras_internals.hidden_state(model)[0].state.numpy().tolist()
    assert before != after, "_random_generator: a layer draws from another"


def sublayers(tmp_path):
    inner = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    names = [layer.name for layer in keras_internals.sublayers(tf_keras.Sequential([inner]))]
    assert names == [inner.name], "_flatten_layers gives other layers"


def first_names(tmp_path):
    tf_keras.layers.Dense(1)
    with keras_internals.names_from_the_start():
        inside = [tf_keras.layers.Dense(1).name for _ in range(2)]
    said = "PER_GRAPH_OBJECT_NAME_UIDS does not number names any more"
    assert inside == ["dense", "dense_1"], said
    assert tf_keras.layers.Dense(1).name != "dense", said


def first_names_of_keras3(tmp_path):
    keras = pytest.importorskip("keras")
    keras.layers.Dense(1)
    with keras3_internals.names_from_the_start():
        inside = [keras.layers.Dense(1).name for _ in range(2)]
    assert inside == ["dense", "dense_1"], "_NUMBERS is another attribute's name"
    assert keras.layers.Dense(1).name != "dense", "_NUMBERS is another attribute's name"


def states_of_keras3(tmp_path):
    """Silent: a resumed run would begin with other states of stateful recurrent layers."""
    keras = pytest.importorskip("keras")
    inner = keras.layers.Bidirectional(keras.layers.GRU(1, stateful=True))
    model = keras.Sequential([keras.Input(batch_shape=(2, 3, 1)), inner])
    assert len(keras3_internals.recurrent_states(model)) == 2, "_flatten_layers or states"


def losses_of_keras3(tmp_path):
    keras = pytest.importorskip("keras")
    loss = keras.losses.Huber(2.0)
    stored = keras3_internals.whole(keras.saving.serialize_keras_object(loss), loss)
    assert stored["config"]["delta"] == 2.0, "_fn_kwargs does not hold a loss's arguments"
    model = keras.Sequential()
    model.compile(metrics=[keras.metrics.CosineSimilarity(axis=0), "mae"])
    first, second = keras3_internals.compile_config(model)["metrics"]
    assert (first["config"]["axis"], second) == (0, "mae"), "_compile_config"


def averages_of_keras3(tmp_path):
    keras = pytest.importorskip("keras")
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        layer = keras.layers.BatchNormalization()
        layer.build((None, 1))
        keras3_internals.average_over_replicas(layer.non_trainable_variables)
    strategy.run(
        lambda: layer.moving_mean.assign(
            [tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)]
        )
    )
    assert layer.moving_mean.numpy() == 0.5, "_value is not the variable of Keras 3 any more"


def frozen(tmp_path):
    """Silent: a frozen variable would be trained."""
    model = tf_keras.Sequential([tf_keras.layers.Dense(2, name="frozen")])
    model.build((None, 3))
    keras_internals.freeze(model, lambda variable: "kernel" in variable.name)
    kernel, bias = model.layers[0].weights[::-1]
    assert model.trainable_variables == [bias], "_trainable_weights is not what is trainable"
    assert model.non_trainable_variables == [kernel], "_non_trainable_weights"


def moved(optimizer, scale=None):
    """How far each of two weights is moved: a kernel by a dense gradient, a row by a sparse one."""
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, kernel_initializer="ones")])
    model.build((None, 1))
    rows = tf.Variable([[1.0], [1.0]])
    weights = [*model.trainable_weights, rows]
    keras_internals.create_variables(optimizer, weights)
    if scale:
        keras_internals.change_updates(optimizer, scale, lambda _: 0.0)
    before = [weight.numpy() for weight in weights]
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]), tf.constant([2, 1]))
    gradients = [tf.ones((1, 1)), tf.ones(1), slices]
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return [float(np.sum(old - new)) for old, new in zip(before, weights, strict=True)]


def scaled_legacy(tmp_path):
    """Silent: groups of variables would be trained at the rate of the others."""
    make = tf_keras.optimizers.legacy.SGD
    plain, scaled = moved(make(0.5)), moved(make(0.5), lambda _: 0.5)
    assert [2 * change for change in scaled] == plain, (
        "_decayed_lr, _prepare, _resource_apply_dense or "
        "_resource_apply_sparse_duplicate_indices is not what applies a rate"
    )


def scaled_new(tmp_path):
    """Silent: as for legacy ones."""
    make = tf_keras.optimizers.AdamW
    plain, scaled = moved(make(0.5)), moved(make(0.5), lambda _: 0.5)
    assert [2 * change for change in scaled] == pytest.approx(plain), (
        "learning_rate, update_step or _apply_weight_decay is not what applies a rate"
    )


def rates(tmp_path):
    for module in (tf_keras.optimizers.legacy, tf_keras.optimizers):
        schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
        made = module.SGD(schedule)
        assert keras_internals.learning_rate(made) is schedule, "_hyper or _learning_rate"
        keras_internals.set_schedule(
            made, tf_keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5)
        )
        assert moved(made)[0] == 0.25, "_build_learning_rate or _learning_rate is not applied"
        constant = keras_internals.learning_rate(module.SGD(1))
        assert (constant.dtype, constant.numpy()) == (tf.float32, 1)
        assert keras_internals.constants(module.SGD(0.5)) or module is tf_keras.optimizers.legacy


def slots(tmp_path):
    """Silent: an optimizer's slots would be made by the first step, after the restore."""
    made, weight = tf_keras.optimizers.legacy.Adam(), tf.Variable(1.0)
    keras_internals.create_variables(made, [weight])
    names = sorted(variable.name for variable in made.variables())
    assert len(names) == 3, "_create_all_weights does not make the slots"
    assert [v.numpy() for v in keras_internals.constants(made)], "_hyper has no constants"


# official.


def moving_average(tmp_path):
    inner = tf_keras.optimizers.legacy.SGD()
    made = optimization.ExponentialMovingAverage(inner)
    assert official_internals.averaged(made) is inner, "_optimizer is not what is averaged"


def registries(tmp_path):
    experiments = official_internals.registered_experiments()
    exp_factory.register_config_factory("internals")(cfg.ExperimentConfig)
    try:
        assert "internals" in experiments, "_REGISTERED_CONFIGS is not the registry"
    finally:
        del experiments["internals"]

    made = type("Section", (cfg.TaskConfig,), {})
    task_factory.register_task_cls(made)(object)
    found = registry.lookup(official_internals.registered_tasks(), made)
    assert found is object, "_REGISTERED_TASK_CLS is not the registry"


def sections(tmp_path):
    made = base_config.Config({"a": 1}, restrictions=["a != 2"])
    assert official_internals.restrictions(made) == ["a != 2"], "_restrictions"
    official_internals.restrict(made, ["a != 1"])
    with pytest.raises(KeyError):
        made.validate()
    made.lock()
    assert official_internals.is_locked(made), "_locked"
    official_internals.unlock(made)
    made.a = 3
    assert made.a == 3, "_locked is not what locks a section"


def state_of_gin(tmp_path):
    """Silent: a caller's bindings would be lost."""
    with gin.unlock_config():
        gin.parse_config("bound_by_caller = 3")
        state = gin_internals.bindings()
        gin.clear_config()
        gin_internals.set_bindings(state)
        held = gin.query_parameter("%bound_by_caller")
        gin.clear_config()
    assert held == 3, "_CONFIG, _IMPORTS or _SINGLETONS"


@gin.configurable
def called_by_caller(value=1):
    return value


def record_of_gin(tmp_path):
    """Silent: what a program saves of the bindings that it used would be empty."""
    with gin.unlock_config():
        called_by_caller()
        with gin_internals.use_unrecorded():
            gin.clear_config()
            called_by_caller(value=2)
        assert "called_by_caller.value = 1" in gin.operative_config_str(), "_OPERATIVE_CONFIG"
        gin.clear_config()


def random_states(tmp_path):
    """Silent: a caller would draw other numbers after a run."""
    generator = tf.random.Generator.from_seed(1)
    before = tf_internals.random_state()
    tf.random.set_global_generator(generator)
    state = tf_internals.random_state()
    drawn = tf.random.get_global_generator().uniform([]).numpy()
    tf.random.set_global_generator(tf.random.Generator.from_seed(2))
    tf_internals.set_random_state(state)
    assert tf.random.get_global_generator().uniform([]).numpy() == drawn, "global_generator"
    tf_internals.set_random_state(before)


def layer_seeds(tmp_path):
    """Silent: a caller's layers would begin with other weights after a run."""
    before = keras_internals.layer_seeds(), keras_internals.draws_from_generators()
    tf_keras.utils.set_random_seed(3)
    state = keras_internals.layer_seeds()
    drawn = seed_drawn()
    assert seed_drawn() != drawn
    keras_internals.set_layer_seeds(state)
    assert seed_drawn() == drawn, "_SEED_GENERATOR"
    for wanted in (True, False, before[1]):
        keras_internals.set_draws_from_generators(wanted)
        used = tf_keras.backend.experimental.is_tf_random_generator_enabled()
        assert used == wanted, "_USE_GENERATOR_FOR_RNG"
    keras_internals.set_layer_seeds(before[0])


def seed_drawn():
    return tf_keras.layers.Dense(2)(tf.ones((1, 3))).numpy().tolist()


def conversion(tmp_path):
    def sign(value):
        if value < 0:  # a Python `if` on a tensor, which only AutoGraph can trace
            return -1
        return 1

    converted = tf_internals.converted(sign)
    traced = tf.function(lambda value: converted(value), autograph=False)
    assert [int(traced(tf.constant(value))) for value in (-2.0, 3.0)] == [-1, 1]
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(lambda value: sign(value), autograph=False)(tf.constant(1.0))


def kept_sources(tmp_path):
    """Silent: a file that is edited while a run starts would change what it computes."""
    code = "def sign(value):\n    if value < 0:\n        return -1\n    return 1\n"
    file = tmp_path / "edited_later.py"
    file.write_text(code)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(
            inspect_utils, "_fix_linecache_record", inspect_utils._fix_linecache_record
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(sys.modules, "edited_later", None)  # to be removed again
        del sys.modules["edited_later"]
        module = importlib.import_module("edited_later")
        autograph.keep_sources([str(file), __file__])
        file.write_text("# above it\n" + code.replace("-1", "-7"))
        traced = tf.function(module.sign)
        found = [int(traced(tf.constant(value))) for value in (-2.0, 3.0)]
    linecache.clearcache()
    assert found == [-1, 1], "_fix_linecache_record is not what reads again"


class Sign:
    """Named by a method that makes it; a graph calls it."""

    def __call__(self, value):
        return negative(value) if value < 0 else 1


def negative(value):
    return -1 if value < 0 else 0


class Signs(tf.Module):
    def make(self):
        return Sign()

    def step(self, value):
        self.unconverted()
        return self._found(value)

    def _found(self, value):
        if value < 0:
            return -1
        return 1

    @tf.autograph.experimental.do_not_convert
    def unconverted(self):
        return tf.constant(0)


def conversion_ahead(tmp_path):
    """Silent: processes that are forked afterwards would convert again."""
    made = autograph.convert(Signs, ("step",), ("make",))
    assert set(made) == {"Signs.step", "Signs._found", "Sign.__call__", "negative"}
    signs = Signs()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(api.PyToTF, "transform_ast", None)
        for function in (signs.step, signs.make()):
            traced = tf.function(tf_internals.converted(function), autograph=False)
            found = [int(traced(tf.constant(value))) for value in (-2.0, 3.0)]
            assert found == [-1, 1], "AutoGraph's options are others"


# gin.


@gin.configurable
def refusing(value):
    raise ValueError("no")


def gin_messages(tmp_path):
    with gin.unlock_config():
        with pytest.raises(Exception, match="another") as error:
            gin.parse_config("import math\nrefusing.another = 1")
        what, line = gin_internals.split_line(error.value)
        assert line == 2, "split_line: gin names lines in another way"
        assert "\n" not in what
        with pytest.raises(ValueError) as error:
            refusing(value=1)
        assert gin_internals.split_call(error.value) == ("no", "refusing"), "split_call"
        with pytest.raises(SyntaxError) as error:
            gin.parse_config("refusing.value = none")
        (word,) = gin_internals.REFUSED_TOKEN.findall(str(error.value))
        assert word == "none", "REFUSED_TOKEN"


# The standard library.


def flags(tmp_path):
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode")
    assert "--mode" in standard_library.options(parser), "_actions lacks flags"


def one_attempt(tmp_path):
    """Silent: whatever does not answer would only be waited for six times."""
    with buckets.refusing(503) as (address, asked):
        driver = gcsfs.GCSFileSystem(token="anon", endpoint_url=address, skip_instance_cache=True)
        gcsfs_internals.try_once(driver)
        with pytest.raises(gcsfs.retry.HttpError):
            driver.call("GET", "b/bucket")  # a file's bucket is looked up elsewhere first
    assert len(asked) == 1


def exit_functions(tmp_path):
    code = (
        "import atexit, os; from runner.internals import standard_library; "
        "atexit.register(print, 'done', flush=True); "
        "standard_library.run_exit_functions(); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "done\n", "_run_exitfuncs does not run what was registered"
    assert hasattr(atexit, "_run_exitfuncs"), "_run_exitfuncs"


LEGACY, NEW = tf_keras.optimizers.legacy.Optimizer, tf_keras.optimizers.Optimizer
NAMES = [
    # The silent ones first: without them a run goes on, and is another.
    (cross_entropy, nn_ops, "_sparse_softmax_cross_entropy_with_rank_2_logits"),
    (hidden_state, base_layer.Layer, "_flatten_layers"),
    (hidden_state, base_layer.BaseRandomLayer, "_random_generator"),
    (hidden_state, backend.RandomGenerator, "_generator"),
    (iterator_state, iterator_ops.OwnedIterator, "_iterator_resource"),
    (shuffles, iterator_ops.OwnedIterator, "_dataset"),
    (shuffles, dataset_ops.UnaryDataset, "_inputs"),
    (replica_spec, values.PerReplicaSpec, "_value_specs"),
    (seed, context.Context, "_seed"),
    (seed, context.Context, "_rng"),
    (initialized, context.Context, "_initialized"),
    (seeds_of_layers, backend, "_SEED_GENERATOR"),
    (write_error, tf.train.Checkpoint, "_async_checkpointer_impl"),
    (write_error, async_checkpoint_helper.AsyncCheckpointHelper, "_async_error"),
    (write_error, async_checkpoint_helper.AsyncCheckpointHelper, "_join_async_save_thread"),
    (forgetting, trackable.Trackable, "_deferred_dependencies"),
    (unfinished, tf_internals, "UNFINISHED"),
    (scaled_legacy, LEGACY, "_decayed_lr"),
    (scaled_legacy, LEGACY, "_prepare"),
    (scaled_legacy, tf_keras.optimizers.legacy.SGD, "_resource_apply_dense"),
    (
        scaled_legacy,
        tf_keras.optimizers.legacy.SGD,
        "_resource_apply_sparse_duplicate_indices",
    ),
    (scaled_new, NEW, "_apply_weight_decay"),
    (slots, LEGACY, "_create_all_weights"),
    (slots, LEGACY, "_hyper"),
    (rates, NEW, "_learning_rate"),
    (rates, NEW, "_build_learning_rate"),
    # The others end a run.
    (determinism, config, "is_op_determinism_enabled"),
    (determinism, config, "disable_op_determinism"),
    (function_graph, func_graph.FuncGraph, "_get_function"),
    (kept_sources, inspect_utils, "_fix_linecache_record"),
    (conversion, api, "tf_convert"),
    (conversion, ag_ctx, "ControlStatusCtx"),
    (conversion_ahead, api, "_TRANSPILER"),
    (key_formats, checkpoint_keys, "VALUE"),
    (key_formats, checkpoint_keys, "SLOT"),
    (key_formats, checkpoint_keys, "OBJECT_GRAPH"),
    (sublayers, base_layer.Layer, "_flatten_layers"),
    (first_names, backend, "PER_GRAPH_OBJECT_NAME_UIDS"),
    (first_names_of_keras3, keras3_internals, "_NUMBERS"),
    (frozen, base_layer.Layer, "_trainable_weights"),
    (frozen, base_layer.Layer, "_non_trainable_weights"),
    (moving_average, optimization.ExponentialMovingAverage, "_optimizer"),
    (registries, exp_factory, "_REGISTERED_CONFIGS"),
    (registries, task_factory, "_REGISTERED_TASK_CLS"),
    (sections, base_config.Config, "_restrictions"),
    (sections, base_config.Config, "_locked"),
    *((state_of_gin, gin.config, name) for name in gin_internals.STATE),
    (state_of_gin, gin.config, "_CONFIG_IS_LOCKED"),
    (record_of_gin, gin.config, gin_internals.OPERATIVE),
    (random_states, stateful_random_ops, "global_generator"),
    (layer_seeds, backend, "_SEED_GENERATOR"),
    (layer_seeds, backend, "_USE_GENERATOR_FOR_RNG"),
    (flags, argparse.ArgumentParser, "_actions"),
    (exit_functions, atexit, "_run_exitfuncs"),
    (one_attempt, gcsfs.GCSFileSystem, "_request"),
]


def gone(monkeypatch, owner, name):
    """As a version that calls it otherwise: of objects, attributes that they set themselves."""
    if isinstance(getattr(owner, name, None), str):
        monkeypatch.setattr(owner, name, "another")
        return
    if isinstance(owner, types.ModuleType):
        monkeypatch.delattr(owner, name)
        return
    if callable(getattr(owner, name, None)):
        for kind in owner.__mro__:
            if name in vars(kind):
                monkeypatch.delattr(kind, name)
        return
    for way in ("__getattribute__", "__getattr__"):
        if get := getattr(owner, way, None):
            monkeypatch.setattr(owner, way, without(get, name))


def without(get, name):
    def find(self, asked):
        if asked == name:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return get(self, asked)

    return find


@pytest.mark.parametrize(
    "smoke",
    dict.fromkeys(
        [
            *(row[0] for row in NAMES),
            messages,
            gin_messages,
            averages_of_keras3,
            states_of_keras3,
            losses_of_keras3,
        ]
    ),
)
def test_it_is_there_and_does_its_work(tmp_path, smoke):
    smoke(tmp_path)


@pytest.mark.parametrize(("smoke", "owner", "name"), NAMES)
def test_without_it_its_test_fails_and_names_it(tmp_path, monkeypatch, smoke, owner, name):
    gone(monkeypatch, owner, name)
    told = ""
    try:
        smoke(tmp_path)
    except BaseException as error:  # pytest's own failures among them
        told = f"{error} {error.__cause__}"
    monkeypatch.undo()
    assert name in told
