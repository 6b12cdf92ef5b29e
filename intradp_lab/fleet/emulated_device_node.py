# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The device node with emulated operators: real sessions and real bytes, times of a profile."""
from __future__ import annotations

from intradp_lab.fleet.device_emulation import emulated_at, read_profile
from intradp_ros.nodes.common.lifecycle import run_node
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.runtime.models.model import SharedModel


class EmulatedDeviceNode(DeviceNode):
    """A device node whose operators take the seconds of a profile, divided by its speed."""

    PARAMETERS = (
        *DeviceNode.PARAMETERS,
        Parameter('profile', '', 'File that `intradp profile -o` wrote, of the only model.'),
    )

    def load(self, text: str) -> SharedModel:
        """Load a model and emulate its operators."""
        return emulated_at(super().load(text), read_profile(self._settings['profile']),
                           self._settings['speed'])


def main(args: list[str] | None = None) -> None:
    """Run the node."""
    run_node(EmulatedDeviceNode, args)


if __name__ == '__main__':
    main()
