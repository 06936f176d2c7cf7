"""Writes runner/help/fields.json, from which help is given without TensorFlow.

Run it when a field of a section has been added or changed; tests/help compares the two.
"""

from runner.help import facts, from_classes

if __name__ == "__main__":
    facts.TABLE.write_text(facts.dump(from_classes.shipped()), encoding="utf-8")
