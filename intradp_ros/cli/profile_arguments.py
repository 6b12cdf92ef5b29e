# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Profiles on the command line: measured here, read from a file, or scaled."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import Output
from intradp_ros.cli.subject import Subject
from intradp_ros.core.json_text import read_text
from intradp_ros.power.power_sensors import find_sensor
from intradp_ros.power.power_states import XAVIER_NX
from intradp_ros.profiling.cache import cache_path, cached_profile, example_key
from intradp_ros.profiling.drift import slowed
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import Profile


def own_profile(subject: Subject, out: Output, fresh: bool = False) -> Profile:
    """Return this machine's profile of a model; measure it if there is none, or for `fresh`."""
    split, digest = subject.shared.split, subject.shared.digest
    example = example_key(subject.inputs)
    if fresh:
        path = cache_path(digest, split.axis, example=example, device=split.device)
        path.unlink(missing_ok=True)

    def measure() -> Profile:
        with out.progress('profiling operators') as advance:
            return measure_profile(split, subject.inputs, progress=advance,
                                   sensor=find_sensor())

    return cached_profile(digest, split.axis, measure, example=example, device=split.device)


def parsed_profile(path: Path) -> Profile:
    """Read a profile of whatever model; ValueError if the file is none."""
    try:
        return Profile.from_json(read_text(path))
    except ValueError as error:
        raise ValueError(f'{path} is not a file that `intradp profile -o` wrote: {error}'
                         ) from error


def read_profile(path: Path, subject: Subject) -> Profile:
    """
    Read a profile that ``intradp profile -o`` wrote.

    :raises CommandError: if it is none, or was measured on another model or split axis.
    """
    try:
        profile = parsed_profile(path)
    except ValueError as error:
        raise CommandError(str(error)) from error
    wanted = (subject.shared.digest, subject.shared.split.axis)
    if (profile.digest, profile.axis) != wanted:
        raise CommandError(
            f'{path} is of model {profile.digest[:12]} split along axis {profile.axis}, this is '
            f'model {wanted[0][:12]} split along axis {wanted[1]}: profile the same weights, '
            'input shape and --axis (and --seed, where weights are random)')
    return profile


def imagined(profile: Profile, factor: float) -> Profile:
    """Return the profile of an imagined device that takes `factor` times as long."""
    return replace(slowed(profile, factor), power=XAVIER_NX,
                   device=f'scaled, not measured: {factor:g} x the times of {profile.device}')
