import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from runner import inputs
from tasks.images import calibration, out_of_distribution

CLASSES = 7


def all_metrics(classes=CLASSES):
    mean = calibration.Mean
    return [
        mean(calibration.correct, "accuracy"),
        mean(calibration.correct_in_5, "top_5_accuracy"),
        mean(calibration.negative_log_likelihood, "negative_log_likelihood"),
        mean(calibration.brier_score, "brier_score"),
        mean(calibration.confidence, "confidence", of_all=True),
        mean(out_of_distribution.entropy, "entropy", of_all=True),
        calibration.ExpectedCalibrationError(),
        calibration.Reliability(),
        calibration.ConfusionMatrix(classes),
        out_of_distribution.DetectionAUROC(),
        out_of_distribution.DetectionAUPRC(),
    ]


OF_LABELLED = {
    "accuracy",
    "top_5_accuracy",
    "negative_log_likelihood",
    "brier_score",
    "expected_calibration_error",
    "reliability",
    "confusion_matrix",
}
OF_ALL = {"confidence", "entropy"}
OF_BOTH_KINDS = {"ood_auroc", "ood_auprc"}


def results(computed):
    return {each.name: each.result().numpy() for each in computed if each.is_defined()}


def of(labels, logits, batch=1000):
    computed = all_metrics(logits.shape[1])
    for start in range(0, len(labels), batch):
        part = slice(start, start + batch)
        for each in computed:
            each.update_state(tf.constant(labels[part]), tf.constant(logits[part]))
    return results(computed)


def predictions(count=523, *, scale=2.0, unknown=0):
    """Labels, of which the last are unknown, and logits that favour them."""
    draw = np.random.default_rng(0)
    labels = draw.integers(CLASSES, size=count).astype(np.int32)
    logits = draw.normal(size=(count, CLASSES)) * scale
    logits[np.arange(count), labels] += 2 * scale
    if unknown:
        logits[-unknown:] = draw.normal(size=(unknown, CLASSES)) * scale
        labels[-unknown:] = draw.integers(-3, 0, size=unknown)
    return labels, logits.astype(np.float32)


def softmax(logits):
    exponentials = np.exp(np.float64(logits) - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def bins_of(labels, probabilities):
    """[15, 3] from Guo et al.'s definition, one part after the other."""
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    rows = []
    for part in range(15):
        inside = (sure > part / 15) & (sure <= (part + 1) / 15)
        rows.append([inside.sum(), sure[inside].sum(), right[inside].sum()])
    return np.array(rows)


def test_the_metrics_are_those_of_scikit_learn_and_numpy():
    labels, logits = predictions()
    probabilities = softmax(logits)
    classes = range(CLASSES)
    count, sure, right = bins_of(labels, probabilities).T
    filled = count > 0
    gaps = np.abs(right[filled] / count[filled] - sure[filled] / count[filled])
    expected = {
        "accuracy": metrics.accuracy_score(labels, probabilities.argmax(axis=1)),
        "top_5_accuracy": metrics.top_k_accuracy_score(labels, logits, k=5, labels=classes),
        "negative_log_likelihood": metrics.log_loss(labels, probabilities, labels=classes),
        "brier_score": sum(
            metrics.brier_score_loss(labels == each, probabilities[:, each]) for each in classes
        ),
        "confidence": probabilities.max(axis=1).mean(),
        "entropy": -(probabilities * np.log(probabilities)).sum(axis=1).mean(),
        "expected_calibration_error": (gaps * count[filled] / len(labels)).sum(),
        "reliability": bins_of(labels, probabilities),
        "confusion_matrix": metrics.confusion_matrix(labels, logits.argmax(axis=1)),
    }
    found = of(labels, logits)
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_batches_make_no_difference(batch):
    labels, logits = predictions(60, unknown=20)
    whole = of(labels, logits)
    assert set(whole) == OF_LABELLED | OF_ALL | OF_BOTH_KINDS
    for name, value in of(labels, logits, batch).items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-6, err_msg=name)


def test_two_replicas_make_no_difference_though_one_may_have_nothing():
    labels, logits = predictions(33, unknown=9)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    data = inputs.in_order(
        len(labels),
        lambda index: (tf.gather(labels, index), tf.gather(logits, index)),
        config=inputs.DataConfig(is_training=False, global_batch_size=16),
        input_context=tf.distribute.InputContext(num_replicas_in_sync=2),
    )
    parts = [tuple(tf.constant(x) for x in part) for part in data.as_numpy_iterator()]
    assert [len(labels) for labels, _ in parts] == [8, 8, 8, 8, 1]
    with strategy.scope():
        computed = all_metrics()
    nothing = (tf.zeros([0], tf.int32), tf.zeros([0, CLASSES]))
    for pair in (parts[:2], parts[2:4], [parts[4], nothing]):
        values = strategy.experimental_distribute_values_from_function(
            lambda context, pair=pair: pair[context.replica_id_in_sync_group]
        )
        for each in computed:
            strategy.run(each.update_state, args=values)
    expected = of(labels, logits)
    found = results(computed)
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_a_reset_forgets_everything():
    labels, logits = predictions(unknown=150)
    computed = all_metrics()
    for each in computed:
        each.update_state(labels, logits)
    assert len(results(computed)) == len(computed)
    for each in computed:
        each.reset_state()
    assert not results(computed)


def test_examples_of_no_known_class_are_left_out_of_what_needs_labels():
    labels, logits = predictions(unknown=150)
    known = labels >= 0
    found, alone = of(labels, logits), of(labels[known], logits[known])
    for name in OF_LABELLED:
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-6, err_msg=name)
    for name in OF_ALL:
        assert found[name] != pytest.approx(alone[name], rel=1e-2)


def test_what_cannot_be_computed_has_no_result():
    labels, logits = predictions(unknown=150)
    known = labels >= 0
    assert set(of(labels[known], logits[known])) == OF_LABELLED | OF_ALL
    assert set(of(labels[~known], logits[~known])) == OF_ALL
    assert not of(labels[:0], logits[:0])


@pytest.mark.parametrize("scale", [0.3, 2.0, 12.0], ids=["unsure", "sure", "all but certain"])
def test_unknown_classes_are_told_by_confidence_as_exactly_as_scikit_learn_does(scale):
    labels, logits = predictions(4000, scale=scale, unknown=1500)
    unknown = labels < 0
    others = np.float64(logits)
    others[np.arange(len(labels)), logits.argmax(axis=1)] = -np.inf
    odds = logits.max(axis=1) - np.logaddexp.reduce(others, axis=1)
    found = of(labels, logits)
    auroc = metrics.roc_auc_score(unknown, -odds)
    assert found["ood_auroc"] == pytest.approx(auroc, abs=2e-4)
    auprc = metrics.average_precision_score(unknown, -odds)
    assert found["ood_auprc"] == pytest.approx(auprc, abs=1e-3)


def test_networks_that_are_beyond_doubt_are_still_told_apart():
    """Both probabilities are 1 in float32, their log-odds are 29 and 31."""
    logits = np.array([[30, 0, 0], [32, 0, 0]], np.float32) - np.float32(np.log(2))
    found = of(np.array([-1, 0], np.int32), np.pad(logits, ((0, 0), (0, 3)), constant_values=-99))
    assert found["confidence"] == 1
    assert (found["ood_auroc"], found["ood_auprc"]) == (1, 1)


def test_of_equal_logits_the_first_classes_count():
    labels = np.array([0, 4, 5, 6], np.int32)
    found = of(labels, np.zeros((4, CLASSES), np.float32))
    assert (found["accuracy"], found["top_5_accuracy"]) == (0.25, 0.5)


def test_sums_count_on_where_float32_could_not():
    metric = calibration.Mean(calibration.correct, "accuracy")
    metric.sums.assign([2**25, 2**25])
    metric.update_state(tf.constant([1]), tf.constant([[0.0, 1.0]]))
    np.testing.assert_array_equal(metric.sums.numpy(), [2**25 + 1, 2**25 + 1])
