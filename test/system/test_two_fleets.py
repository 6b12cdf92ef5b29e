# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One machine in two fleets: it computes stages for a robot, and blocks of a language model."""
from __future__ import annotations

from pathlib import Path
import threading

from node_processes import nodes, own_domain
import rclpy
from rclpy.executors import SingleThreadedExecutor
from tiny_language_model import reference, save_tiny_model

from intradp_lab.fleet.node_fleet import NodeFleet, running
from intradp_ros.blobs.store import BlobStore
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.planner import PlannerOf
from intradp_ros.srv import GenerateResponse
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.segment_plan import FORMAT, SegmentPlan

MODEL = 'small_models:dense 1x3x64x96 uint8'
PROMPT, TOKENS, PATIENCE = 'a model of weights', 12, 60.0


def test_a_machine_takes_part_in_two_fleets_at_once(tmp_path: Path) -> None:
    """Both plans need machine b: one device node, two fleets, two coordinators."""
    model = save_tiny_model(tmp_path / 'model')
    _, text = reference(model, PROMPT, TOKENS)
    manifest = import_model(model, BlobStore(tmp_path / 'head', 1 << 30).put)
    plan = SegmentPlan(manifest.digest, 'head', len(manifest.blocks), {
        'head': ((0,),), 'b': tuple((k,) for k in range(1, len(manifest.blocks)))}, 64)
    fleet = NodeFleet(MODEL, 'a', {'a': 1.0, 'b': 1.0}, tmp_path, 'a,b', parameters={'b': {
        'roles': ['stages', 'language@talk:100'], 'store': str(tmp_path / 'b'),
        'fetch': 'always'}})
    with own_domain(tmp_path), running(fleet) as stages, nodes(tmp_path / 'nodes') as start:
        start.start('language_node', {
            'fleet': 'talk', 'device_name': 'head', 'store': str(tmp_path / 'head'),
            'fetch': 'always', 'serve': 'always', 'answers': True})
        asker = stages.asker(interval=0.05, frames=10_000)
        stages.wait_for_plan(asker, 'a, b')
        with rclpy.Context() as context:
            channel = DdsPeers(context, 'talk', 'coordinator')
            coordinator = FleetCoordinator(channel, PlannerOf(
                FORMAT, lambda alive: plan if alive >= {'head', 'b'} else None), print)
            coordinator.expect(('head', 'b'))
            node = rclpy.create_node('client', context=context)
            executor = SingleThreadedExecutor(context=context)
            executor.add_node(node)
            thread = threading.Thread(target=executor.spin, daemon=True)
            thread.start()
            client = node.create_client(GenerateResponse, 'language_node/generate_response')
            assert client.wait_for_service(PATIENCE)
            for _ in range(2):
                answered = threading.Event()
                future = client.call_async(GenerateResponse.Request(
                    prompt=PROMPT, max_tokens=TOKENS, deadline=PATIENCE))
                future.add_done_callback(lambda _, answered=answered: answered.set())
                assert answered.wait(PATIENCE)
                said = future.result()
                assert (said.fate, said.reason, said.response.text) == ('done', '', text)
            seen = stages.stop_asking(asker)
            executor.shutdown()
            thread.join(PATIENCE)
            coordinator.close()
            channel.close()
    assert all(s.answered and s.difference < 1e-4 for s in seen)
    assert sum(s.pipelined for s in seen) > 5
