# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights are loaded into running nodes: tried on pictures, shared with the new digest, atomic."""
from __future__ import annotations

import hashlib
import math
from pathlib import Path
import threading
from typing import Any

import cv2
from node_processes import (
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    QUICK_PLANNER,
    relative_difference,
    unsplit,
)
import pytest
from safetensors.torch import save_file
import small_models
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph
from intradp_ros.runtime.models.model import AS_GRAPH
from intradp_ros.srv import LoadWeights
from intradp_ros.systems.training.layers.checkpoint import Checkpoint, write_checkpoint

MODEL = 'small_models:classes 1x3x64x96 uint8'
PATIENCE = 60.0


def named(path: Path) -> dict[str, str]:
    """Return the fields of a request for a file."""
    return {'path': path.name, 'sha256': hashlib.sha256(path.read_bytes()).hexdigest()}


def calling(observer: Observer, node: str) -> Any:
    client = observer.node.create_client(LoadWeights, f'{node}/load_weights')
    assert client.wait_for_service(PATIENCE)

    def call(**fields: Any) -> Any:
        over = threading.Event()
        future = client.call_async(LoadWeights.Request(**fields))
        future.add_done_callback(lambda _: over.set())
        assert over.wait(PATIENCE), 'no answer'
        return future.result()
    return call


def write_pictures(folder: Path, model: nn.Module) -> None:
    """Write pictures into folders of the classes that a model says."""
    for seed in range(8):
        pixels = picture(seed)
        place = folder / str(int(unsplit(model, pixels).argmax()))
        place.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(place / f'{seed}.png'), pixels[:, :, ::-1])


def test_new_weights_are_tried_and_then_shared_without_a_restart(tmp_path: Path) -> None:
    before = small_models.classes()
    after = small_models.Pixels(small_models.seeded(small_models.Mobile, seed=1))
    folder = tmp_path / 'weights'
    folder.mkdir()
    write_pictures(folder / 'pictures', after)
    state = after.state_dict()
    write_checkpoint(folder / 'new.safetensors', Checkpoint(
        {('b:' if 'running' in name else 'p:') + name: tensor for name, tensor in state.items()
         if 'num_batches' not in name} | {'o:body.0:step': torch.zeros(2)}, 'task', 3, 0, 8, 0.1))
    worse = {name: -tensor if tensor.is_floating_point() else tensor
             for name, tensor in state.items()}
    worse |= {name: -tensor for name, tensor in worse.items() if 'running_var' in name}
    for name, tensors in (
            ('worse', worse), ('other', small_models.dense().state_dict()),
            ('nan', {k: t * math.nan if t.is_floating_point() else t for k, t in state.items()})):
        save_file({k: t.contiguous() for k, t in tensors.items()}, folder / f'{name}.safetensors')
    (folder / 'huge.safetensors').write_bytes(bytes(1 << 26))
    (tmp_path / 'outside.safetensors').write_bytes((folder / 'new.safetensors').read_bytes())

    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        observer = Observer()
        given = {'weights_folder': str(folder)}
        running.start('planner_node', QUICK_PLANNER)
        running.start('offload_node', {'models': [MODEL], **given})
        running.start('inference_node', {'model': MODEL, **PATIENT, **given})
        assert observer.set_mode('offload')[0]
        observer.infer_until(picture(0), before, lambda stats: stats.shared)
        robot, server = calling(observer, 'inference_node'), calling(observer, 'offload_node')
        new = named(folder / 'new.safetensors')
        for fields, reason in (
                ({**new, 'sha256': 64 * '0'}, 'not the file that is meant'),
                ({**new, 'sha256': ''}, '64 hex digits'),
                ({**new, 'path': '../outside.safetensors'}, 'not below weights_folder'),
                (named(folder / 'other.safetensors'), 'of another model'),
                (named(folder / 'nan.safetensors'), 'not numbers'),
                (named(folder / 'huge.safetensors'), 'too many'),
                ({**named(folder / 'worse.safetensors'), 'pictures': 'pictures',
                  'least_accuracy': 0.9}, 'are right with these weights')):
            answer = robot(**fields)
            assert not answer.success and reason in answer.message, answer.message
        observer.infer_until(picture(1), before, lambda stats: stats.shared)  # all is as it was

        answer = server(**new)
        assert answer.success and 'with these weights, too' in answer.message
        numbers, stop = list[int](), threading.Event()

        def camera() -> None:
            while not stop.is_set():  # a sensor's queue drops what comes faster than is answered
                numbers.append(observer.publish(picture(2)))
                observer.answer(numbers[-1])
        filming = threading.Thread(target=camera)
        filming.start()
        answer = robot(**new, pictures='pictures')
        stop.set()
        filming.join()
        assert answer.success and 'shared as before' in answer.message, answer.message
        assert answer.accuracy == 1.0 and answer.accuracy_before < 1.0
        observer.infer_until(picture(1), after, lambda stats: stats.shared)
        wanted = [unsplit(model, picture(2)) for model in (before, after)]
        which = [[relative_difference(observer.answer(number)[0], one) <= 1e-4 for one in wanted]
                 for number in numbers]
        assert all(sum(pair) == 1 for pair in which)  # the old or the new, nothing else
        assert [pair[1] for pair in which] == sorted(pair[1] for pair in which)
        observer.wait(lambda: observer.diagnostics['/inference_node'][1].get('model_digest')
                      == answer.digest[:12], 'diagnostics')
        observer.close()


@pytest.mark.slow
def test_a_model_that_is_an_archive_gets_the_weights_of_another(tmp_path: Path) -> None:
    before, after = small_models.classes(), small_models.Pixels(
        small_models.seeded(small_models.Mobile, seed=1))
    folder = tmp_path / 'weights'
    folder.mkdir()
    for name, module in (('old', before), ('new', after), ('other', small_models.dense())):
        save_graph(capture(module.eval(), (torch.from_numpy(picture(0)).permute(2, 0, 1)[None],),
                           methods=AS_GRAPH), folder / f'{name}.graph')
    write_pictures(folder / 'pictures', after)
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        observer = Observer()
        given = {'weights_folder': str(folder)}
        archive = str(folder / 'old.graph')
        running.start('planner_node', QUICK_PLANNER)
        running.start('offload_node', {'models': [archive], **given})
        first = running.start('inference_node', {'model': archive, **PATIENT, **given})
        assert observer.set_mode('offload')[0]
        observer.infer_until(picture(0), before, lambda stats: stats.shared)
        robot, server = calling(observer, 'inference_node'), calling(observer, 'offload_node')
        for call in (robot, server):
            answer = call(**named(folder / 'other.graph'))
            assert not answer.success and 'of another model' in answer.message, answer.message
        new = named(folder / 'new.graph')
        assert server(**new).success
        answer = robot(**new, pictures='pictures', least_accuracy=1.0)
        assert answer.success and 'shared as before' in answer.message, answer.message
        observer.infer_until(picture(1), after, lambda stats: stats.shared)
        first.stop()
        running.start('inference_node', {'model': archive, 'weights': str(folder / 'new.graph'),
                                         **PATIENT}, 'robot of new weights')
        observer.infer_until(picture(1), after, lambda stats: True)  # shared only once planned
        observer.close()
