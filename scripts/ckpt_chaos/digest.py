"""Prints a digest of the weights and slots of the newest checkpoint in a directory."""

import os
import sys
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

if __name__ == "__main__":
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(sys.argv[1]))
    digest = 0
    for name in sorted(reader.get_variable_to_shape_map()):
        if name.startswith(("model/", "optimizer/")):
            digest = zlib.crc32(name.encode() + reader.get_tensor(name).tobytes(), digest)
    print(f"{digest:08x}")
