# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Two language nodes as processes, one the head: actions, their mirrors and HTTP agree."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
import socket
import threading
from typing import Any

from node_processes import end_of, nodes, own_domain
import openai
import pytest
import rclpy
from rclpy.action.client import ActionClient
from rclpy.executors import SingleThreadedExecutor
from stranger_process import REPEATS, STALLS, stranger_who
from tiny_language_model import chat_prompt, reference, save_tiny_model

from intradp_ros.action import GenerateChatCompletions, GenerateResponse
from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.msg import ChatMessage, SamplingConfig
from intradp_ros.nodes.common.ending_signals import spin
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.planner import PlannerOf
from intradp_ros.srv import GenerateResponse as GenerateResponseCall
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.segment_plan import FORMAT, SegmentPlan

PATIENCE = 60.0
ended = partial(end_of, seconds=PATIENCE)
NAMES = ('board1', 'board2')
PROMPT, TOKENS = 'a model of weights', 12


@dataclass
class Site:
    """Two nodes and the model that they share."""

    model: Path
    manifest: Manifest
    port: int
    nodes: list[Any]
    node: rclpy.node.Node


def halves(manifest: Manifest) -> SegmentPlan:
    """Return a plan of two stages, all blocks resident."""
    blocks = len(manifest.blocks)
    cut = blocks // 2
    return SegmentPlan(manifest.digest, NAMES[0], blocks, {
        NAMES[0]: tuple((block,) for block in range(cut)),
        NAMES[1]: tuple((block,) for block in range(cut, blocks))}, 64)


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp('language')
    model = save_tiny_model(folder / 'model')
    stores = {name: BlobStore(folder / name, 1 << 30) for name in NAMES}
    for store in stores.values():
        manifest = import_model(model, store.put)
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    with own_domain(folder), nodes(folder / 'nodes') as start:
        answering = {'answers': True, 'http_port': port, 'max_tokens': TOKENS}
        started = [start.start('language_node', {
            'fleet': 'language', 'device_name': name, 'store': str(folder / name),
            'fetch': 'always', **(answering if name == NAMES[0] else {})}, label=name)
            for name in NAMES]
        context = rclpy.Context()
        rclpy.init(context=context)
        channel = DdsPeers(context, 'language', 'coordinator')
        coordinator = FleetCoordinator(channel, PlannerOf(
            FORMAT, lambda alive: halves(manifest) if alive >= {*NAMES} else None), print)
        coordinator.expect(NAMES)
        node = rclpy.create_node('asker', context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        over = threading.Event()
        # an action client that is being made is spun, too, and not ready for it
        thread = threading.Thread(target=spin, args=(executor, lambda: not over.is_set(), print),
                                  daemon=True)
        thread.start()
        yield Site(model, manifest, port, started, node)
        over.set()
        thread.join(PATIENCE)
        executor.shutdown()
        node.destroy_node()
        coordinator.close()
        channel.close()
        context.try_shutdown()


def test_the_action_answers_as_one_process_with_feedback_by_token(site: Site) -> None:
    """A goal that comes before there is a plan is held until there is one."""
    tokens, text = reference(site.model, PROMPT, TOKENS)
    client = ActionClient(site.node, GenerateResponse, 'language_node/generate_response')
    assert client.wait_for_server(PATIENCE)
    pieces: list[Any] = []
    handle = ended(client.send_goal_async(
        GenerateResponse.Goal(prompt=PROMPT, deadline=PATIENCE),
        lambda m: pieces.append(m.feedback.partial_response)))
    result = ended(handle.get_result_async()).result
    assert (result.fate, result.reason) == ('done', '')
    assert list(result.response.tokens) == tokens and result.response.text == text
    assert pieces and result.usage.completion_tokens == len(tokens)
    assert 0 < result.usage.first_token_seconds <= result.usage.seconds
    client.destroy()


def test_the_mirror_and_http_answer_the_same(site: Site) -> None:
    _, text = reference(site.model, PROMPT, TOKENS)
    calls = site.node.create_client(GenerateResponseCall, 'language_node/generate_response')
    assert calls.wait_for_service(PATIENCE)
    called = ended(calls.call_async(GenerateResponseCall.Request(prompt=PROMPT)))
    assert (called.fate, called.response.text) == ('done', text)
    refused = ended(calls.call_async(GenerateResponseCall.Request(
        prompt=PROMPT, sampling_config=SamplingConfig(temp=-1.0))))
    assert refused.fate == 'refused' and 'temperature' in refused.reason
    client = openai.OpenAI(base_url=f'http://127.0.0.1:{site.port}/v1', api_key='none',
                           timeout=PATIENCE, max_retries=0)
    [served] = client.models.list()
    assert served.id == site.manifest.name
    answer = client.completions.create(model=served.id, prompt=PROMPT, max_tokens=TOKENS,
                                       temperature=0)
    assert answer.choices[0].text == text
    with pytest.raises(openai.BadRequestError, match='tokens'):
        client.completions.create(model=served.id, prompt=PROMPT * 100, max_tokens=TOKENS)


@pytest.mark.slow
def test_strangers_on_all_topics_change_no_token(site: Site) -> None:
    """One stops reading, one says all again; also without a key, as who spoke first is heard."""
    _, text = reference(site.model, PROMPT, TOKENS)
    calls = site.node.create_client(GenerateResponseCall, 'language_node/generate_response')
    assert calls.wait_for_service(PATIENCE)
    with stranger_who(STALLS), stranger_who(REPEATS) as said:
        while said() < 2000:
            called = ended(calls.call_async(GenerateResponseCall.Request(prompt=PROMPT)))
            assert (called.fate, called.response.text) == ('done', text), called.reason


def test_chats_go_through_the_models_template(site: Site) -> None:
    _, text = reference(site.model, chat_prompt('hello'), TOKENS)
    client = ActionClient(site.node, GenerateChatCompletions,
                          'language_node/generate_chat_completions')
    assert client.wait_for_server(PATIENCE)
    handle = ended(client.send_goal_async(GenerateChatCompletions.Goal(
        messages=[ChatMessage(role='user', content='hello')], deadline=PATIENCE)))
    result = ended(handle.get_result_async()).result
    assert [choice.message.content for choice in result.choices] == [text]
    http = openai.OpenAI(base_url=f'http://127.0.0.1:{site.port}/v1', api_key='none',
                         timeout=PATIENCE, max_retries=0)
    streamed = ''.join(chunk.choices[0].delta.content or '' for chunk in
                       http.chat.completions.create(
                           model=site.manifest.name, max_tokens=TOKENS, temperature=0,
                           stream=True, messages=[{'role': 'user', 'content': 'hello'}]))
    assert streamed == text
    client.destroy()


def test_a_coordinator_node_plans_for_the_fleet_of_its_file(site: Site, tmp_path: Path) -> None:
    """Another fleet: the model is given to the head as a folder, the other board fetches it."""
    _, text = reference(site.model, PROMPT, TOKENS)
    fleet = tmp_path / 'fleet.yaml'
    fleet.write_text('devices:\n  head: {memory: 1 GB, disk: 1 GB/s}\n'
                     '  other: {memory: 1 GB, disk: 1 GB/s}\n'
                     'networks:\n  cable: {cable: 1 Gbit/s, devices: [head, other]}\n')
    with nodes(tmp_path / 'nodes') as start:
        for name in ('head', 'other'):
            start.start('language_node', {
                'fleet': 'planned', 'device_name': name, 'store': str(tmp_path / name),
                'fetch': 'always', **({'answers': True, 'language_model': str(site.model)}
                                      if name == 'head' else {})},
                label=name, node=f'{name}_node')
        start.start('coordinator_node', {
            'fleet': 'planned', 'system': 'language', 'head': 'head', 'fleet_file': str(fleet),
            'language_model': str(site.model), 'devices': ['head', 'other']}, label='planner')
        calls = site.node.create_client(GenerateResponseCall, 'head_node/generate_response')
        assert calls.wait_for_service(PATIENCE)
        called = ended(calls.call_async(GenerateResponseCall.Request(
            prompt=PROMPT, max_tokens=TOKENS, deadline=PATIENCE)))
        assert (called.fate, called.reason, called.response.text) == ('done', '', text)
        site.node.destroy_client(calls)


def test_goals_rise_to_no_priority_that_the_node_does_not_give(site: Site) -> None:
    calls = site.node.create_client(GenerateResponseCall, 'language_node/generate_response')
    assert calls.wait_for_service(PATIENCE)
    for priority in (1, (1 << 31) - 1):
        called = ended(calls.call_async(GenerateResponseCall.Request(
            prompt=PROMPT, priority=priority)))
        assert called.fate == 'refused' and 'highest_priority' in called.reason
    lower = ended(calls.call_async(GenerateResponseCall.Request(prompt=PROMPT, priority=-1)))
    assert lower.fate == 'done'


def test_with_a_key_goals_and_calls_are_refused_unless_the_node_is_open(
        site: Site, tmp_path: Path) -> None:
    """None can show the key: no feedback, which everybody hears, and no answer."""
    key = tmp_path / 'fleet.key'
    SharedKey.generate().save(key)
    with nodes(tmp_path / 'nodes') as start:
        for name, goals in (('closed_node', 'keyed'), ('open_node', 'open')):
            start.start('language_node', {
                'fleet': 'other', 'device_name': name, 'store': str(tmp_path / name),
                'key_file': str(key), 'answers': True, 'without_plan': 'refuse',
                'goals': goals}, label=name, node=name)
        for name, reason in (('closed_node', 'not sealed'), ('open_node', 'no plan is in use')):
            client = ActionClient(site.node, GenerateResponse, f'{name}/generate_response')
            assert client.wait_for_server(PATIENCE)
            handle = ended(client.send_goal_async(GenerateResponse.Goal(prompt=PROMPT)))
            result = ended(handle.get_result_async()).result
            assert result.fate == 'refused' and reason in result.reason
            client.destroy()
            calls = site.node.create_client(GenerateResponseCall, f'{name}/generate_response')
            assert calls.wait_for_service(PATIENCE)
            called = ended(calls.call_async(GenerateResponseCall.Request(prompt=PROMPT)))
            assert called.fate == 'refused' and reason in called.reason
