"""A user's own mistakes in a task: each is one message with file and line, before the first step.

The task is the manual's own, changed in one place.
"""

import json
from pathlib import Path

import own_task
import pytest
from wording import says

from runner import main

EXAMPLES = own_task.FILES
SHORT = [
    "--gin_file=line.gin",
    "--model_dir=run",
    "--gin.TrainerConfig.train_steps=4",
    "--gin.TrainerConfig.steps_per_loop=2",
]

MODEL = "return tf_keras.Sequential([tf_keras.Input((1,)), outputs])"
INPUTS = "return place(len(x), load, config=params, input_context=input_context)"
LOSS = "return tf.reduce_mean(tf.square(labels - model_outputs))"
METRICS = 'return [tf_keras.metrics.MeanAbsoluteError("error")]'
REGISTERED = "@task_factory.register_task_cls(LineConfig)\n"
LABELS = "tf.gather(y, index)"

# What stands in the manual; what stands there instead; the words of the line that is named; what is
# said.
MISTAKES = {
    "inputs that are arrays": (
        INPUTS, "return x, y", "def build_inputs", "tuple ndarray"
    ),
    "inputs that are none": (INPUTS, "pass", "def build_inputs", "returns None"),
    "no list of metrics": (METRICS, "pass", "def build_metrics", "build_metrics returns None"),
    "metrics that are none": (METRICS, "return [len]", "def build_metrics", "returns builtin"),
    "no model": (MODEL, "pass", "def build_model", "LineTask.build_model returns None"),
    "a Keras 3 model": (
        MODEL,
        "import keras; return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])",
        "def build_model",
        "returns Keras 3 model",
    ),
    "a compiled model": (
        MODEL,
        f"model = {MODEL.removeprefix('return ')}; model.compile(loss='mse'); return model",
        "def build_model",
        "returns compiled",
    ),
    "no loss": (LOSS, "pass", "def build_losses", "LineTask.build_losses returns None"),
    "a loss of other things": (
        LOSS, "return tf.reduce_mean(labels)", None, "depend weight"
    ),
    "labels without the axis of the outputs": (
        LABELS, "tf.gather(y[:, 0], index)", LOSS, "20 against outputs 1"
    ),
    "a task that is not registered": (
        REGISTERED, "", "@dataclasses.dataclass", "task registered LineConfig"
    ),
}  # fmt: skip


def run(monkeypatch, task, *flags):
    """Writes the task and its gin file, and runs the command."""
    Path("line.py").write_text(task)
    Path("line.gin").write_text(EXAMPLES["line.gin"])
    monkeypatch.syspath_prepend(str(Path.cwd()))
    return main.main([*SHORT, *flags])


def line_of(task, words):
    return next(n for n, line in enumerate(task.splitlines(), start=1) if words in line)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_its_file_and_line(capsys, monkeypatch, mistake):
    right, wrong, words, said = MISTAKES[mistake]
    assert right in EXAMPLES["line.py"]
    task = EXAMPLES["line.py"].replace(right, wrong)

    assert run(monkeypatch, task, "--mode=train_and_eval") == 2

    out, err = capsys.readouterr()
    assert out == ""
    message = err[err.index("runner: ") :]
    says(message, said)
    assert len(message.splitlines()) <= 3
    if words:
        assert f"line.py:{line_of(task, words)}" in message
    assert not Path("run", "train.jsonl").exists()


def test_the_manuals_task_trains_under_mixed_precision(capsys, monkeypatch):
    precision = "--gin.RuntimeConfig.mixed_precision_dtype='float16'"
    assert run(monkeypatch, EXAMPLES["line.py"], "--mode=train_and_eval", precision) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 4


def test_a_loss_of_two_types_is_answered_with_what_to_do(capsys, monkeypatch):
    task = EXAMPLES["line.py"].replace(', dtype="float32")', ")")
    precision = "--gin.RuntimeConfig.mixed_precision_dtype='bfloat16'"
    assert run(monkeypatch, task, "--mode=train", precision) == 2
    *_, first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("runner: ")
    says(first, f"line.py:{line_of(task, LOSS)} TypeError Input 'y' Sub")
    says(second, "layer dtype='float32'")


OF_THEIR_OWN_EXAMPLE = [
    "tf.reduce_mean(tf.square(labels - tf.squeeze(model_outputs, -1)))",
    "tf.reduce_mean(tf.square(labels[:, None] - model_outputs))",
    "tf.reduce_sum(tf_keras.losses.MeanSquaredError('none')(labels, model_outputs))",
    "tf_keras.losses.BinaryCrossentropy(True, reduction='sum')(labels, model_outputs)",
    "tf.reduce_mean(tf_keras.losses.sparse_categorical_crossentropy("
    "tf.zeros_like(labels), tf.concat([model_outputs, -model_outputs], -1), from_logits=True))",
    "tf.reduce_mean(tf.nn.relu((model_outputs - tf.transpose(model_outputs))"
    " * (labels[:, None] - labels[None, :])))",
]
OF_EVERY_OUTPUT = [
    "tf.reduce_mean(tf_keras.losses.mean_squared_error(labels, model_outputs))",
    "tf.reduce_mean(tf.abs(tf.cast(model_outputs, tf.float32) - 2.0 * labels))",
    "tf.reduce_mean(-labels * tf.math.log_sigmoid(model_outputs))",
]


def with_losses(losses):
    """The manual's task with labels without the axis of the outputs, and with a sum of losses."""
    task = EXAMPLES["line.py"].replace(LABELS, "tf.gather(y[:, 0], index)")
    return task.replace(LOSS, f"return {' + '.join(losses)}")


def test_labels_that_meet_the_outputs_of_their_own_example_are_taken(monkeypatch):
    assert run(monkeypatch, with_losses(OF_THEIR_OWN_EXAMPLE), "--mode=train") == 0


@pytest.mark.parametrize("loss", OF_EVERY_OUTPUT)
def test_labels_that_meet_every_output_are_found_behind_casts_and_scales(monkeypatch, loss):
    losses = [*OF_THEIR_OWN_EXAMPLE, loss]  # it is found among others
    assert run(monkeypatch, with_losses(losses), "--mode=train") == 2


LAYER = """class Mine(tf_keras.layers.Layer):
            def call(self, x):
                if tf.reduce_sum(x) > 0:
                    x = tf.matmul(x, tf.zeros([3, 7]))
                return x
        """
GENERATOR = """def points():
            for i in range(1000):
                yield x[i], y[i]
        kinds = (tf.TensorSpec((1,), tf.float32),) * 2
        return tf.data.Dataset.from_generator(points, output_signature=kinds).batch(20)"""
OUT_OF_BOUNDS = "IndexError: index 100 is out of bounds for axis 0 with size 100"


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        (
            MODEL,
            LAYER + MODEL.replace("outputs", "Mine(), outputs"),
            "x = tf.matmul",
            "ValueError: ",
        ),
        (METRICS, METRICS.replace(")]", ", bins=3)]"), "bins=3", "TypeError: "),
        (INPUTS, GENERATOR, "yield x[i], y[i]", OUT_OF_BOUNDS),
        (
            LOSS,
            f"return 0.0 * {LOSS[7:]} + tf.gather(labels, 100)[0]",
            "gather(labels, 100)",
            "InvalidArgumentError: ",
        ),
        (
            LOSS,
            f"{LOSS} + tf.reduce_sum(tf.py_function(lambda x: x.nump(), [labels], tf.float32))",
            "x.nump()",
            "AttributeError: ",
        ),
    ],
)
def test_any_other_error_shows_the_line_and_what_it_says(
    capsys, monkeypatch, right, wrong, line, said
):
    task = EXAMPLES["line.py"].replace(right, wrong)
    assert run(monkeypatch, task, "--mode=train", "--gin.TrainerConfig.train_steps=10") == 1
    err = capsys.readouterr().err
    *shown, last = err[err.index("runner: in your code:") :].splitlines()
    assert f"line.py:{line_of(task, line)}, in " in err
    assert any(each.startswith(f"    {said}") for each in shown)
    assert len(shown) <= 6
    says(last, "traceback run/traceback.txt")
