# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Memory of any kind is found where it is held, and a trial leaves no trace of itself."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
import functools
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.reference_evaluation import run_graph

X = torch.linspace(-1, 1, 6).reshape(2, 3)
FRAMES: list[torch.Tensor] = []
NUMBER = 0
ENDLESS = itertools.count()
EVERY = 1000  # calls, until a counter has an effect: no trial runs so often


class Net(nn.Module):
    """Calls a function with itself and the output of a layer."""

    count = 0

    def __init__(self, step: Callable[[Any, torch.Tensor], Any], **held: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.step = nn.Linear(3, 3), step
        for name, item in held.items():
            setattr(self, name, item)

    def forward(self, x: torch.Tensor) -> Any:
        return self.step(self, self.layer(x))


class Slotted:
    """An object without a dictionary."""

    __slots__ = ('calls',)

    def __init__(self) -> None:
        self.calls = 0


def in_deque(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.past.append(y)
    return torch.stack(list(net.past)).mean(0)


def in_dict(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.past['y'] = y + 0.5 * net.past.get('y', y)
    return net.past['y']


def counted(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.count += 1
    return y * 2 if net.count % EVERY == 0 else y


def in_object(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.past.calls += 1
    return y * 2 if net.past.calls % EVERY == 0 else y


def in_array(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.past += 1
    return y * 2 if net.past[0] % EVERY == 0 else y


def in_class(net: Any, y: torch.Tensor) -> torch.Tensor:
    Net.count += 1
    return y * 2 if Net.count % EVERY == 0 else y


def in_global_list(net: Any, y: torch.Tensor) -> torch.Tensor:
    FRAMES.append(y)
    return y * 2 if len(FRAMES) % EVERY == 0 else y


def in_global_number(net: Any, y: torch.Tensor) -> torch.Tensor:
    global NUMBER
    NUMBER += 1
    return y * 2 if NUMBER % EVERY == 0 else y


def in_iterator(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y * 2 if next(ENDLESS) % EVERY == EVERY - 1 else y


def in_default(net: Any, y: torch.Tensor, calls: list[int] = []) -> torch.Tensor:  # noqa: B006
    calls.append(1)
    return y * 2 if len(calls) % EVERY == 0 else y


def in_closure() -> Callable[[Any, torch.Tensor], torch.Tensor]:
    calls = 0

    def step(net: Any, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return y * 2 if calls % EVERY == 0 else y

    return step


def late(net: Any, y: torch.Tensor) -> torch.Tensor:
    before, net.past = net.past, y
    return y if before is None else before


def near_the_last(net: Any, y: torch.Tensor) -> torch.Tensor:
    if net.past is not None and (y - net.past).abs().mean() < 1e-6:
        return net.past * 1
    net.past = y
    return y


def of_the_first(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.past = y if net.past is None else net.past
    return y - net.past


@functools.cache
def kept_apart() -> Any:
    return np.zeros(1)


@functools.lru_cache(4)
def kept_by_name(name: str) -> Any:
    return [0]


def in_cached_array(net: Any, y: torch.Tensor) -> torch.Tensor:
    kept_apart()[0] += 1
    return y * 2 if kept_apart()[0] % EVERY == 0 else y


def in_cached_list(net: Any, y: torch.Tensor) -> torch.Tensor:
    kept_by_name('calls')[0] += 1
    return y * 2 if kept_by_name('calls')[0] % EVERY == 0 else y


def in_a_library(net: Any, y: torch.Tensor) -> torch.Tensor:
    math.calls = getattr(math, 'calls', 0) + 1  # type: ignore[attr-defined]
    return y * 2 if math.calls % EVERY == 0 else y  # type: ignore[attr-defined]


def on_a_parameter(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.layer.weight.calls = getattr(net.layer.weight, 'calls', 0) + 1
    return y * 2 if net.layer.weight.calls % EVERY == 0 else y


MEMORY = {
    'cached array': lambda: Net(in_cached_array), 'cached list': lambda: Net(in_cached_list),
    'a library': lambda: Net(in_a_library), 'a parameter': lambda: Net(on_a_parameter),
    'deque': lambda: Net(in_deque, past=deque(maxlen=3)), 'dict': lambda: Net(in_dict, past={}),
    'counter': lambda: Net(counted), 'object': lambda: Net(in_object, past=Slotted()),
    'array': lambda: Net(in_array, past=np.zeros(2)), 'class': lambda: Net(in_class),
    'global list': lambda: Net(in_global_list), 'global number': lambda: Net(in_global_number),
    'default': lambda: Net(in_default), 'closure': lambda: Net(in_closure()),
    'one call late': lambda: Net(late, past=None),
    'near the last': lambda: Net(near_the_last, past=None),
    'first frame': lambda: Net(of_the_first, past=None),
}


@pytest.mark.parametrize('kind', MEMORY)
def test_memory_is_refused(kind: str) -> None:
    model = MEMORY[kind]()
    with pytest.raises(CaptureError, match='keeps state from call to call'):
        capture(model, X)


def test_what_cannot_be_put_back_is_not_even_tried() -> None:
    with pytest.raises(CaptureError, match="takes from an iterator, the global 'ENDLESS'"):
        capture(Net(in_iterator), X)
    assert next(ENDLESS) == 0


def test_a_trial_leaves_globals_closures_and_draws_as_they_were() -> None:
    step, state = in_closure(), random.getstate()
    models = Net(in_global_list), Net(in_global_number), Net(in_class), Net(step)
    torch.manual_seed(4)
    before, of_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()
    for model in models:
        with pytest.raises(CaptureError):
            capture(model, X)
    assert (FRAMES, NUMBER, Net.count) == ([], 0, 0)
    assert step.__closure__ and step.__closure__[0].cell_contents == 0
    assert torch.equal(torch.get_rng_state(), before) and random.getstate() == state
    assert (np.random.get_state()[1] == of_numpy).all()


def test_a_parameter_written_in_a_trial_stays_what_it_was() -> None:
    def shrink(net: Any, y: torch.Tensor) -> torch.Tensor:
        net.layer.weight.data.mul_(0.5)
        return y

    model = Net(shrink)
    kept = model.layer.weight.detach().clone()
    with pytest.raises(CaptureError, match="writes its parameter or buffer 'layer.weight'"):
        capture(model, X)
    assert torch.equal(model.layer.weight, kept)


def own_generator(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y + torch.randn(1, generator=torch.Generator().manual_seed(3))


def seeded(net: Any, y: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return y + torch.randn(1)


def of_python(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y * random.random()


def of_numpy(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y * float(np.random.rand())


def dropped(net: Any, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(y, training=True)


@pytest.mark.parametrize('step', [own_generator, seeded, of_python, of_numpy, dropped])
def test_draws_are_refused_seeded_or_not(step: Callable[[Any, torch.Tensor], Any]) -> None:
    with pytest.raises(CaptureError, match='draws random numbers'):
        capture(Net(step), X)


def scratch(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.past = y * 2
    return net.past + 1


def cache(net: Any, y: torch.Tensor) -> torch.Tensor:
    if net.past is None or net.past.shape != y.shape:
        net.past = torch.full(y.shape, 3.0)
    return y * net.past


@pytest.mark.parametrize('step', [scratch, cache])
def test_what_no_later_call_reads_and_what_is_filled_once_is_no_memory(
        step: Callable[[Any, torch.Tensor], Any]) -> None:
    assert capture(Net(step, past=None), X).method == 'export'


class Recorder:
    """Answers for every attribute, as recorders and proxies do."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


class Refusing:
    """Refuses to be looked into."""

    @property
    def __dict__(self) -> Any:
        raise RuntimeError('closed')


@pytest.mark.parametrize('kind', [Recorder, Refusing])
def test_an_object_that_cannot_be_looked_into_stops_no_capture(kind: type) -> None:
    assert capture(Net(scratch, past=None, log=kind()), X).method == 'export'


def test_a_number_that_depends_on_the_input_is_no_constant() -> None:
    def step(net: Any, y: torch.Tensor) -> Any:
        return y, int((y[0] > 0).sum())

    with pytest.raises(CaptureError, match='is not a tensor and depends on the input'):
        capture(Net(step), torch.tensor([[9.0, 9.0, 9.0], [-9.0, -9.0, -9.0]]))


def test_operators_that_take_functions_are_named_and_work_afterwards() -> None:
    def step(net: Any, y: torch.Tensor) -> Any:
        return torch.cond(y.sum() > 0, lambda z: z * 2, lambda z: z * 3, (y,))

    model = Net(step).eval()
    with torch.no_grad():
        expected = model(X)
        with pytest.raises(CaptureError, match='calls cond, which takes functions as arguments'):
            capture(model, X)
        assert torch.equal(model(X), expected)


def test_writes_to_inputs_are_refused_where_callers_would_see_them() -> None:
    def step(net: Any, y: torch.Tensor) -> torch.Tensor:
        return y

    class Writes(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x[:, 0].clamp_(max=100)  # a view, and no number changes
            return self.layer(x)

    capture(Writes(step), X)
    with pytest.raises(CaptureError, match="writes to its input 'x'"):
        capture(Writes(step), X, effects=True)


def test_attributes_of_parameters_are_there_when_the_model_is_tried() -> None:
    """Scales of quantised weights are, and a copy of a parameter has none of its own accord."""
    model = Net(lambda net, y: y * net.layer.weight.scale['w'])
    weight: Any = model.layer.weight
    weight.scale = {'w': torch.full((1,), 2.0)}
    graph = capture(model, X)
    torch.testing.assert_close(run_graph(graph, [X])[0], model(X).detach())


def test_sparse_parameters_are_refused_or_captured() -> None:
    """They have no `nbytes`."""
    held = nn.Parameter(torch.eye(3).to_sparse(), requires_grad=False)
    model = Net(lambda net, y: torch.sparse.mm(net.held, y.T).T, held=held)
    try:
        graph = capture(model, X)
    except CaptureError:
        return
    torch.testing.assert_close(run_graph(graph, [X])[0], model(X).detach())


ODD: Any = type('Odd', (), {'__module__': property(lambda self: 'odd'), 'scale': 2.0})


def test_a_class_may_have_anything_for_its_module() -> None:
    """As classes of extensions do, whose objects say where they are from."""
    odd: Any = type('Odd', (), {'__module__': property(lambda self: 'odd'), 'scale': 2.0})
    held = odd()
    model = Net(lambda net, y: y * held.scale * odd.scale * ODD.scale)
    torch.testing.assert_close(run_graph(capture(model, X), [X])[0], model(X).detach())
