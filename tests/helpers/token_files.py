"""Small files of token sequences: TFRecords of tf.Examples, and Parquet columns of lists."""

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf


def records(path, sequences):
    """Writes an example for each dictionary of lists of integers, or of floats."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for sequence in sequences:
            example = tf.train.Example()
            for name, values in sequence.items():
                feature = example.features.feature[name]
                kind = feature.float_list if isinstance(values[0], float) else feature.int64_list
                kind.value.extend(values)
            file.write(example.SerializeToString())
    return path


def table(path, sequences, **options):
    """Writes a row for each dictionary of lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(sequences), path, **options)
    return path
