# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node that trains on its own: a network learns in processes of this machine, as an action."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.core.plain_file import check_file
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.diagnostics import Status
from intradp_ros.nodes.common.key_parameter import KEY_FILE, open_key
from intradp_ros.nodes.common.lifecycle import ManagedNode, run_node
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.training.training_goals import Processes, TrainingGoals
from intradp_ros.nodes.training.training_parameters import GOAL_PARAMETERS, TASKS
from intradp_ros.profiling.machine import prepare_process

WITHOUT = ('no key_file: anybody on this ROS domain may have this node train, pause and end; make '
           'a key by "intradp key FILE", or keep strangers off the domain (doc/security.md)')


class TrainerNode(ManagedNode):
    """
    Serves the action `~/train`; `~/pause` (std_srvs/SetBool) leaves the machine to others.

    Devices are processes of this machine, one for each of `fleet_file`, or `processes` that are
    alike; for other machines see the coordinator node.  What is trained are `tasks` of this
    machine: nothing that comes by the network is run.  With a key all that is asked has to be
    sealed (`~/control_training` in place of `~/pause`).  Publishes `diagnostics`.
    """

    PARAMETERS = (
        KEY_FILE,
        TASKS,
        *GOAL_PARAMETERS,
        Parameter('fleet_file', '', 'The devices, a process of this machine for each; empty for '
                  '`processes` that are alike.', check=check_file),
        Parameter('processes', 1, 'Without fleet_file: devices of this machine.', 1, 64),
        Parameter('threads', 1, 'CPU threads of each process.', 1, 256),
        DEVICE,
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('trainer_node', **kwargs)

    def setup(self, parameters: dict[str, Any]) -> None:
        """Check what is to be trained, and on what."""
        prepare_process(1)
        if parameters['fleet_file']:
            self._topology = read_fleet(Path(parameters['fleet_file'])).topology
        else:
            alike = [Device(f'process{k + 1}') for k in range(parameters['processes'])]
            self._topology = behind_access_point(alike, 1e9) if len(alike) > 1 else \
                Topology(tuple(alike), (), {})
        self._goals = TrainingGoals(
            self, Processes(self._topology), parameters['tasks'], parameters['folder'],
            parameters['save_every'], parameters['timeout_s'], parameters['images'],
            parameters['threads'], parameters[DEVICE.name],
            open_key(parameters[KEY_FILE.name], lambda text: self.warn(WITHOUT)))
        self._goals.check_images(self._topology)
        self.diagnose(self._status)

    def start(self) -> None:
        """Take goals."""
        self._goals.start()
        self.info(f'trains {", ".join(self._goals.tasks)} in processes of this machine: '
                  f'{", ".join(self._topology.names)}; checkpoints in {self._goals.folder}')

    def _status(self) -> Status:
        """Return what diagnostics say."""
        message, values, well = self._goals.status()
        return Status(message, values, well=well)


def main(args: list[str] | None = None) -> None:
    """Run the trainer node."""
    run_node(TrainerNode, args)


if __name__ == '__main__':
    main()
