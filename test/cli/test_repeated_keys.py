# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A key that stands twice in a file or message is refused by its name, at any depth."""
from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import intradp_ros
from intradp_ros.cli.call import _fields
from intradp_ros.cli.language_model import _plan_of_file
from intradp_ros.cli.language_run import schema_object
from intradp_ros.cli.train_run import plan_of_file
from intradp_ros.cluster.fleet_file import parse_fleet
from intradp_ros.core.json_text import parse_json, read_json
from intradp_ros.core.yaml_text import parse_yaml
from intradp_ros.graph.serialise import parse_document
from intradp_ros.perception.card import card_from_json
from intradp_ros.perception.labels import parse_labels
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.weight_file import file_facts
from intradp_ros.systems.fleet.pipeline_planner import read_plan
from intradp_ros.systems.language.import_model import load_tokenizer
from intradp_ros.systems.language.manifest import read_manifest
from intradp_ros.systems.serving.placement_plan import read_placement
from intradp_ros.systems.serving.service import parse_services
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.service import messages

#: What is repeated, at three depths.
TEXTS = ('{"format": 1, "again": 2, "again": 3}', '{"format": 1, "a": {"again": 1, "again": 1}}',
         '{"format": 1, "a": [1, {"b": {"again": {}, "c": 1, "again": {}}}]}')


def of_file(read: Callable[[Path], object]) -> Callable[[str, Path], object]:
    def run(text: str, path: Path) -> object:
        path.write_text(text)
        return read(path)
    return run


def of_text(read: Callable[[str], object]) -> Callable[[str, Path], object]:
    return lambda text, _: read(text)


FILES = {'placement': of_file(read_placement), 'training plan': of_file(plan_of_file),
         'language plan': of_file(_plan_of_file), 'fleet plan': of_file(read_plan),
         'any': of_file(read_json)}
MESSAGES = {
    'any': of_text(parse_json), 'graph': of_text(parse_document), 'profile': of_text(
        Profile.from_json), 'book': of_text(ScheduleBook.from_json),
    'table': of_text(LayerTable.from_json), 'card': of_text(card_from_json),
    'labels': of_text(parse_labels), 'model': of_text(lambda text: read_manifest(text, 'a' * 64)),
    'order of training': of_text(messages.read_order), 'schema': of_text(schema_object),
    'report of training': of_text(messages.read_report), 'fields of a call': of_text(_fields),
    'YAML': of_text(parse_yaml), 'tokenizer': of_text(lambda text: load_tokenizer(torch.tensor(
        [*text.encode()], dtype=torch.uint8))),
    'safetensors': of_text(lambda text: file_facts(
        len(text).to_bytes(8, 'little') + text.encode(), Path('weights')))}
YAMLS = {
    'services': (parse_services, ['services: {a: {model: emulated, AGAIN: 1 s, AGAIN: 2 s}}',
                                  'services: {AGAIN: {}, AGAIN: {}}']),
    'fleet': (parse_fleet, ['devices: {AGAIN: {memory: 1 GB}, AGAIN: {memory: 2 GB}}',
                            'devices: {a: {AGAIN: 1 GB, AGAIN: 2 GB}}']),
    'any': (parse_yaml, ['a: 1\nb: &x {c: 1}\nd: [*x, {AGAIN: 1, AGAIN: 1}]', 'AGAIN: 1\nAGAIN: 1',
                         '1: {AGAIN: }\n2: {? AGAIN : 1, "AGAIN": 1}'])}


@pytest.mark.parametrize('text', TEXTS)
@pytest.mark.parametrize('name', FILES)
def test_a_file_with_a_key_twice_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='a key stands twice: again') as refused:
        FILES[name](text, path := tmp_path / 'file.json')
    assert name in ('any', 'training plan', 'language plan') or str(path) in str(refused.value)


@pytest.mark.parametrize('text', TEXTS)
@pytest.mark.parametrize('name', MESSAGES)
def test_a_message_with_a_key_twice_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='a key stands twice') as refused:
        MESSAGES[name](text, tmp_path)
    assert 'again' in str(refused.value) or name == 'labels'


@pytest.mark.parametrize('name', YAMLS)
def test_yaml_with_a_key_twice_is_refused(name: str) -> None:
    read, texts = YAMLS[name]
    for text in texts:
        with pytest.raises(ValueError, match='AGAIN.*second time|stands twice: AGAIN'):
            read(text)
    assert parse_yaml('a: &x {c: 1}\nb: [*x, *x, {c: 2}]') == {
        'a': {'c': 1}, 'b': [{'c': 1}, {'c': 1}, {'c': 2}]}
    assert parse_yaml('') is None


def test_all_that_others_wrote_is_read_by_one_reader() -> None:
    """Elsewhere JSON is that of this package itself: of its own child processes, or just made."""
    own = {
        'cli/node_request.py', 'cli/plan_model.py', 'cli/profile_model.py', 'cli/train_send.py',
        'cli/view_live.py', 'core/json_text.py', 'dds/transport_cost.py',
        'nodes/common/operator_request.py', 'nodes/sharing/view_listener.py',
        'nodes/training/train_request.py', 'systems/language/answer_text.py',
        'systems/language/checkpoint.py', 'systems/language/folder_checkpoint.py',
        'systems/language/import_model.py', 'systems/language/prompts.py',
        'systems/language/schema_trial.py', 'systems/language/template_trial.py',
        'systems/serving/executor.py', 'systems/serving/executor_messages.py',
        'systems/serving/executor_process.py',
        'systems/sharing/book/plan_process.py', 'systems/training/run/worker_process.py',
        'web/dock_client.py', 'web/openai_api.py'}
    top = Path(intradp_ros.__file__).parent
    found = {str(path.relative_to(top)) for path in top.rglob('*.py') if any(
        isinstance(node, ast.Attribute) and node.attr in ('loads', 'load', 'safe_load')
        and isinstance(node.value, ast.Name) and node.value.id in ('json', 'yaml')
        for node in ast.walk(ast.parse(path.read_text())))}
    assert found <= own | {'perception/labels.py'}, found - own
