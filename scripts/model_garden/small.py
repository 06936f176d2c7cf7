"""Overrides that make Model Garden's experiments small."""

from pathlib import Path
from typing import Any

from official.core import config_definitions as cfg

from scripts.model_garden.data import LENGTH, MASKED, SIDE, WORDS

STEPS = 2


def small(params: cfg.ExperimentConfig, data: Path) -> dict[str, Any]:
    """Returns overrides that make an experiment small, nested as in YAML.

    Args:
        params: The registered experiment.
        data: The directory of the generated examples.
    """
    task = params.task
    kind = type(task).__module__.rpartition(".")[2]
    values: dict[str, Any] = {
        "runtime": {"distribution_strategy": "one_device" if _averages(params) else "off"},
        "trainer": {
            "train_steps": STEPS,
            "steps_per_loop": 1,
            "summary_interval": 1,
            "checkpoint_interval": STEPS,
            "validation_interval": STEPS,
            "validation_steps": 1 if _is_endless(task, kind) else -1,
            "recovery_max_trials": -1,  # no upper bound on the loss
            "optimizer_config": _schedule(params),
        },
        "task": {
            "train_data": {"global_batch_size": 2},
            "validation_data": {"global_batch_size": 2},
        },
    }
    if kind != "mock_task":  # whose data are endless
        _merge(values["task"], _MAKE[kind](task, data))
    for name in ("train_data", "validation_data"):
        described = vars(getattr(task, name))
        if described.get("tfds_name"):
            _merge(values["task"][name], {"tfds_name": "", "tfds_split": ""})
    if params.runtime.enable_xla:
        values["runtime"]["enable_xla"] = (
            False  # on CPUs only the runner compiles, which changes dropout
        )
    if "init_checkpoint" in vars(task) and task.init_checkpoint:
        values["task"]["init_checkpoint"] = None
    return values


def _is_endless(task: Any, kind: str) -> bool:
    """Whether the validation data repeat, as in some registered experiments."""
    return kind == "mock_task" or (
        task.validation_data.is_training and kind != "question_answering"
    )


def _averages(params: cfg.ExperimentConfig) -> bool:
    """Whether the experiment averages weights. Model Garden's trainer needs a strategy for this."""
    return params.trainer.optimizer_config.ema is not None


def _schedule(params: cfg.ExperimentConfig) -> dict[str, Any]:
    """Returns the lengths that some experiments leave to the user."""
    options, lengths = params.trainer.optimizer_config, dict[str, Any]()
    for choice, names in (
        ("learning_rate", ("decay_steps", "total_decay_steps")),
        ("warmup", ("warmup_steps",)),
    ):
        kind = getattr(options, choice).type
        section = vars(getattr(getattr(options, choice), kind)) if kind else {}
        for name in names:
            if name in section and not section[name]:
                _merge(lengths, {choice: {kind: {name: 1 if choice == "warmup" else STEPS}}})
    if not options.learning_rate.type:
        lengths["learning_rate"] = {"type": "constant", "constant": {"learning_rate": 0.01}}
    if not options.optimizer.type:
        lengths["optimizer"] = {"type": "sgd"}
    return lengths


def _merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Merges nested values into `base`."""
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            _merge(base[name], value)
        else:
            base[name] = value
    return base


def _both(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the same values for the training and the validation data."""
    return {"train_data": dict(values), "validation_data": dict(values)}


def _backbone(model: Any) -> dict[str, Any]:
    """Returns the smallest network of the experiment's kind."""
    kind = model.backbone.type
    smallest: dict[str, dict[str, Any]] = {
        "resnet": {"model_id": 10},
        "dilated_resnet": {"model_id": 50, "depth_multiplier": 0.25},
        "mobilenet": {"filter_size_scale": 0.25},
        "spinenet": {"model_id": "49S"},
        "spinenet_mobile": {"model_id": "49XS"},
        "resnet_3d": {"model_id": 50},
        "vit": {"model_name": "vit-ti16"},
    }
    known = vars(getattr(model.backbone, kind))
    sizes = {name: value for name, value in smallest.get(kind, {}).items() if name in known}
    return {"backbone": {kind: sizes}}


def _image_classification(task: Any, data: Path) -> dict[str, Any]:
    classes = {"num_classes": 5} if not task.model.num_classes else {"num_classes": 11}
    return {
        "model": {**classes, "input_size": [32, 32, 3], **_backbone(task.model)},
        **_both({"input_path": str(data / "images")}),
    }


def _detection(task: Any, data: Path) -> dict[str, Any]:
    parser = {"max_num_instances": 10}
    model: dict[str, Any] = {
        "num_classes": 5,
        "input_size": [128, 128, 3],
        **_backbone(task.model),
        "detection_generator": {"pre_nms_top_k": 20, "max_num_detections": 5},
    }
    if "decoder" in vars(task.model) and task.model.decoder.type == "fpn":
        model["decoder"] = {"fpn": {"num_filters": 16}}
    for head in ("head", "detection_head", "mask_head", "rpn_head"):
        if getattr(task.model, head, None) is not None:
            model[head] = {"num_filters": 16}
    if getattr(task.model, "detection_head", None) is not None:
        model["detection_head"]["fc_dims"] = 16
        model["roi_generator"] = {"num_proposals": 20, "test_num_proposals": 20}
        model["roi_sampler"] = {"num_sampled_rois": 8}
        if task.model.include_mask:
            model["mask_sampler"] = {"num_sampled_masks": 4}
    return {
        "annotation_file": "",
        "model": model,
        **_both({"input_path": str(data / "boxes"), "parser": parser}),
    }


def _semantic_segmentation(task: Any, data: Path) -> dict[str, Any]:
    pooled = {"num_filters": 8, "pool_kernel_size": None}
    size = {"output_size": [64, 64], "crop_size": [], "input_path": str(data / "masks")}
    return {
        "model": {
            "num_classes": 5,
            "input_size": [64, 64, 3],
            **_backbone(task.model),
            "head": {"num_filters": 8},
            **({"decoder": {"aspp": pooled}} if task.model.decoder.type == "aspp" else {}),
        },
        **_both(size),
        "validation_data": {**size, "groundtruth_padded_size": [SIDE, SIDE]},
    }


def _video_classification(task: Any, data: Path) -> dict[str, Any]:
    return {
        "model": _backbone(task.model),
        **_both(
            {
                "input_path": str(data / "videos"),
                "feature_shape": [4, 32, 32, 3],
                "min_image_size": 32,
                "num_classes": 5,
            }
        ),
    }


_ENCODER = {
    "num_layers": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "vocab_size": len(WORDS),
    "max_position_embeddings": LENGTH,
}


def _encoder(config: Any) -> dict[str, Any]:
    return {config.type: dict(_ENCODER)}


def _masked_lm(task: Any, data: Path) -> dict[str, Any]:
    described = vars(task.train_data)
    values = {"input_path": str(data / "tokens")}
    validation = {**values, "seq_length": LENGTH, "max_predictions_per_seq": MASKED}
    training = dict(validation)
    if "seq_bucket_lengths" in described:
        training = {**values, "seq_bucket_lengths": [LENGTH]}
    if "vocab_file_path" in described:
        text = {
            "input_path": str(data / "sentences"),
            "vocab_file_path": str(data / "words"),
            "doc_batch_size": 2,
        }
        training, validation = {**training, **text}, {**validation, **text}
    return {
        "model": {"encoder": _encoder(task.model.encoder), "cls_heads": [_head(task)]},
        "train_data": training,
        "validation_data": validation,
    }


def _head(task: Any) -> dict[str, Any]:
    return {**task.model.cls_heads[0].as_dict(), "inner_dim": 16}


def _electra_task(task: Any, data: Path) -> dict[str, Any]:
    values = {
        "input_path": str(data / "tokens"),
        "seq_length": LENGTH,
        "max_predictions_per_seq": MASKED,
    }
    return {
        "model": {
            "generator_encoder": _encoder(task.model.generator_encoder),
            "discriminator_encoder": _encoder(task.model.discriminator_encoder),
            "sequence_length": LENGTH,
            "num_masked_tokens": MASKED,
            "cls_heads": [_head(task)],
        },
        **_both(values),
    }


def _sentence_prediction(task: Any, data: Path) -> dict[str, Any]:
    values: dict[str, Any] = {"input_path": str(data / "tokens"), "seq_length": LENGTH}
    if "text_fields" in vars(task.train_data):
        values |= {
            "input_path": str(data / "sentences"),
            "vocab_file": str(data / "words"),
            "text_fields": ["text"],
        }
    model = {"num_classes": 2, "encoder": _encoder(task.model.encoder)}
    return {"model": model, **_both(values)}


def _question_answering(task: Any, data: Path) -> dict[str, Any]:
    values = {"seq_length": LENGTH, "vocab_file": str(data / "words")}
    return {
        "model": {"encoder": _encoder(task.model.encoder)},
        "train_data": {**values, "input_path": str(data / "tokens")},
        "validation_data": {
            **values,
            "input_path": str(data / "squad.json"),
            "is_training": False,
            "query_length": 4,
            "doc_stride": 4,
        },
    }


def _tagging(task: Any, data: Path) -> dict[str, Any]:
    values = {"seq_length": LENGTH, "input_path": str(data / "tags")}
    model = {"encoder": _encoder(task.model.encoder)}
    return {"model": model, "class_names": ["a", "b"], **_both(values)}


def _translation(_: Any, data: Path) -> dict[str, Any]:
    layers = {"num_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    values = {"input_path": str(data / "pairs"), "max_seq_length": LENGTH}
    return {
        "sentencepiece_model_path": str(data / "pieces.model"),
        "model": {
            "encoder": layers,
            "decoder": dict(layers),
            "embedding_width": 16,
            "decode_max_length": LENGTH,
        },
        **_both(values),
        "train_data": {**values, "global_batch_size": 2 * LENGTH},
    }


_MAKE = {
    "image_classification": _image_classification,
    "maskrcnn": _detection,
    "retinanet": _detection,
    "semantic_segmentation": _semantic_segmentation,
    "video_classification": _video_classification,
    "masked_lm": _masked_lm,
    "electra_task": _electra_task,
    "sentence_prediction": _sentence_prediction,
    "question_answering": _question_answering,
    "tagging": _tagging,
    "translation": _translation,
}
"""The values that make a task small, by its module."""
