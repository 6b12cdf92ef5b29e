# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The player of the demo among real nodes: all frames in all modes, and a killed server."""
from __future__ import annotations

import json
from pathlib import Path

from node_processes import DENSE, own_domain, PATIENT, QUICK_PLANNER, TIMEOUT

from intradp_lab.cli.demo import PLANNER, PLAYER, ROBOT, SERVER
from intradp_lab.emulation.emulated_pair import EmulatedPair, Side
from intradp_lab.emulation.processes import starter

FRAMES = 6


def test_every_frame_is_played_in_every_mode(tmp_path: Path) -> None:
    with own_domain(tmp_path), starter(tmp_path / 'logs') as start:
        pair = EmulatedPair(start, Side(), Side(), 'loopback')
        player = pair.node(Side(), PLAYER, {
            'model': DENSE, 'frames': FRAMES, 'kill_after': 2, 'output': str(tmp_path)})
        server = pair.node(Side(), SERVER, {'models': [DENSE]})
        pair.node(Side(), PLANNER, QUICK_PLANNER)
        pair.node(Side(), ROBOT, {'model': DENSE, **PATIENT})
        player.wait_for_line('^phase kill$', 2 * TIMEOUT)
        server.kill()
        player.wait_for_line('^phase restart$', TIMEOUT)
        pair.node(Side(), SERVER, {'models': [DENSE]})
        player.wait_for_line('^phase done$', TIMEOUT)
    seen = json.loads((tmp_path / 'player.json').read_text())
    assert list(seen['modes']) == ['local', 'offload', 'cut', 'shared'] and seen['books'] == 1
    for phase in (*seen['modes'].values(), seen['server_killed']):
        assert (phase['frames'], phase['lost']) == (FRAMES, 0)
        assert phase['frame'] == list(range(FRAMES)) == list(range(len(phase['latency_ms'])))
        assert phase['max_rel_diff'] <= 1e-4
    assert seen['modes']['offload']['shared'] == FRAMES and not seen['modes']['local']['shared']
    assert seen['after_restart']['lost'] == 0
