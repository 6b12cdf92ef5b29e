# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Training over several devices, exactly as in one process, and on when devices leave (Asteroid).

A *round* is one optimiser step over `batch` samples.  They are dealt in *grains*, pieces of
which nothing is divided further, in M micro-batches.  Stages (ranges of the network's layers)
lie on groups of devices; each device of a group takes some grains of every micro-batch::

    task -> layer_capture -> layer_profiler -> hybrid_planner -> training_plan
         -> stage_actions, fan_out (who does what, as data) -> stage_runner -> worker
    trainer: commits rounds, rolls back to the newest tag that is whole, plans anew
"""
