# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The plugin's widget as a window of its own, where there is no rqt; or a picture of it."""
from __future__ import annotations

import argparse
import signal
import sys
import threading

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.utilities import remove_ros_args

from intradp_ros.nodes.common.ending_signals import spin
from intradp_ros.rqt.qt import QtCore, QtWidgets
from intradp_ros.rqt.robot_watch import robots_of, RobotWatch
from intradp_ros.rqt.sharing_widget import SharingWidget

WIDTH, HEIGHT = 900, 880


def main(args: list[str] | None = None) -> int:
    """Show the window until it is closed; return the exit status."""
    given = sys.argv if args is None else args
    options = _options(remove_ros_args(given)[1:])
    rclpy.init(args=given)
    node = rclpy.create_node('sharing_window')
    spinning = threading.Thread(target=_spin, args=(node,), daemon=True)
    spinning.start()
    application = QtWidgets.QApplication(given[:1])
    signal.signal(signal.SIGINT, lambda *_: application.quit())
    widget = SharingWidget(lambda: robots_of(node), lambda name: RobotWatch(node, name))
    widget.robot, widget.timelines = options.robot, options.timeline
    widget.resize(WIDTH, HEIGHT)
    widget.show()
    if options.picture:
        QtCore.QTimer.singleShot(int(options.after * 1e3), lambda: (
            widget.grab().save(options.picture), application.quit()))
    application.exec()
    widget.close_watch()
    rclpy.try_shutdown()
    spinning.join()
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='sharing_window', description=__doc__)
    parser.add_argument('--robot', default='', metavar='NAME',
                        help='such as /inference_node (default: the first that is found)')
    parser.add_argument('--timeline', action='store_true', help='show timelines')
    parser.add_argument('--picture', metavar='FILE', help='write a picture of the window, and end')
    parser.add_argument('--after', type=float, default=10.0, metavar='SECONDS',
                        help='when to write it (default %(default)s)')
    return parser.parse_args(arguments)


def _spin(node: Node) -> None:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spin(executor, rclpy.ok, node.get_logger().error)


if __name__ == '__main__':
    sys.exit(main())
