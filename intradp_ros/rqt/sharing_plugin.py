# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The plugin that rqt loads: plugin.xml names it."""
from __future__ import annotations

from typing import Any

from rqt_gui_py.plugin import Plugin

from intradp_ros.rqt.robot_watch import robots_of, RobotWatch
from intradp_ros.rqt.sharing_widget import SharingWidget

_ROBOT, _TIMELINES = 'robot', 'timelines'


class SharingPlugin(Plugin):  # type: ignore[misc]
    """Shows how a robot shares inferences; rqt's own node subscribes."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.setObjectName('SharingPlugin')
        node = context.node
        self._widget = SharingWidget(lambda: robots_of(node), lambda name: RobotWatch(node, name))
        if context.serial_number() > 1:
            self._widget.setWindowTitle(
                f'{self._widget.windowTitle()} ({context.serial_number()})')
        context.add_widget(self._widget)

    def shutdown_plugin(self) -> None:
        """Stop watching."""
        self._widget.close_watch()

    def save_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Keep which robot is shown, and whether its timeline is."""
        instance_settings.set_value(_ROBOT, self._widget.robot)
        instance_settings.set_value(_TIMELINES, str(self._widget.timelines))

    def restore_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Show what was shown when rqt ended."""
        self._widget.robot = instance_settings.value(_ROBOT, '') or ''
        self._widget.timelines = instance_settings.value(_TIMELINES, '') == 'True'
