"""Official's COCO evaluation, which breaks with releases of NumPy that it does not know."""

import numpy as np
import pytest
import tensorflow as tf
from official.vision.evaluation import coco_evaluator


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) >= "2.4.0",
    reason="constraints.txt pins an earlier NumPy: pip install -e . -c constraints.txt",
)
def test_a_box_that_is_found_scores_full_marks():
    box = np.array([[[10.0, 10.0, 50.0, 50.0]]], np.float32)
    one = np.ones((1, 1), np.float32)
    truth = {
        "source_id": np.array([7]),
        "height": np.array([100]),
        "width": np.array([100]),
        "num_detections": np.array([[1]]),
        "boxes": box,
        "classes": one.astype(np.int32),
        "is_crowds": np.zeros((1, 1), np.int32),
        "areas": np.array([[1600.0]], np.float32),
    }
    found = {
        "source_id": np.array([7]),
        "image_info": np.array([[[100, 100], [100, 100], [1, 1], [0, 0]]], np.float32),
        "num_detections": np.array([1]),
        "detection_boxes": box,
        "detection_classes": one.astype(np.int32),
        "detection_scores": one,
    }
    evaluator = coco_evaluator.COCOEvaluator(None, include_mask=False)
    tensors = tf.nest.map_structure(tf.constant, (truth, found))
    evaluator.update_state(*tensors)
    assert evaluator.result()["AP50"] == pytest.approx(1.0)
