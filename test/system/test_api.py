# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The three lines on an existing program, with an offload node in another process."""
from __future__ import annotations

from collections.abc import Callable, Iterator
import multiprocessing
from pathlib import Path
import subprocess
import sys
import threading
import time
import warnings

from imagined_accelerator import ACCELERATORS
from node_processes import Nodes, nodes, own_domain, TIMEOUT
import pytest
from sharing import assert_equal, ENDLESS
import small_models
import torch

from intradp_ros import IntraDP
from intradp_ros.profiling.kept_memory import PATIENCE, private_bytes, SLACK

HEIGHT, WIDTH = 192, 256  # large enough for sharing to pay on any machine
UNET = f'small_models:unet 1x3x{HEIGHT}x{WIDTH}'


def source(seed: int, height: int = HEIGHT) -> torch.Tensor:
    return torch.randn(1, 3, height, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope='module')
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder, threads = tmp_path_factory.mktemp('api'), torch.get_num_threads()
    torch.set_num_threads(1)
    with own_domain(folder), nodes(folder / 'logs') as running:
        yield running
    torch.set_num_threads(threads)


@pytest.fixture(scope='module')
def served(running: Nodes) -> Nodes:
    running.start('offload_node', {'models': [UNET]})
    return running


def test_memory_that_calls_leave_is_given_back(running: Nodes, model: torch.nn.Module) -> None:
    """
    What is free between blocks in use stays with the process, unless somebody asks for it.

    Calls ask after the next one, or later where they did shortly before.
    """
    idp = IntraDP(server='nobody')
    idp.start_client(model=model)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter('ignore')
            model(source(0))
            assert idp.wait_prepared(TIMEOUT)
            for seed in range(3):
                model(source(seed))
            blocks = [bytes(2000) for _ in range(60_000)]
            held = private_bytes()
            blocks = blocks[::40]
            assert private_bytes() > held - 2 * SLACK
            end = time.monotonic() + PATIENCE + TIMEOUT
            while private_bytes() >= held - 2 * SLACK and time.monotonic() < end:
                model(source(3))
        assert private_bytes() < held - 2 * SLACK and blocks
    finally:
        idp.stop()


@pytest.fixture
def model() -> torch.nn.Module:
    return small_models.unet()


def test_without_a_server(running: Nodes, model: torch.nn.Module) -> None:
    """One warning, and the model's own results; what the model was is restored exactly."""
    before = dict(vars(model))
    own = small_models.unet()
    model.train()
    idp = IntraDP(server='nobody')
    idp.start_client(model=model)
    with pytest.warns(RuntimeWarning, match="no server 'nobody' answers") as seen, \
            torch.no_grad():
        for seed in range(4):
            assert_equal(model(source(seed)), own(source(seed)))
            assert idp.wait_prepared(TIMEOUT)
    ours = [w for w in seen if w.category is RuntimeWarning]
    assert [w.filename for w in ours] == [__file__]
    assert not idp.wait_ready(0.0)
    with pytest.raises(RuntimeError, match='already has a model'):
        idp.start_client(model=own)
    idp.stop()
    idp.stop()
    assert 'forward' not in vars(model)
    assert model.training and model.get_submodule('enter').training
    model.eval()
    assert dict(vars(model)) == before
    assert not [t for t in threading.enumerate() if t.name.startswith(('intradp', 'nobody'))]


@pytest.mark.parametrize('wrong', [
    {'server': 'two words'}, {'server': ''}, {'server': '../offload'}, {'namespace': 'robot 1'},
    {'namespace': 'a//b'}, {'lossy': 'int2'}, {'predictor': 'oracle'}, {'key_file': '/no/file'}])
def test_what_is_impossible_is_refused_where_it_is_written(wrong: dict[str, str]) -> None:
    """Not in the first call of the user's model."""
    with pytest.raises(ValueError):
        IntraDP(**wrong)


def test_three_lines_with_a_server(served: Nodes, model: torch.nn.Module) -> None:
    """Results are those of the model; once ready, the server takes part in calls."""
    own = small_models.unet()
    idp = IntraDP(server='offload', patience=ENDLESS)
    idp.start_client(model=model)
    assert_equal(model(source(0)), own(source(0)).detach())
    assert idp.wait_ready(TIMEOUT)
    outputs = shared_outputs(idp, model)
    for seed, output in outputs.items():
        assert_equal(output, own(source(seed)).detach())
    in_use_like_any_other(model, own)
    idp.stop()
    assert torch.equal(model(source(1)), own(source(1)))
    assert model(source(1)).requires_grad


def test_the_program_goes_on_while_the_model_is_prepared(
        running: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Calls are plain ones meanwhile, random numbers the program's own, and so is standard error.

    Weights are not held twice.  What changes meanwhile is noticed, and undone again.
    """
    model, own = small_models.unet().eval(), small_models.unet().eval()
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path))
    said, go_on = list[str](), threading.Event()

    def log(text: str) -> None:
        said.append(text)
        if text.startswith('profiling'):
            assert go_on.wait(TIMEOUT)

    idp = IntraDP(server='nobody', log=log)
    idp.start_client(model=model)
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('always')
        torch.manual_seed(5)
        wanted = [torch.rand(3) for _ in range(40)]
        torch.manual_seed(5)
        model(source(0))
        stderr, plain = sys.stderr, torch.nn.Module.__call__
        for number in wanted:
            assert torch.equal(torch.rand(3), number)
            assert sys.stderr is stderr and torch.nn.Module.__call__ is plain
            assert torch.equal(model(source(1)), own(source(1)))
        assert not idp.wait_prepared(0.0)
        weight = next(model.parameters())
        weight.mul_(2)
        go_on.set()
        assert idp.wait_prepared(TIMEOUT)
        changed = model(source(1))
        next(own.parameters()).mul_(2)
        assert torch.equal(changed, own(source(1))) and idp.last is None
        weight.mul_(0.5)
        next(own.parameters()).mul_(0.5)
        end = time.monotonic() + TIMEOUT
        while idp.last is None and time.monotonic() < end:
            assert_equal(model(source(2)), own(source(2)))
    assert idp.last is not None
    assert ['no longer what was captured' in str(w.message) for w in seen].count(True) == 1
    shared = idp._shared
    assert shared is not None and shared.client is not None
    own_memory = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held = shared.client.model.split.captured.parameters
    assert any(t.untyped_storage().data_ptr() in own_memory for t in held.values())
    assert any(text.startswith('capturing') for text in said)
    idp.stop()


def test_stopped_while_it_prepares(running: Nodes, model: torch.nn.Module,
                                   monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In capture or profile, it ends in order and leaves nothing; the next one can begin."""
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path))
    for ends_in in ('capturing', 'profiling'):
        reached = threading.Event()

        def log(text: str, wanted: str = ends_in, reached: threading.Event = reached) -> None:
            if text.startswith(wanted):
                reached.set()

        idp = IntraDP(server='nobody', log=log)
        idp.start_client(model=model)
        with torch.no_grad():
            model(source(0))
        assert reached.wait(TIMEOUT)
        assert not idp.wait_ready(0.0)
        idp.stop()
        assert not [t for t in threading.enumerate() if t.name.startswith('intradp')]
        assert not [p for p in multiprocessing.active_children()
                    if p.name.startswith('intradp')]
    assert not list(tmp_path.rglob('*.json'))


@pytest.mark.slow
@pytest.mark.parametrize('device', ACCELERATORS)
def test_a_model_on_an_accelerator(served: Nodes, model: torch.nn.Module, device: str) -> None:
    """It is shared from there, and results are where the model's own would be."""
    own, idp = small_models.unet(), IntraDP(server='offload', patience=ENDLESS)
    idp.start_client(model=model.to(device))
    assert model(source(0).to(device)).device.type == device
    assert idp.wait_ready(TIMEOUT)
    outputs = shared_outputs(idp, lambda x: model(x.to(device)))
    idp.stop()
    for seed, output in outputs.items():
        assert output.device.type == device
        assert_equal(output.cpu(), own(source(seed)).detach())


def shared_outputs(idp: IntraDP, model: Callable[[torch.Tensor], torch.Tensor],
                   ) -> dict[int, torch.Tensor]:
    """Call the model until four calls were shared."""
    outputs: dict[int, torch.Tensor] = {}
    shared, end = 0, time.monotonic() + TIMEOUT
    while shared < 4 and time.monotonic() < end:
        outputs[len(outputs)] = model(source(len(outputs)))
        shared += idp.last is not None and idp.last.stats.shared
        time.sleep(0.01)
    assert shared == 4
    return outputs


def in_use_like_any_other(model: torch.nn.Module, own: torch.nn.Module) -> None:
    """Use threads, in-place operations, other shapes, gradients, keywords."""
    model(source(5)).add_(1)
    results: dict[int, torch.Tensor] = {}

    def call(seed: int) -> None:
        results[seed] = model(source(seed))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    for seed in range(6):
        assert_equal(results[seed], own(source(seed)).detach())
    with pytest.warns(RuntimeWarning, match='other shapes'):
        assert torch.equal(model(source(1, 32)), own(source(1, 32)))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert torch.equal(model(source(2, 32)), own(source(2, 32)))
        assert torch.equal(model(x=source(1)), own(source(1)))
        wanted = source(1).requires_grad_()
        model(wanted).sum().backward()
    assert wanted.grad is not None


def test_a_model_that_cannot_be_shared(running: Nodes) -> None:
    """A warning says why, and it runs as before; a forward put there by others stays."""
    model = torch.nn.Linear(3, 2)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.sum() * 2 if bool(x.sum() > 0) else x * 3  # depends on the data

    model.forward = forward
    idp = IntraDP()
    idp.start_client(model=model)
    assert model(torch.ones(3)) == 6
    with pytest.warns(RuntimeWarning, match='cannot be shared') as seen:
        assert not idp.wait_prepared(TIMEOUT)
    assert [w.filename for w in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert model(torch.ones(3)) == 6
    idp.stop()
    assert model.forward is forward


def test_a_program_that_does_not_stop(running: Nodes, tmp_path: Path) -> None:
    """A script that just ends ends in order."""
    script = ('import torch, small_models\n'
              'from intradp_ros import IntraDP\n'
              'model = small_models.unet()\n'
              'IntraDP(server="nobody").start_client(model=model)\n'
              'for _ in range(3): model(torch.zeros(1, 3, 64, 96))\n'
              'print("done")\n')
    path = tmp_path / 'program.py'
    path.write_text(script)
    done = subprocess.run([sys.executable, '-W', 'ignore', str(path)], text=True,
                          capture_output=True, timeout=TIMEOUT)
    assert (done.stdout, done.returncode) == ('done\n', 0), done.stderr
    assert 'Traceback' not in done.stderr
