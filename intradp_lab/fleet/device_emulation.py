# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A fleet's device that is not there: its operators take a profile's seconds by its speed."""
from __future__ import annotations

from pathlib import Path

from intradp_lab.emulation.emulated_device import DeviceClock, emulated
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.cost import CostModel


def emulated_at(model: SharedModel, profile: Profile, speed: float) -> SharedModel:
    """Return a model whose operators take the profile's seconds divided by the speed."""
    tables = CostModel.from_profiles(model.split, {'device': profile}).seconds['device']
    return emulated(model, [table / speed for table in tables], DeviceClock())


def read_profile(path: str) -> Profile:
    """Read a profile from a file."""
    return Profile.from_json(Path(path).read_text())
