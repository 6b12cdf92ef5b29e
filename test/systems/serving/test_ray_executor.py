# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Executors in a Ray cluster on this machine: exact answers, and a death that Ray repairs."""
from __future__ import annotations

import os
import queue
import signal
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn
from waiting import wait_for

from intradp_ros.graph.batch_ladder import capture_ladder, save_ladder
from intradp_ros.runtime.requests.infer_requests import InferFate, InferRequest
from intradp_ros.systems.serving.local_site import LocalSite, SiteSettings
from intradp_ros.systems.serving.service import Service, TensorSpec

ray = pytest.importorskip('ray')
pytestmark = pytest.mark.slow


class Policy(nn.Module):
    """Looks up a word, which fails where there is none."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(4, 8), nn.Linear(8, 6)

    def forward(self, word):
        return {'actions': self.head(self.words(word))}


@pytest.fixture(scope='module')
def cluster():
    yield
    ray.shutdown()


@pytest.fixture
def site(cluster, tmp_path):
    torch.manual_seed(0)
    module = Policy().eval()
    save_ladder(capture_ladder(module, (torch.zeros(1, dtype=torch.int64),), (1, 2, 4)),
                tmp_path / 'policy.graph')
    service = Service('policy', str(tmp_path / 'policy.graph'), (
        TensorSpec('word', 'int64', ()),), deadline=60.0)
    site = LocalSite('a', [service, Service('none', str(tmp_path / 'none.graph'))],
                     settings=SiteSettings(ray='local'), compiled=False)
    opened = queue.Queue()
    inner = site.gateway.opened
    site.gateway.opened = lambda *found: (inner(*found), opened.put(found))
    yield site, module, opened
    site.close()


def answers(gateway, words, meanwhile=lambda: None):
    ends, left = {}, threading.Semaphore(0)
    for k, word in enumerate(words):
        def heard(end, k=k):
            ends[k] = end
            left.release()
        gateway.submit(InferRequest('policy', {'word': np.array(word)}, 60.0), heard)
    meanwhile()
    for _ in words:
        assert left.acquire(timeout=120)
    return [ends[k] for k in range(len(words))]


def test_batches_are_exact_and_ray_starts_dead_actors_anew(site):
    local, module, opened = site
    assert opened.get(timeout=120)[2].sizes == (1, 2, 4)
    words = [k % 4 for k in range(30)]
    words[7] = 99
    for word, end in zip(words, answers(local.gateway, words)):
        if word == 99:
            assert end.fate is InferFate.REFUSED and 'the model fails on it' in end.reason
            continue
        with torch.inference_mode():
            alone = module(torch.tensor([word]))['actions'][0]
        np.testing.assert_allclose(end.tensors['actions'], alone, rtol=1e-5, atol=1e-6)
    end = time.monotonic() + 60
    wait_for(lambda: 'none on executor 0' in local.gateway.described()['problems'])
    assert 'cannot read the archive' in str(local.gateway.described()['problems'])
    pid = ray.get(local.executors[0]._actor.__ray_call__.remote(lambda _: os.getpid()))

    def kill():
        os.kill(pid, signal.SIGKILL)
    ends = answers(local.gateway, [k % 4 for k in range(200)], kill)
    # there is no other executor: until Ray has started it anew they are refused, none is lost
    assert {end.fate for end in ends} <= {InferFate.IN_TIME, InferFate.REFUSED}
    assert opened.get(timeout=120)
    assert local.gateway.described()['services']['policy']['lost'] == 0
    executor = local.executors[0]
    executor.kill()
    assert opened.get(timeout=120)
    assert answers(local.gateway, [2])[0].fate is InferFate.IN_TIME
