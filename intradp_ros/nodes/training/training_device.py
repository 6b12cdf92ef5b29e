# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Training in a device node: a worker process for the task that the fleet trains."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TYPE_CHECKING

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.key_parameter import KEY_FILE, open_key
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.nodes.training.training_parameters import TASKS, TRAINING_ADDRESS
from intradp_ros.runtime.member.role import Host
from intradp_ros.systems.training.base.task import split_name
from intradp_ros.systems.training.run.round_groups import check_distributed, GroupError
from intradp_ros.systems.training.run.site_address import site_address
from intradp_ros.systems.training.service.role import process_starter, TrainingRole

if TYPE_CHECKING:
    from intradp_ros.runtime.models.model import SharedModel


class TrainingDevice:
    """
    Takes part in the training of its tasks.

    :raises ValueError: if it has none, its address is none, or its torch cannot talk to other
        processes.
    """

    def __init__(self, node: DeviceNode, given: Mapping[str, Any]) -> None:
        self.models: Mapping[str, SharedModel] = {}
        self._tasks = [text for text in given[TASKS.name] if text]
        if not self._tasks:
            raise ValueError('parameter tasks is empty: name what this machine may train, such as '
                             '"/home/robot/mytask.py:task"')
        for text in self._tasks:
            split_name(text)
        self._address = given[TRAINING_ADDRESS.name]
        self._start = process_starter(given['threads'], given[DEVICE.name],
                                      open_key(given[KEY_FILE.name], lambda text: None))
        try:
            site_address(self._address)
            check_distributed()
        except (GroupError, ValueError) as error:
            raise ValueError(f'parameter {TRAINING_ADDRESS.name}: {error}' if isinstance(
                error, ValueError) else str(error)) from error

    def role(self, host: Host) -> TrainingRole:
        """Return the role."""
        self._role = TrainingRole(host, self._tasks, self._start, self._address)
        return self._role

    def weight_bytes(self, plan: PlanId) -> int:
        """Return 0: the worker's memory is not part of this process."""
        return 0

    def status(self) -> Mapping[str, Any]:
        """Return what is trained here."""
        return {**self._role.status(),
                **({'trouble': self._role.trouble} if self._role.trouble else {})}

    def rejected(self) -> Mapping[str, int]:
        """Return nothing: no application sends anything here."""
        return {}
