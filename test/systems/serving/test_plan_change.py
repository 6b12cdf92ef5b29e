# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Another plan while requests come: none lost, none late, and the old executors end."""
from __future__ import annotations

from dataclasses import replace
import os
import threading
from typing import Any

import numpy as np
import pytest
from waiting import wait_for

from intradp_ros.runtime.requests.infer_requests import InferFate, InferRequest
from intradp_ros.systems.serving import local_site
from intradp_ros.systems.serving.executor import EmulatedExecutor, ProcessExecutor
from intradp_ros.systems.serving.local_site import LocalSite, SiteSettings
from intradp_ros.systems.serving.placement_plan import PlacementPlan
from intradp_ros.systems.serving.service import parse_services

EMULATED = parse_services("""
services:
  policy:
    model: emulated
    deadline: 5 s
    inputs: {image: uint8 4}
    outputs: {actions: float32 3}
    seconds: {1: 3 ms, 4: 5 ms}
  camera:
    model: emulated
    deadline: 5 s
    inputs: {image: uint8 4}
    outputs: {actions: float32 3}
    seconds: {1: 3 ms}
""")
REAL = """
services:
  policy: {model: "their_nets:net 1x4", deadline: 20 s, batches: [1, 2]}
  camera: {model: "their_nets:net 1x4", deadline: 20 s, batches: [1]}
  broken: {model: "their_nets:missing 1x4", deadline: 20 s}
"""


class Asking:
    """Asks a site for a service again and again, on a thread, until it is left."""

    def __init__(self, site, pause=0.004, dtype=np.uint8):
        self.site, self.pause, self.dtype, self.ends = site, pause, dtype, []
        self.asked, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.over.wait(self.pause):
            self.asked += 1
            (name,) = [spec.name for spec in self.site.gateway.specs('policy').inputs]
            self.site.gateway.submit(InferRequest('policy', {name: np.ones(4, self.dtype)}),
                                     self.ends.append)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        wait_for(lambda: len(self.ends) == self.asked)
        assert {end.fate for end in self.ends} == {InferFate.IN_TIME}, {
            end.reason for end in self.ends}
        assert self.site.gateway.described()['services']['policy']['lost'] == 0


def test_a_site_goes_over_to_what_its_file_says(tmp_path, monkeypatch):
    monkeypatch.setattr(local_site, 'LOOK', 0.02)
    path = tmp_path / 'placement.json'

    def written(*executors):
        PlacementPlan({'a': executors}).write(path)
    written(('policy', 'camera'))
    site: Any = LocalSite('a', EMULATED, lanes=[(0, 1)], compiled=False)
    try:
        site.watch(path)
        wait_for(lambda: site.gateway.specs('policy'))
        first = site.executors[0]
        with Asking(site):
            written(('policy',), ('policy',), ('camera',))
            wait_for(lambda: len(site.executors) == 3 and first not in site.executors.values())
            held = set(site.executors.values())
            written(('policy',), ('camera',))
            wait_for(lambda: len(site.executors) == 2)
            assert set(site.executors.values()) < held, 'who may stay stays'
            path.write_text('{')
            wait_for(lambda: site.gateway.plan['state'] == 'not used')
            assert str(path) in site.gateway.plan['why']
            path.unlink()
            wait_for(lambda: 'No such file' in site.gateway.plan['why'])
            PlacementPlan({'b': (('policy',),)}).write(path)
            wait_for(lambda: "no site 'a'" in site.gateway.plan['why'])
            assert set(site.executors.values()) < held
            for _ in range(20):  # numbers are used again: nothing grows
                written(('policy', 'camera'))
                wait_for(lambda: len(site.executors) == 1 and not first.close())
                written(('policy',), ('camera',))
                wait_for(lambda: len(site.executors) == 2)
            assert len(site.gateway._arrays.alive) <= 4
            assert site.gateway.plan == {'state': 'used', 'why': ''}
    finally:
        site.close()


class Versioned(EmulatedExecutor):
    """One whose model is that of the file at its start."""

    version = 'old'

    def __init__(self, number, services, listener):
        self._digest, self._site = self.version, listener
        super().__init__(number, services, self)

    def opened(self, executor, service, found):
        self._site.opened(executor, service, replace(found, digest=self._digest))

    def ended(self, executor, result):
        self._site.ended(executor, result)

    def lost(self, executor, why, which):
        self._site.lost(executor, why, which)


def test_an_executor_with_another_model_than_others_is_not_kept_and_waits_for_its_turn(
        monkeypatch):
    monkeypatch.setattr(local_site, 'EmulatedExecutor', Versioned)
    monkeypatch.setattr(local_site, 'FIRST_WAIT', 0.01)
    site: Any = LocalSite('a', EMULATED, lanes=[(0,), (0,)], compiled=False)

    def used():
        state = site.gateway.described()
        return not state['problems'] and len(site.executors) == 2 and {
            place['executor'] for place in state['services']['policy']['batches']} == set(
                site.executors)
    try:
        wait_for(used)
        monkeypatch.setattr(Versioned, 'version', 'new')
        site.executors[1].kill()
        wait_for(lambda: 'policy on executor 1' in site.gateway.described()['problems'])
        refused = site.executors[1]
        site.apply([(0,), (0,)])
        wait_for(lambda: 'not the model' in site.gateway.plan['why'])
        monkeypatch.setattr(Versioned, 'version', 'old')
        site.apply([(0,), (0,)])
        wait_for(lambda: used() and refused not in site.executors.values())
        monkeypatch.setattr(Versioned, 'version', 'new')
        with Asking(site):
            first, second = site.executors
            site.executors[first].kill()
            wait_for(lambda: site.gateway.described()['problems'])
            site.executors[second].kill()  # nobody serves the former model any more
            wait_for(used)
        assert site.gateway.specs('policy').digest == 'new'
    finally:
        site.close()


@pytest.mark.slow
def test_processes_come_and_leave_and_a_plan_that_fails_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / 'their_nets.py').write_text(
        'import torch\nfrom torch import nn\n\n\ndef net():\n    torch.manual_seed(0)\n'
        '    return nn.Linear(4, 2).eval()\n')
    monkeypatch.chdir(tmp_path)
    site: Any = LocalSite('a', parse_services(REAL), settings=SiteSettings(logs=tmp_path),
                          lanes=[(0,)], compiled=False)

    def pids():
        return {executor.pid for executor in site.executors.values()
                if isinstance(executor, ProcessExecutor)}
    try:
        wait_for(lambda: site.gateway.specs('policy'))
        old = pids()
        with Asking(site, 0.02, np.float32):
            for plan, why in (([(0,), (2,)], 'broken cannot be loaded'),
                              ([(1, 2)], 'broken cannot be loaded')):
                site.apply(plan)
                assert site.gateway.plan['state'] == 'loading'
                wait_for(lambda: site.gateway.plan['state'] != 'loading')
                assert why in site.gateway.plan['why'] and "'missing'" in site.gateway.plan['why']
                wait_for(lambda: pids() == old)
            site.apply([(0, 1), (0,)])
            coming = pids() - old
            assert len(coming) == 1
            os.kill(next(iter(coming)), 9)
            wait_for(lambda: site.gateway.plan['state'] != 'loading')
            assert 'SIGKILL' in site.gateway.plan['why'] or 'signal' in site.gateway.plan['why']
            wait_for(lambda: pids() == old)
            site.apply([(2,)])
            site.apply([(0, 1), (1, 0)])  # another plan, before that one is loaded
            wait_for(lambda: site.gateway.plan['state'] == 'used' and len(pids()) == 2)
            assert not pids() & old
            wait_for(lambda: not any(os.path.exists(f'/proc/{pid}') for pid in old | coming))
    finally:
        site.close()
