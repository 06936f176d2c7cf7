"""Small TFRecord files, each record its number as text or a photo-like image."""

import tensorflow as tf


def write(path, records):
    """Writes one file."""
    with tf.io.TFRecordWriter(str(path)) as file:
        for record in records:
            file.write(record)


def numbers(folder, count, shards=1, name="train"):
    """Writes records `0`, `1`, ... one shard after the other; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, each = [], -(-count // shards)
    for shard in range(shards):
        path = folder / f"{name}-{shard:05d}-of-{shards:05d}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as file:
            for number in range(shard * each, min(count, (shard + 1) * each)):
                file.write(str(number).encode())
        paths.append(path)
    return paths
