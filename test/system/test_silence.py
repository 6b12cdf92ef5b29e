# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot that misses something says so: what, looked for where, and what to try."""
from __future__ import annotations

from pathlib import Path

from node_processes import DENSE, nodes, Observer, own_domain, picture, TIMEOUT

from intradp_ros.msg import OperatorProfile


def test_what_is_missing_is_reported_by_name(tmp_path: Path) -> None:
    """First everything, then less and less; diagnostics name it as long as it lasts."""
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        robot = running.start('inference_node', {'model': DENSE, 'server': 'lab'})
        robot.wait_for_line(
            r'WARN.*no message on image for 5 s: looked on /image \(domain \d+, namespace /, '
            r'transport default.*sensor_msgs/msg/Image, best_effort\), where nobody publishes; '
            r'check its name', TIMEOUT)
        robot.wait_for_line(
            r"WARN.*no answer of the server 'lab' for 5 s: looked on lab/control_up .*"
            r'nobody listens; start offload_node', TIMEOUT)
        observer = Observer()
        try:
            observer.wait(lambda: "no answer of the server 'lab'" in observer.diagnostics.get(
                '/inference_node', ('',))[0], 'diagnostics')
            server = running.start('offload_node', {
                'server': 'lab', 'models': ['nowhere:missing 1x3x8x8', DENSE]})
            assert 'skipped model nowhere:missing 1x3x8x8' in server.output()
            robot.wait_for_line('INFO.*server: there now', TIMEOUT)
            robot.wait_for_line(
                f'WARN.*no schedule table for model {DENSE} for 5 s: looked on /schedule_book '
                '.*where nobody publishes; start planner_node', TIMEOUT)
            assert observer.infer(picture(0))[1].strategy == 'local'
            profiles: list[OperatorProfile] = []
            observer.node.create_subscription(  # not latched: hears only what is said from now on
                OperatorProfile, 'operator_profiles', profiles.append, 10)
            observer.wait(lambda: [p.role for p in profiles].count('robot') == 2,
                          'the robot to ask for a book again and again')
            observer.wait(lambda: 'skipped model nowhere' in observer.diagnostics[
                '/offload_node'][0], "the server's diagnostics")
        finally:
            observer.close()
