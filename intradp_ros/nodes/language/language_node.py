# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node of a machine that takes part in language models: a device node with that role."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from intradp_ros.nodes.common.goal_server import MAX_CALLS
from intradp_ros.nodes.common.lifecycle import run_node
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.nodes.fleet.systems import ROLES


class LanguageNode(DeviceNode):
    """
    A device of a fleet whose first role is `language`.

    With `answers` it serves `~/generate_response` and
    `~/generate_chat_completions`, each an action and a service, and HTTP if
    `http_port` is set.
    """

    PARAMETERS = tuple(replace(parameter, default=['language']) if parameter is ROLES
                       else parameter for parameter in DeviceNode.PARAMETERS)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(name='language_node', **kwargs)


def main(args: list[str] | None = None) -> None:
    """Run the language node; calls of services wait on threads of their own."""
    run_node(LanguageNode, args, threads=2 * MAX_CALLS + 2)


if __name__ == '__main__':
    main()
