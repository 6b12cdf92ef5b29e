# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Folders as demos write them, small, with figures of which no two are alike."""
from __future__ import annotations

from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

#: What a stranger's text may hold.
MARKUP = '<img src=x onerror="document.title=1"><b>&amp;'


def _played(first: float, frames: int) -> dict[str, Any]:
    return {'latency_ms': [first + k for k in range(frames)],
            'answer_ms': [first + k + 2.5 for k in range(frames)],
            'predicted_ms': [first - 7.5] * frames, 'bytes_up': [41000 + k for k in range(frames)],
            'bytes_down': [52000] * frames, 'energy_j': [1.25] * frames,
            'rate_mbps': [17.5 + k for k in range(frames)], 'by_rows': [True] * frames}


def sharing(folder: Path) -> Mapping[str, Any]:
    modes = {name: {'median_ms': 100.5 + k, 'p95_ms': 200.5 + k, 'predicted_ms': 90.5 + k,
                    'frames': 3, 'lost': 0, 'shared': k, 'by_rows': k, 'energy_j': 3.5 + k}
             for k, name in enumerate(('local', 'offload', 'cut', 'shared'))}
    report = {'models': {'hed': {'modes': modes, 'server_killed': {
        'frames': 2, 'lost': 0, 'recovered': 1, 'shared_after_restart': 1,
        'frames_after_restart': 1}}}, 'link': MARKUP, 'server': 'cpu'}
    (folder / 'hed').mkdir()
    (folder / 'hed' / 'player.json').write_text(json.dumps({
        'modes': {'shared': _played(311.0, 3)}, 'server_killed': _played(523.0, 2),
        'after_restart': _played(712.0, 1)}))
    (folder / 'hed' / 'timelines.json').write_text(json.dumps([{
        'spans': [['robot', 'compute', 'conv2d_1', 0.0, 0.02],
                  ['uplink', 'transfer', 'image[0:4]', 0.02, 0.03],
                  ['server', 'compute', MARKUP, 0.03, 0.09]], 'stages': [[3, 1.0], [9, 0.25]]}]))
    Image.fromarray(np.full((20, 30, 3), 128, np.uint8)).save(folder / 'hed' / 'example.png')
    return report


def fleet(folder: Path) -> Mapping[str, Any]:
    def run(first: float, device: str) -> dict[str, Any]:
        return {'failed': '', 'joules': first / 100, 'lost': 0, 'latency_ms': first,
                'predicted_ms': first + 1, 'fps': 8.5, 'predicted_fps': 8.75,
                'stream_ms': first + 2, 'qoe_missed_s': 0.125, 'bound_ms': first - 3,
                'by_asker': 0, 'busy_ms': {device: first / 10, 'box': 17.5, 'air': 33.5},
                'stages': [{'operators': 41, 'devices': [device]},
                                          {'operators': 17, 'devices': ['box']}]}
    return {'failed': '', 'frames': 96, 'lost': 0, 'max_rel_diff': 2e-6,
            'systems': {'fleet': run(411.0, 'laptop'), 'one device': run(621.0, 'box')},
            'burst': {'kept': run(731.0, 'laptop')}, 'bound_ms': 408.0,
            'target': {'latency_ms': 500.0, 'fps': 8.0}, 'air_mbps': 20.0,
            'devices': {'robot': 1.0, 'laptop': 2.0, 'box': 3.0},
            'schedule': [['laptop', 'compute', 'stage 1', 0.0, 0.041],
                         ['air', 'transfer', 'laptop > box', 0.041, 0.06]],
            'killed': {'device': 'laptop', 'frames': 77, 'lost': 0, 'by_asker': 5,
                       'recovered_ms': 913.0, 'failed': ''}}


def language(folder: Path) -> Mapping[str, Any]:
    mine = {'failed': '', 'ms_per_token': 171.5, 'predicted_ms': 178.5, 'limit_ms': 159.5,
            'binds': 'disk of drone', 'peak_mb': {'rover': 574.0, 'drone': 466.0},
            'limit_mb': {'rover': 720.0, 'drone': 670.0}, 'streamed': {'rover': 6, 'drone': 9},
            'blocks': {'rover': 14, 'drone': 24}, 'tokens': [5, 6], 'per_token': {
                name: {'computing_ms': 15.5 + k, 'disk_ms': 53.5 + k, 'peers_ms': 79.5 + k,
                       'sent_kb': 42.5 + k} for k, name in enumerate(('rover', 'drone'))}}
    (folder / 'trace.json').write_text(json.dumps({'began': 100.0, 'trace': {
        'rover': [['R3.0', 100.1, 100.2], ['S0.0>drone', 100.2, 100.22], ['D0', 100.5, 100.51],
                  ['R3.0', 100.6, 100.7], ['D0', 101.0, 101.01]],
        'drone': [['A0.0<rover', 100.0, 100.22], ['L5>1', 100.05, 100.2],
                  ['L5', 100.22, 100.4]]}}))
    return {'prompts': 1, 'question': 'Where?', 'answer': MARKUP, 'tokens': 2, 'identical': True,
            'max_logit_diff': 4e-5, 'systems': {'language': mine, 'plain pipeline': {
                'failed': '', 'ms_per_token': 561.5, 'predicted_ms': 568.5, 'limit_ms': 298.5}},
            'killed': {'failed': '', 'requests': 2, 'lost': 0, 'gap_ms': 2946.0,
                       'identical': True}, 'mbit': 100.0, 'disk': 2e8}


def training(folder: Path) -> Mapping[str, Any]:
    return {'failed': '', 'rounds': 4, 'samples': 384, 'max_rel_diff': 1.8e-15,
            'parts': [['dock', '0-3', 0, 4], ['rover', '4-9', 0, 2]],
            'loss': [2.4721, 2.1345, 1.8765, 1.4321],
            'loss_one_process': [2.4722, 2.1346, 1.8766, 1.4322], 'accuracy': 0.9966,
            'systems': {name: {'round_ms': 145.5 + 10 * k, 'predicted_ms': 138.5 + 10 * k}
                        for k, name in enumerate(('training', 'one device', 'EDDL'))},
            'killed': {'rounds_replayed': 2, 'samples_lost': 0, 'heavy_ms': 535.5,
                       'recovery_ms': {'detect': 198.5, 'move': 45.5, 'replay': 293.5}}}


def serving(folder: Path) -> Mapping[str, Any]:
    def row(first: int) -> dict[str, Any]:
        return {'requests': first, 'goodput': first / 25, 'in_time': first - 17, 'late': 7,
                'refused': 6, 'cancelled': 4, 'lost': 0, 'p95_ms': first / 4, 'transfers': 86,
                'wasted': 1}
    return {'requests': 7910, 'asked_per_s': 85.64, 'capacity_per_s': 106.99,
            'systems': {'drawn by slack': row(2141), 'nearest only': row(1836)},
            'simulated': {'goodput': 84.64, 'p95_ms': 579.0}, 'oracle_goodput': 85.72,
            'sites': {'dock': {'asked_per_s': 51.5, 'capacity_per_s': 35.5},
                      'hall': {'asked_per_s': 20.5, 'capacity_per_s': 36.5}},
            'by_second': {'asked': [80, 90], 'drawn by slack': [79, 88]},
            'killed': {**row(1487), 'site': 'hall', 'recovered_ms': 0.0, 'at_s': 1.0,
                       'by_second': {'asked': [60, 61], 'drawn by slack': [59, 44]}},
            'how': '3 namespaces'}


def perception(folder: Path) -> Mapping[str, Any]:
    return {'networks': {'detector': {
        'frames': 60, 'lost': 0, 'equal': 60, 'type': 'vision_msgs/msg/Detection2DArray',
        'median_ms': 599.5, 'extra_ms': 58.5, 'gain': 1.17, 'shared': 31, 'divided': 16,
        'by_rows': 13, 'recovered': 4}}, 'link_cut': {'frames': 40, 'lost': 0, 'equal': 40},
        'link': '200 Mbit/s', 'outage': 'the link was cut and restored', 'weights': ''}


DEMOS = {make.__name__: make for make in (
    sharing, fleet, language, training, serving, perception)}


def record(folder: Path, demo: str) -> Mapping[str, Any]:
    """Write the folder of a demo; return its report."""
    folder.mkdir(exist_ok=True)
    report = DEMOS[demo](folder)
    (folder / 'report.json').write_text(json.dumps(report))
    return report
