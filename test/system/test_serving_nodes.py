# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Gateway nodes and a robot that asks them, as processes: answers, deadlines, kills."""
from __future__ import annotations

from array import array
from contextlib import contextmanager
import math
import os
from pathlib import Path
import signal
import time

from node_processes import (
    DENSE,
    end_of,
    nodes,
    Observer,
    own_domain,
    picture,
    relative_difference,
    unsplit,
)
import numpy as np
from policies import check_policy
import pytest
import small_models
from std_msgs.msg import String

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import InferenceResult, Tensor
from intradp_ros.nodes.serving.infer_messages import end_of as end_said
from intradp_ros.nodes.serving.infer_messages import InferMessageError, sealed_request
from intradp_ros.runtime.requests.infer_requests import InferFate
from intradp_ros.srv import Infer
from intradp_ros.systems.serving.executor import emulated_answer
from intradp_ros.systems.serving.service import parse_services

PATIENCE = 120.0
SERVICES = f"""
services:
  dense: {{model: "{DENSE}", deadline: 60 s, batches: [1]}}
"""
#: As quick as a gateway can be: what it answers follows from what it is asked.
EMULATED = """
services:
  dense:
    model: emulated
    deadline: 60 s
    inputs: {pixels: uint8 3x64x96}
    outputs: {found: float32 1x8x8}
    seconds: {1: 5 ms}
"""
CLIENT = {'service': 'dense', 'deadline_ms': 60_000.0, 'frame_age': 'arrival', 'keep': 'all'}


@contextmanager
def running(tmp_path: Path, services: str = EMULATED, **of_gateway):
    """Yield what starts nodes, and parameters of gateways."""
    (tmp_path / 'services.yaml').write_text(services)
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as start:
        observer = Observer(robot='client_node')
        try:
            yield start, observer, {'services_file': str(tmp_path / 'services.yaml'), **of_gateway}
        finally:
            observer.close()


class Asker:
    """Calls a gateway's service as any node does."""

    def __init__(self, observer, gateway='gateway_node'):
        self.client = observer.node.create_client(Infer, f'{gateway}/infer')
        assert self.client.wait_for_service(PATIENCE)

    def ask(self, pixels=None, **fields):
        request = Infer.Request(service='dense', remaining=math.inf, **fields) \
            if 'remaining' not in fields else Infer.Request(service='dense', **fields)
        if pixels is not None:
            request.inputs = [Tensor(name=self.name, dtype_code=1, dtype_bits=8,
                                     shape=array('I', pixels.shape),
                                     data=array('B', pixels.tobytes()))]
        return self.send(request)

    def send(self, request):
        return end_of(self.client.call_async(request), PATIENCE)

    def wait_until_served(self):
        end = time.monotonic() + PATIENCE
        while not (found := self.ask()).takes:
            assert time.monotonic() < end, found.reason
            time.sleep(0.05)
        self.name, dtype, shape = found.takes[0].split()
        assert (dtype, shape) == ('uint8', '3x64x96') and len(found.gives) == 1


def answers(result, pixels):
    """Return whether a result is what the emulated service says of a picture."""
    (service,) = parse_services(EMULATED)
    truth = emulated_answer(service, {'pixels': pixels.transpose(2, 0, 1)})['found']
    (output,) = result.outputs
    assert list(output.shape) == [1, *truth.shape]
    return np.array_equal(np.frombuffer(output.data, np.float32).reshape(truth.shape), truth)


@pytest.mark.slow
def test_a_gateway_answers_as_its_model_does_and_refuses_the_rest(tmp_path: Path):
    with running(tmp_path, SERVICES) as (start, observer, gateway):
        start.start('gateway_node', gateway)
        asker = Asker(observer)
        asker.wait_until_served()
        pixels = picture(1)
        row = pixels.transpose(2, 0, 1).copy()
        answer = asker.ask(row, remaining=30.0)
        end = end_said(answer)
        assert (end.fate, end.site, end.batch) == (InferFate.IN_TIME, 'site', 1)
        assert 0 < end.compute <= end.finished < 30 and end.predicted > 0
        (output,) = end.tensors.values()
        truth = unsplit(small_models.dense(), pixels)
        assert np.abs(output - truth.numpy()[0]).max() <= 1e-6 * float(truth.abs().max())
        for fields, why in (
                ({'remaining': 0.0}, 'its time is over'), ({'remaining': -1.0}, 'is over'),
                ({'remaining': 1e-6}, ''), ({'remaining': math.nan}, 'remaining is not a number'),
                ({'priority': 1}, 'highest_priority'), ({'number': 1 << 63}, 'frame')):
            refused = asker.ask(row, **fields)
            assert refused.fate in ('refused', 'late') and why in refused.reason, fields
            assert not refused.outputs
        for field, value, why in (
                ('data', array('B', b'12'), 'are not uint8 of shape'), ('name', '', 'names are'),
                ('shape', array('I', [1] * 9), '9 dimensions'), ('dtype_bits', 3, 'no dtype')):
            request = Infer.Request(service='dense', remaining=1.0, inputs=[Tensor(
                name='x', dtype_code=1, dtype_bits=8, shape=array('I', [4]),
                data=array('B', bytes(4)))])
            setattr(request.inputs[0], field, value)
            assert why in asker.send(request).reason
        stranger = Infer.Request(service='depth', remaining=1.0)
        assert 'there are dense' in asker.send(stranger).reason
        observer.wait(lambda: observer.status('gateway_node').get('dense_in_time') == '1'
                      and observer.rejected('gateway_node') >= 7, 'its figures')


@pytest.mark.slow
def test_with_a_key_only_sealed_requests_are_answered_once(tmp_path: Path):
    SharedKey.generate().save(tmp_path / 'key')
    key, other = SharedKey.load(tmp_path / 'key'), SharedKey.generate()
    with running(tmp_path, key_file=str(tmp_path / 'key')) as (start, observer, gateway):
        start.start('gateway_node', gateway)
        start.start('client_node', {**CLIENT, 'key_file': str(tmp_path / 'key')})
        asker = Asker(observer)
        asker.wait_until_served()
        row = picture(1).transpose(2, 0, 1).copy()
        plain = asker.ask(row)
        assert 'not sealed' in plain.reason and not plain.outputs

        def sealed(key, number, challenge=plain.challenge):
            return sealed_request(key, Infer.Request(
                service='dense', remaining=30.0, stream='one', number=number, inputs=[Tensor(
                    name=asker.name, dtype_code=1, dtype_bits=8, shape=array('I', row.shape),
                    data=array('B', row.tobytes()))]), challenge)
        assert 'with another key' in asker.send(sealed(other, 1)).reason
        assert 'another challenge' in asker.send(sealed(key, 1, 5)).reason
        request = sealed(key, 1)
        assert asker.send(request).fate == 'in_time'
        assert 'came before' in asker.send(request).reason
        request = sealed(key, 2)
        request.remaining = 31.0
        assert 'with another key' in asker.send(request).reason
        # a robot with the key is answered
        result, _ = observer.answer(_met(observer))
        assert answers(result, picture(3))


@pytest.mark.slow
def test_without_a_gateway_the_robot_holds_and_with_a_model_answers_by_itself(tmp_path: Path):
    with running(tmp_path) as (start, observer, gateway):
        start.start('client_node', {**CLIENT, 'deadline_ms': 5000.0})
        holding = start.start('client_node', {
            **CLIENT, 'model': DENSE, 'gateways': ['nobody']}, label='own', node='other_node')
        number = _met(observer)
        truth = unsplit(small_models.dense(), picture(3))
        assert relative_difference(observer.results[number], truth) <= 1e-6
        observer.wait(lambda: 'holding, no results' in
                      observer.diagnostics.get('/client_node', ('',))[0] and int(
                          observer.status('other_node').get('results_own', 0)) > 0, 'both')
        assert not observer.stats, 'no figures of the one that holds'
        holding.kill()
        observer.results.clear()
        start.start('gateway_node', gateway)  # now there is one
        result, stats = observer.answer(_met(observer))
        assert stats.strategy == 'served'
        assert answers(result, picture(3))
        observer.wait(lambda: 'gateway_node' in observer.node.get_node_names(), 'the gateway')
        check_policy('client_node', observer.node)
        check_policy('gateway_node', observer.node)


@pytest.mark.slow
def test_frames_keep_their_order_and_come_once_when_a_gateway_is_killed(tmp_path: Path):
    with running(tmp_path) as (start, observer, gateway):
        first = start.start('gateway_node', gateway, label='first', node='first')
        start.start('gateway_node', gateway, label='second', node='second')
        for name in ('first', 'second'):
            Asker(observer, name).wait_until_served()
        start.start('client_node', {**CLIENT, 'gateways': ['first', 'second'], 'max_inflight': 8})
        came: list[int] = []
        with observer.listening(InferenceResult, 'result',
                                lambda m: came.append(m.header.stamp.sec), 1000):
            begun = _met(observer)
            pictures = {}
            for k in range(40):
                if k == 12:
                    first.kill()
                number = observer.publish(picture(k))
                pictures[number] = k
                time.sleep(0.05)
            observer.wait(lambda: max(pictures) in observer.results, 'the last frame')
            named = observer.node.create_publisher(String, 'client_node/gateways', 1)
            start.start('gateway_node', gateway, label='third', node='third')
            Asker(observer, 'third').wait_until_served()
            observer.wait(named.get_subscription_count, 'who hears it')
            named.publish(String(data='third'))
            observer.wait(lambda: observer.status('client_node').get('gateway') == 'third',
                          'the gateway that was named')
            last = observer.publish(picture(99))
            pictures[last] = 99
            observer.wait(lambda: last in observer.results, 'a frame of the third')
        flowing = [number for number in came if number > begun]
        assert flowing == sorted(set(flowing)), 'in order, and each once'
        assert set(flowing) == set(pictures), 'none is lost'
        for number in pictures:
            assert answers(observer.results[number], picture(pictures[number]))
        observer.wait(lambda: int(observer.status('client_node').get('changes_of_gateway', 0)),
                      'its figures')


@pytest.mark.slow
def test_a_robot_does_not_compute_itself_what_an_executor_died_of(tmp_path: Path):
    with running(tmp_path, SERVICES) as (start, observer, gateway):
        site = start.start('gateway_node', gateway)
        Asker(observer).wait_until_served()
        start.start('client_node', {**CLIENT, 'model': DENSE})
        _met(observer)
        time.sleep(1.0)  # all images of before
        for task in Path(f'/proc/{site.pid}/task').glob('*/children'):
            for child in task.read_text().split():
                os.kill(int(child), signal.SIGSTOP)  # what hangs in a batch is ended
        number = observer.publish(picture(9))
        observer.wait(lambda: int(observer.status('client_node')['frames_refused']), 'its end')
        assert number not in observer.results
        assert not int(observer.status('client_node')['results_own'])
        site.kill()
        observer.wait(lambda: observer.publish(picture(3)) and int(
            observer.status('client_node')['results_own']), 'the own model')
        assert number not in observer.results


def _met(observer: Observer) -> int:
    """Publish images until one is answered; return its number."""
    observer.meet_robot(picture(3))
    return max(observer.results)


def test_an_answer_that_cannot_be_is_refused():
    answer = Infer.Response(fate='soon')
    with pytest.raises(InferMessageError, match='soon'):
        end_said(answer)
