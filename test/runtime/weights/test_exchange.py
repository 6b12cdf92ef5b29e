# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Devices without a model, or with part of its weights, fetch what their stages read; exactly."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import hashlib
import json
import math
from pathlib import Path
import threading
import time

from fleets import cell, images, planner, QUICK, SHORT, TIMEOUT
import pytest
from sharing import assert_equal
from small_models import seeded, UNet
import torch
from waiting import wait_for

from intradp_lab.fleet.local_fleet import LocalFleet
from intradp_ros.blobs.fetch_state import FetchTimes
from intradp_ros.blobs.store import BlobStore
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.manifest import read_manifest
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import manifest_text
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.pipeline.stage_programs import weights_read
from intradp_ros.runtime.weights import server as weight_server
from intradp_ros.runtime.weights.exchange import WeightPolicy
from intradp_ros.runtime.weights.frames import piece_chunks, Wish
from intradp_ros.split.split_graph import split_graph
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

SHAPE = (1, 3, 32, 48)
SERVES = WeightPolicy(serves=True)
TIMES = FetchTimes(patience=0.5, rest=0.2)


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 32, 48), (torch.zeros(SHAPE),))


class Logged(list[str]):
    """What devices said."""

    def __call__(self, text: str) -> None:
        self.append(text)


def fleet(model: SharedModel, stages: str, weights: Mapping[str, WeightPolicy],
          having: Sequence[str], log: Callable[[str], None] = lambda text: None,
          mbit: float = math.inf) -> LocalFleet:
    """Return a fleet in which only some devices have the model."""
    return LocalFleet(cell(mbit), 'a', dict.fromkeys(having, model), planner(model, stages),
                      patience=SHORT, times=QUICK, gathering=5.0, weights=weights, log=log)


def fetching(folder: Path, limit: int = 1 << 30, **options: object) -> WeightPolicy:
    return WeightPolicy(BlobStore(folder, limit), times=TIMES, **options)


def check(model: SharedModel, made: LocalFleet, frames: Sequence[torch.Tensor]) -> None:
    """See that a plan comes into use, and answers are those of the unsplit model."""
    assert made.wait_ready(TIMEOUT), made.client.unavailable_reason()
    graph = model.split.captured
    for frame, answer in zip(frames, made.run([(f,) for f in frames]), strict=True):
        assert answer.pipelined, answer.reason
        assert_equal(answer.outputs, model.results(dict(zip(
            graph.output_values, run_graph(graph, (frame,))))))


def stored(folder: Path) -> dict[str, int]:
    """Return the bytes in a store by digest."""
    return {path.stem: path.stat().st_size - 256 for path in folder.glob('*.safetensors')}


def needed(model: SharedModel, made: LocalFleet, device: str) -> dict[str, int]:
    """Return the blobs that a device needs for the plan in use."""
    plan = made.stages['a'].worker.programs(made.client.plan).plan
    manifest = read_manifest(manifest_text(model.split.captured).encode(), model.digest)
    return manifest.sizes(weights_read(model, plan, device))


def test_a_graph_without_weights_is_split_as_the_one_with_them(model: SharedModel) -> None:
    graph = model.split.captured
    manifest = read_manifest(manifest_text(graph).encode(), model.digest)
    bare = split_graph(manifest.graph)
    assert [op.name for op in bare.graph.operators] == \
        [op.name for op in model.split.graph.operators]
    assert bare.axis == model.split.axis
    assert all(tensor.is_meta for tensor in bare.graph.parameters.values() if tensor.nbytes)


def test_a_manifest_with_another_digest_or_without_all_weights_is_refused(
        model: SharedModel) -> None:
    text = manifest_text(model.split.captured).encode()
    with pytest.raises(GraphFormatError, match='another digest'):
        read_manifest(text + b' ', model.digest)
    for change in ({'weights': {}}, {'weights': {'a': 'b'}}, {'more': 1}, {'graph': []}):
        bad = json.dumps({**json.loads(text), **change}).encode()
        with pytest.raises(GraphFormatError):
            read_manifest(bad, hashlib.sha256(bad).hexdigest())
    deep = b'[' * 100_000 + b']' * 100_000
    with pytest.raises(GraphFormatError):
        read_manifest(deep, hashlib.sha256(deep).hexdigest())


def test_devices_without_a_model_take_part_exactly_with_the_weights_of_their_stages(
        model: SharedModel, tmp_path: Path) -> None:
    weights = {'a': SERVES, 'b': fetching(tmp_path / 'b'), 'c': fetching(tmp_path / 'c')}
    with fleet(model, 'a,b,c', weights, 'a') as made:
        check(model, made, images(4, SHAPE))
        for name in 'bc':
            wanted = needed(model, made, name)
            assert wanted and stored(tmp_path / name).items() >= wanted.items()
            assert set(stored(tmp_path / name)) == {model.digest, *wanted}
        assert made.devices['a'].weights.served >= sum(needed(model, made, 'b').values())


def test_only_what_is_lacking_is_fetched_when_the_plan_changes(
        model: SharedModel, tmp_path: Path) -> None:
    said = Logged()
    weights = {'a': SERVES, 'b': fetching(tmp_path / 'b')}
    with fleet(model, 'a,b', weights, 'acd', said) as made:
        check(model, made, images(2, SHAPE))
        before = needed(model, made, 'b')
        served = made.devices['a'].weights.served
        made.coordinator.propose(planner(model, 'b')(frozenset('abcd')))
        end = time.monotonic() + TIMEOUT
        while needed(model, made, 'b') == before or made.client.unavailable_reason():
            assert time.monotonic() < end, said
            made.run([(images(1, SHAPE)[0],)])
        after = needed(model, made, 'b')
        assert set(before) < set(after)
        lacked = {digest: nbytes for digest, nbytes in after.items() if digest not in before}
        assert made.devices['a'].weights.served - served == sum(lacked.values())
        check(model, made, images(3, SHAPE))


def test_a_device_that_has_a_like_model_fetches_only_what_differs(
        model: SharedModel, tmp_path: Path) -> None:
    module = seeded(UNet, 32, 48)
    name, parameter = max(module.named_parameters(), key=lambda item: item[1].numel())
    with torch.no_grad():
        parameter[0] += 1
    other = share_module(module, (torch.zeros(SHAPE),))
    assert other.digest != model.digest
    weights = {'a': SERVES, 'b': fetching(tmp_path / 'b')}
    topology = cell(math.inf)
    with LocalFleet(topology, 'a', {'a': model, 'b': other, 'c': model, 'd': model},
                    planner(model, 'b'), patience=SHORT, times=QUICK, weights=weights) as made:
        check(model, made, images(2, SHAPE))
        differing = {digest for digest in stored(tmp_path / 'b') if digest != model.digest}
    assert len(differing) == 1, name


def test_a_liar_is_found_out_and_another_serves(
        model: SharedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Logged()

    def altered(wish: Wish, data: torch.Tensor, chunk_bytes: int):
        if liar(wish):
            data = data.clone()
            data[-1] ^= 1
        return piece_chunks(wish, data, chunk_bytes)

    def liar(wish: Wish) -> bool:
        return threading.current_thread().name == 'weights-b'

    monkeypatch.setattr(weight_server, 'piece_chunks', altered)
    weights = {'a': SERVES, 'b': SERVES, 'c': fetching(tmp_path / 'c')}
    with fleet(model, 'a,b,c', weights, 'ab', said) as made:
        check(model, made, images(3, SHAPE))
    assert any("'b' sent something else" in text or 'b sent something else' in text
               for text in said), said


def test_a_peer_dies_and_another_goes_on(model: SharedModel, tmp_path: Path) -> None:
    """The link is slow enough that the fetch is in flight when its giver dies."""
    weights = {'a': SERVES, 'd': SERVES, 'b': fetching(tmp_path / 'b')}
    with fleet(model, 'a,b,d', weights, 'ad', mbit=4.0) as made:
        wait_for(lambda: made.devices['d'].weights.served)
        made.kill('d')
        check(model, made, images(2, SHAPE))


@pytest.mark.slow
def test_a_fetch_that_outlasts_the_coordinator_goes_on_for_the_next_plan(
        model: SharedModel, tmp_path: Path) -> None:
    weights = {'a': SERVES, 'b': fetching(tmp_path / 'b')}
    size = sum(tensor.nbytes for tensor in model.parameters.values())
    slow = size * 8 / 1e6 / 6.0  # Mbit/s at which all weights take 6 s
    times = replace(QUICK, switch=replace(QUICK.switch, preparing=4.0))
    with LocalFleet(cell(slow), 'a', dict.fromkeys('acd', model), planner(model, 'b'),
                    patience=SHORT, times=times, gathering=5.0, weights=weights) as made:
        assert made.wait_ready(2 * TIMEOUT), made.client.unavailable_reason()
        assert made.client.plan.epoch > 1
        served = made.devices['a'].weights.served
        assert served < 3 * size


@pytest.mark.parametrize(('policy', 'reason'), [
    ({}, 'this device fetches none'),
    ({'only': frozenset(('0' * 64,))}, 'not among those'),
    ({'limit': 1000}, 'may have 1000'),
])
def test_what_must_not_be_fetched_is_refused_with_the_reason(
        model: SharedModel, tmp_path: Path, policy: dict[str, object], reason: str) -> None:
    said = Logged()
    own = fetching(tmp_path / 'b', **policy) if policy else WeightPolicy()
    with fleet(model, 'a,b', {'a': SERVES, 'b': own}, 'acd', said):
        wait_for(lambda: any('refuses' in text and reason in text for text in said),
                 shown=lambda: said)
    assert set(stored(tmp_path / 'b')) <= {model.digest}


def test_who_hands_out_nothing_says_so_and_nonsense_is_counted(model: SharedModel) -> None:
    heard: list[Frame] = []
    with fleet(model, 'a,b', {}, 'abcd') as made:
        assert made.wait_ready(TIMEOUT)
        stranger = made.network.join('stranger')
        stranger.listen(lambda peer, frame: heard.append(frame))
        session = (1 << 62) + 5
        ask = Control(ControlKind.FETCH, session, 0, 1,
                      {'blob': model.digest, 'offset': 0, 'bytes': 0})
        stranger.send('b', ask)
        for body in ({'blob': '../etc'}, {**ask.body, 'bytes': 1 << 30},
                     {**ask.body, 'offset': -1}, {**ask.body, 'offset': 1.5}, {}):
            stranger.send('b', replace(ask, body=body))
        stranger.send('b', Chunk(session, 0, 1, 0, 0, 0, 0, 4, 0, 1, 1, 8, 0, (4,), bytes(4)))
        causes = made.devices['b'].rejections.by_cause
        wait_for(lambda: heard and sum(causes().values()) >= 6, shown=causes)
        assert [(f.kind, f.body) for f in heard if isinstance(f, Control)] == \
            [(ControlKind.HELD, {'bytes': None})]
