# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Executors as processes: real models in batches, whose rows equal rows alone; deaths."""
from __future__ import annotations

import errno
import os
import queue
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intradp_ros.graph.batch_ladder import capture_ladder, save_ladder
from intradp_ros.runtime.requests.infer_requests import InferFate, InferRequest
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.systems.serving import local_site
from intradp_ros.systems.serving.executor import EmulatedExecutor
from intradp_ros.systems.serving.executor_messages import batch_message, batch_of
from intradp_ros.systems.serving.executor_process import computed
from intradp_ros.systems.serving.loaded_service import load_service
from intradp_ros.systems.serving.local_site import LocalSite, SiteSettings
from intradp_ros.systems.serving.service import Service, TensorSpec


class Policy(nn.Module):
    """Looks up a word, which fails where there is none."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(4, 8)
        self.head = nn.Linear(8 + 12, 6)

    def forward(self, word, pixels):
        x = torch.cat([self.words(word), pixels.flatten(1).float() / 255], 1)
        return {'actions': self.head(x), 'sum': x.sum(1)}


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    torch.manual_seed(0)
    module = Policy().eval()
    path = tmp_path_factory.mktemp('models') / 'policy.graph'
    save_ladder(capture_ladder(module, (torch.zeros(1, dtype=torch.int64),
                                        torch.zeros(1, 3, 2, 2, dtype=torch.uint8)), (1, 2, 4)),
                path)
    return module, path


def answers(gateway, rows, remaining=300.0):
    ends, done = {}, threading.Event()
    for k, (word, pixels) in enumerate(rows):
        def heard(end, k=k):
            ends[k] = end
            if len(ends) == len(rows):
                done.set()
        gateway.submit(InferRequest('policy', {'words': np.int64(word).reshape(()),
                                               'pixels': pixels}, remaining), heard)
    assert done.wait(600)
    return [ends[k] for k in range(len(rows))]


def test_batches_of_a_real_model_are_exact_and_a_death_is_outlived(model, tmp_path):
    module, path = model
    service = Service('policy', str(path), (
        TensorSpec('words', 'int64', ()), TensorSpec('pixels', 'uint8', (3, 2, 2))), deadline=300)
    opened = queue.Queue()
    site = LocalSite('a', [service], settings=SiteSettings(logs=tmp_path), compiled=False)
    inner = site.gateway.opened
    site.gateway.opened = lambda *found: (inner(*found), opened.put(found))
    try:
        found = opened.get(timeout=600)[2]
        assert found.sizes == (1, 2, 4) and not found.why
        assert [spec.name for spec in found.outputs] == ['actions', 'sum']
        chance = np.random.default_rng(0)
        rows = [(k % 4, chance.integers(0, 256, (3, 2, 2)).astype(np.uint8)) for k in range(30)]
        rows[7] = 99, rows[7][1]
        ends = answers(site.gateway, rows)
        for (word, pixels), end in zip(rows, ends):
            if word == 99:
                assert end.fate is InferFate.REFUSED and 'the model fails on it' in end.reason
                continue
            with torch.inference_mode():
                alone = module(torch.tensor([word]), torch.from_numpy(pixels)[None])
            np.testing.assert_allclose(end.tensors['actions'], alone['actions'][0], rtol=1e-5,
                                       atol=1e-6)
        assert max(end.batch for end in ends) == 4
        executors: Any = site.executors
        os.kill(executors[0].pid, signal.SIGKILL)
        opened.get(timeout=600)
        assert answers(site.gateway, rows[:1])[0].fate is InferFate.IN_TIME
        assert site.gateway.described()['services']['policy']['lost'] == 0
    finally:
        site.close()


def test_an_executor_that_cannot_be_started_is_started_later(monkeypatch):
    """As where there are too many processes for a moment; a site would be without one for ever."""
    service = Service('a', 'emulated', (TensorSpec('x', 'uint8', ()),), (
        TensorSpec('y', 'uint8', ()),), batches=(1,), seconds=(0.01,))
    site = LocalSite('here', [service], compiled=False)
    refused = []

    def start(*words):
        if not refused:
            refused.append(words)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return EmulatedExecutor(*words)
    monkeypatch.setattr(local_site, 'EmulatedExecutor', start)
    try:
        site.executors[0].kill()
        while not refused or not site.executors:
            time.sleep(0.01)
        assert not site.missing
    finally:
        site.close()


def test_a_device_that_computes_nothing_any_more_ends_its_process(model):
    _, path = model
    service, broken = load_service(str(path), (1,), open_device('cpu')), []

    def program(inputs, inner=service.programs[1]):
        if broken or inputs[0].item() == 3:
            broken.append(True)
            raise RuntimeError('the device is lost')
        return inner(inputs)
    service.programs = {1: program}
    for word, whole in ((99, True), (2, True), (3, False)):
        row = {spec.name: np.full(spec.shape, word, spec.dtype) for spec in service.inputs}
        batch = batch_of(bytearray(b''.join(batch_message(1, 0, service.inputs, [row]))))
        if whole:
            assert computed(batch, {0: service})
        else:
            with pytest.raises(RuntimeError, match='the device is lost'):
                computed(batch, {0: service})


def test_a_model_that_cannot_be_loaded_is_said(tmp_path):
    failed = queue.Queue()
    site = LocalSite('a', [Service('none', str(tmp_path / 'none.graph'))], compiled=False)
    inner = site.gateway.failed
    site.gateway.failed = lambda *found: (inner(*found), failed.put(found))
    try:
        assert 'cannot read the archive' in failed.get(timeout=120)[2]
        end = []
        site.gateway.submit(InferRequest('none', {}), end.append)
        assert end[0].fate is InferFate.REFUSED and 'cannot read the archive' in end[0].reason
    finally:
        site.close()


def test_a_factory_of_the_working_directory_is_found_as_by_the_command_line(
        tmp_path, monkeypatch):
    (tmp_path / 'their_nets.py').write_text('from torch import nn\n\n\ndef net():\n'
                                            '    return nn.Linear(4, 2).eval()\n')
    monkeypatch.chdir(tmp_path)
    site = LocalSite('dock', [Service('policy', 'their_nets:net 1x4')], compiled=False)
    try:
        end = time.monotonic() + 60
        while not site.gateway.specs('policy') and time.monotonic() < end:
            assert site.gateway.described()['problems'] == {}
            time.sleep(0.05)
        assert site.gateway.specs('policy')
    finally:
        site.close()
