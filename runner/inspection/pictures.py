"""Reads images that a task logged after its evaluations from TensorBoard events. No TensorFlow."""

import base64
from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto import event_pb2

from runner.core import layout
from runner.reporting import event_records

_LARGEST = 64 << 20  # bytes. Larger event files are skipped
_MOST, _PNG = 6, b"\x89PNG"


def of(folder: Path) -> list[tuple[str, int, str]]:
    """Returns name, step and `data:` URL of the newest image of each name, as far as readable."""
    newest: dict[str, tuple[int, bytes]] = {}
    for path in sorted((folder / layout.VALIDATION).glob("events.out.tfevents.*")):
        try:
            if path.stat().st_size <= _LARGEST:
                for name, step, picture in _pictures(path.read_bytes()):
                    newest[name] = step, picture
        except (OSError, ValueError):  # being written, or damaged
            continue
    return [
        (name, step, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
        for name, (step, picture) in list(newest.items())[:_MOST]
    ]


def _pictures(content: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Yields images from the content of an event file."""
    if _PNG not in content:
        return
    for data in event_records.read(content):
        if _PNG not in data:
            continue
        try:
            event = event_pb2.Event.FromString(data)
        except Exception as error:  # protobuf's DecodeError has no public path
            raise ValueError(str(error)) from error
        for value in event.summary.value:
            if value.image.encoded_image_string.startswith(_PNG):
                yield value.tag, event.step, value.image.encoded_image_string
