"""Keys of tensors in TensorFlow's checkpoints, for readers with and without TensorFlow."""

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The tensor of a checkpoint that maps each other tensor to its object."""
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
"""The end of the key of a variable's tensor."""
SLOT = "/.OPTIMIZER_SLOT/"
"""The separator after the variable in the key of a legacy optimizer's slot."""
