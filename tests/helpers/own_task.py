"""Tasks of a user's own, as the files that they are made of."""

import re
from pathlib import Path


def examples(page):
    """The files that a page of the manual shows, by name."""
    found = re.findall(r"<!-- example: (\S+) -->\n```\w*\n(.*?)```", page.read_text(), re.DOTALL)
    return dict(found)


PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own_task.md"

FILES = examples(PAGE)
"""The manual's task: `line.py` and `line.gin`."""


def digits_gin(module, config, steps):
    """A gin file that trains a task derived from image classification on digits."""
    return f"""
from __gin__ import dynamic_registration
import {module}
from tasks.images import image_data
include 'base.gin'

Experiment.task = @{module}.{config}()
{config}.train_data = @train/image_data.ImageData()
train/ImageData.is_training = True
train/ImageData.global_batch_size = 64
TrainerConfig.train_steps = {steps}
OptimizerConfig.type = 'adam'
LrConfig.type = 'constant'
RuntimeConfig.distribution_strategy = 'off'
"""
