"""Multiply-adds counted from graphs, against the same worked out by hand."""

import pytest
import tensorflow as tf
import tf_keras
from wording import saying

from runner.reporting.flops import graph, ops

L = tf_keras.layers
X = tf.TensorSpec([3, 4])
W = tf.TensorSpec([4, 4])
PRODUCT = 3 * 4 * 4  # multiply-adds of X @ W


def count(function, *specs):
    return graph.multiply_adds(tf.function(function).get_concrete_function(*specs).graph)


def step_on(model, x):
    """Gradients for a model's weights and its input."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(model(x, training=True) ** 2)
    return tape.gradient(loss, [x, *model.trainable_variables])


@pytest.mark.parametrize(
    ("function", "left", "right", "expected"),
    [
        (tf.matmul, [3, 4], [4, 5], 3 * 4 * 5),
        (lambda a, b: tf.matmul(a, b, transpose_a=True), [4, 3], [4, 5], 3 * 4 * 5),
        (lambda a, b: tf.matmul(a, b, adjoint_a=True), [7, 4, 3], [7, 4, 5], 7 * 3 * 4 * 5),
        (tf.matmul, [7, 2, 3, 4], [2, 4, 5], 7 * 2 * 3 * 4 * 5),  # broadcasts
        (
            lambda a, b: tf.einsum("bij,bjhd->bihd", a, b),
            [2, 3, 4],
            [2, 4, 5, 6],
            2 * 3 * 4 * 5 * 6,
        ),
        (lambda a, b: tf.einsum("...i,...ij->...j", a, b), [2, 1, 4], [3, 4, 5], 2 * 3 * 4 * 5),
        (lambda a, b: tf.einsum("ij->ji", a) + b, [3, 4], [4, 3], 0),
        (lambda a, b: tf.nn.softmax(a * b), [3, 4], [3, 4], 0),
    ],
)
def test_a_matrix_product_takes_one_multiply_add_for_each_pair_that_it_multiplies(
    function, left, right, expected
):
    assert count(function, tf.TensorSpec(left), tf.TensorSpec(right)) == expected


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (L.Dense(5), (4,), 4 * 5),
        (L.Conv1D(5, 3, padding="causal", dilation_rate=2), (8, 4), 8 * 5 * 3 * 4),
        (L.Conv2D(5, 3, strides=2, padding="same"), (8, 8, 4), 16 * 5 * 9 * 4),
        (L.Conv2D(6, 3, groups=2), (8, 8, 4), 36 * 6 * 9 * 2),
        (L.Conv2DTranspose(5, 3, strides=2), (8, 8, 4), 64 * 4 * 9 * 5),
        (L.Conv3D(5, 3), (6, 6, 6, 4), 64 * 5 * 27 * 4),
        (L.DepthwiseConv2D(3, depth_multiplier=2), (8, 8, 4), 36 * 8 * 9),
        (L.SimpleRNN(3), (5, 4), 5 * (4 * 3 + 3 * 3)),
        (L.LSTM(3), (5, 4), 5 * (4 * 12 + 3 * 12)),
        (L.RNN(L.GRUCell(3)), (5, 4), 5 * (4 * 9 + 3 * 9)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, L.Layer) else "",
)
def test_both_gradients_of_a_layer_cost_as_much_as_its_forward_pass(layer, shape, expected):
    model = tf_keras.Sequential([L.Input(shape), layer])
    batch = tf.TensorSpec([2, *shape])
    assert count(model, batch) == 2 * expected
    assert count(lambda x: step_on(model, x), batch) == 3 * 2 * expected


def test_what_no_result_depends_on_is_left_out():
    assert count(lambda x, w: (x @ w, x)[1], X, W) == 0

    def first_layer_needs_no_gradient_for_its_input(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME") ** 2)
        return tape.gradient(loss, w)

    image, kernel = tf.TensorSpec([1, 8, 8, 3]), tf.TensorSpec([3, 3, 3, 4])
    forward = 64 * 4 * 9 * 3
    assert count(first_layer_needs_no_gradient_for_its_input, image, kernel) == 2 * forward


def test_a_side_effect_is_a_result():
    assert count(lambda x, w: (tf.print(x @ w), x)[1], X, W) == PRODUCT


@pytest.mark.parametrize("compiled", [False, True])
def test_functions_are_followed_with_their_gradients(compiled):
    @tf.function(jit_compile=compiled)
    def inner(x, w):
        return tf.tanh(tf.tanh(x @ w) @ w)

    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(inner(x, w))
        return tape.gradient(loss, w)

    assert count(inner, X, W) == 2 * PRODUCT
    assert count(step, X, W) == 2 * PRODUCT + 3 * PRODUCT  # none for x in the first layer


def test_a_function_traced_for_any_batch_counts_for_the_batch_it_is_called_with():
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), W])
    def inner(x, w):
        for _ in tf.range(5):
            x = tf.tanh(x @ w)
        return x

    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = inner(x, w) @ w
        return y, tape.gradient(y, [x, w])

    assert count(lambda x, w: inner(x, w) @ w, X, W) == 6 * PRODUCT
    assert count(step, X, W) == 6 * 3 * PRODUCT


def test_the_most_expensive_branch_counts():
    def branch(x, w):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ w @ w, lambda: x @ w)

    def switch(x, w):
        index = tf.cast(x[0, 0], tf.int32)
        return tf.switch_case(index, [lambda: x, lambda: x @ w @ w @ w, lambda: x @ w])

    assert count(branch, X, W) == 2 * PRODUCT
    assert count(switch, X, W) == 3 * PRODUCT


def counting_up(x, w):
    i = 1
    while tf.less_equal(i, 7):
        x, i = tf.tanh(x @ w), i + 2
    return x


def counting_down(x, w):
    i = tf.constant(7)
    while i > 0:
        x, i = tf.tanh(x @ w), i - 2
    return x


def over_the_rows(x, w):
    for _ in tf.range(1, 2 * tf.shape(x)[0], 2):
        x = tf.tanh(x @ w)
    return x


def with_a_break(x, w):
    for _ in tf.range(4):
        if tf.reduce_sum(x) > 3:
            break
        x = tf.tanh(x @ w)
    return x


def with_maximum_iterations(x, w):
    return tf.while_loop(
        lambda x: tf.reduce_sum(x) > 3, lambda x: [x @ w], [x], maximum_iterations=4
    )


def with_a_growing_list(x, w):
    rows = tf.zeros([0, 4])
    for _ in tf.range(4):
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(rows, tf.TensorShape([None, 4]))]
        )
        rows = tf.concat([rows, x @ w], 0)
    return rows


@pytest.mark.parametrize(
    ("loop", "turns"),
    [
        (counting_up, 4),
        (counting_down, 4),
        (over_the_rows, 3),
        (with_a_break, 4),
        (with_maximum_iterations, 4),
        (with_a_growing_list, 4),
    ],
)
def test_a_loop_counts_with_all_its_turns(loop, turns):
    assert count(loop, X, W) == turns * PRODUCT


def test_a_condition_counts_once_more_than_the_body():
    def loop(x, w):
        return tf.while_loop(
            lambda i, x: tf.logical_and(i < 3, tf.reduce_sum(x @ w) < 9),
            lambda i, x: (i + 1, tf.tanh(x @ w)),
            [0, x],
        )[1]

    assert count(loop, X, W) == (3 + 4) * PRODUCT


def test_the_gradient_of_loops_in_loops_turns_as_often_as_they():
    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            for _ in tf.range(3):
                for _ in tf.range(4):
                    x = tf.tanh(x @ w)
            loss = tf.reduce_sum(x)
        return tape.gradient(loss, w)

    assert count(step, X, W) == 3 * 4 * 3 * PRODUCT


def test_every_replica_counts():
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        model = tf_keras.Sequential([L.Input([8]), L.Dense(5, "relu"), L.Dense(3)])
        optimizer = tf_keras.optimizers.SGD(0.1, momentum=0.9)
    examples = tf.data.Dataset.from_tensors(tf.zeros([8])).repeat().batch(6, drop_remainder=True)

    def step(iterator):
        def on_replica(x):
            _, *gradients = step_on(model, x)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        strategy.run(on_replica, (next(iterator),))

    batches = iter(strategy.experimental_distribute_dataset(examples))
    # Nothing needs the gradient for the input of the first layer.
    assert count(step, batches) == 6 * (2 * 8 * 5 + 3 * 5 * 3)


def forever(x, w):
    while tf.reduce_sum(x) > 3:
        x = tf.tanh(x @ w)
    return x


def growing(x, w):
    rows = x
    for _ in tf.range(4):
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(rows, tf.TensorShape([None, 4]))]
        )
        rows = tf.concat([rows, rows @ w], 0)
    return rows


def over_data(x, w):
    rows = tf.data.Dataset.from_tensor_slices(x).map(lambda row: tf.linalg.matvec(w, row))
    return next(iter(rows))


@pytest.mark.parametrize(
    ("function", "x", "reason"),
    [
        (forever, X, "loop while fixed"),
        (growing, X, "shape fixed 4"),
        (over_data, X, "MapDataset calls"),
        (tf.matmul, tf.TensorSpec([None, 4]), "shape fixed 4"),
        (
            lambda x, w: tf.py_function(lambda x, w: x @ w, [x, w], tf.float32, name="outside"),
            X,
            "outside EagerPyFunc",
        ),
    ],
)
def test_what_cannot_be_counted_is_named(function, x, reason):
    with pytest.raises(ops.UncountableError, match=saying(reason)):
        count(function, x, W)


def test_a_loop_without_products_may_turn_as_often_as_it_likes():
    def loop(x, w):
        while tf.reduce_sum(x) > 3:
            x /= 2
        return x @ w

    assert count(loop, X, W) == PRODUCT
