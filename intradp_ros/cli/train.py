# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp train``: a network that learns on several machines; a module for each verb."""
from __future__ import annotations

import argparse
from collections.abc import Mapping

from intradp_ros.cli.verbs import add_verbs, examples, run_verb

DESCRIPTION = """\
Train a network on several machines together: robots on their docks and a box, say, with the day's
pictures, which stay on site. The result is that of one process; a device may leave at any time.

TASK is file.py:function or package.module:function; the function returns the task:

  import torch
  from intradp_ros.systems.training.base.items import Items
  from intradp_ros.systems.training.base.task import TrainingTask

  def task():
      return TrainingTask(
          module=make_network(),           # tensors in and out (dicts, tuples...), a row a sample
          loss=lambda outputs, targets: torch.nn.functional.cross_entropy(
              outputs, targets, reduction='none'),                     # one number a sample
          optimiser=lambda named: torch.optim.SGD([p for _, p in named], lr=0.01, momentum=0.9),
          data=Items(dataset),                     # what has __len__ and __getitem__
          batch=96, grain=8, micro_batches=4, rounds=500,
          check=Items(others), validate_every=50,  # best weights are kept; patience=5 ends early
          freeze_norms=True)                       # as fine-tuning wants; there are more options

A round is one step of the optimiser on `batch` samples. Devices get whole grains of `grain`
samples, so that batch norm does not depend on who computes what. An example that runs:
intradp_ros.systems.training.shapes:shapes. Images of ROS 2 bags are a dataset, too: BagImages of
intradp_ros.nodes.training.bag_images"""

#: Verb: its module in this folder, and a summary.
VERBS: Mapping[str, tuple[str, str]] = {
    'plan': ('train_plan', 'who does what, predicted seconds a round, memory, the least'),
    'run': ('train_run', 'train; Ctrl-C saves a checkpoint, --resume goes on from it'),
    'send': ('train_send', 'have nodes train, and follow them; --resume joins what is in flight'),
    'show': ('train_show', 'what a checkpoint holds'),
    'export': ('train_export', "a checkpoint's weights as a state dict of plain PyTorch"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, examples('train', VERBS)
    add_verbs(parser, VERBS)


run = run_verb
