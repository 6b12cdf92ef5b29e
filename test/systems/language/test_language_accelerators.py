# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Language models on accelerators, also where only some have one: the answers of processors."""
from __future__ import annotations

from dataclasses import replace
import time

from imagined_accelerator import ACCELERATORS, NAME, needed
from imagined_accelerator import kernels as ran
from language_models import costs, even_plan, plan_of, QUICK, Scripted, STEADY, tiny_model
from packed_models import write_packed
import pytest
import torch

from intradp_lab.language.reference import whole_answer, whole_model
from intradp_ros.blobs.store import BlobStore
from intradp_ros.cli.main import main
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.split.calls.accelerator import DeviceError, open_device
from intradp_ros.systems.language import kernels as language_kernels
from intradp_ros.systems.language.arithmetic import UNIFIED
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.live_planner import LanguagePlanner
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.segment_plan import parse_plan, SegmentPlan

TIMEOUT, COUNT = 60.0, 8
PROMPTS = [[(7 * k + 3 * n) % 97 for k in range(length)] for n, length in enumerate((1, 33, 18))]


def check(local: LocalLanguage, whole, during=None) -> None:
    """Ask all prompts at once, and compare with one process."""
    found: list[list[torch.Tensor]] = [[] for _ in PROMPTS]
    asked = [local.ask(prompt, COUNT, mine) for prompt, mine in zip(PROMPTS, found)]
    if during:
        during(asked[0])
    for prompt, answering, logits in zip(PROMPTS, asked, found):
        assert answering.wait(TIMEOUT).fate in (Fate.DONE, Fate.RESUMED)
        tokens, wanted = whole_answer(whole, prompt, COUNT, frozenset())
        assert answering.tokens == tokens
        assert torch.stack(logits).sub(wanted).abs().max() < 1e-4


@pytest.mark.parametrize('accelerator', ACCELERATORS)
@pytest.mark.parametrize('family, there', [
    ('llama', 'ab'), ('qwen3_moe', 'b'), *(pytest.param(*each, marks=pytest.mark.slow)
                                           for each in (('gemma3_text', 'a'), ('phi3', 'b')))])
def test_some_devices_compute_on_accelerators(tmp_path, family, there, accelerator):
    manifest, store, whole = tiny_model(tmp_path, family)
    given = costs(manifest, 2)
    ran.clear()
    with LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store}, times=STEADY,
                       computes_on=dict.fromkeys(there, open_device(accelerator))) as local:
        local.wait_ready()
        check(local, whole)
        for name in 'ab':
            kv = local.roles[name].engine._program.kv
            assert {each.device.type for both in kv.layers.values() for each in both} == {
                torch.device(accelerator).type if name in there else 'cpu'}
    assert accelerator != NAME or any('mm' in kernel or 'linear' in kernel for kernel in ran)


@pytest.mark.parametrize('accelerator', ACCELERATORS)
def test_keys_and_values_move_and_a_device_is_lost(tmp_path, accelerator):
    manifest, store, whole = tiny_model(tmp_path)
    given = costs(manifest, 3)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, times=QUICK,
                       computes_on=dict.fromkeys('ab', open_device(accelerator))) as local:
        local.wait_ready()
        engines = {name: local.roles[name].engine for name in 'abc'}
        plan, layers = replace(plan_of(local), cache='c'), {'a': (0,), 'b': (2, 3), 'c': (1,)}
        moved = replace(plan, keeps=True, slots={name: tuple(
            (2 * layer + half,) for layer in own for half in (0, 1))
            for name, own in layers.items()})

        def used(wanted) -> None:
            local.coordinator.propose(wanted)
            while not all(engine.plan and engine.plan.slots == wanted.slots and
                          engine.plan.cache == 'c' for engine in engines.values()):
                time.sleep(0.005)
        used(plan)
        before, logits = local.head.state().restarts, []
        answering = local.ask(PROMPTS[2], 60, logits)
        while len(answering.tokens) < 2:
            time.sleep(0.005)
        used(moved)
        assert answering.ended is None, 'it moved too late'
        assert answering.wait(TIMEOUT).fate is Fate.DONE
        tokens, wanted = whole_answer(whole, PROMPTS[2], 60, frozenset())
        assert answering.tokens == tokens and local.head.state().restarts == before
        assert torch.stack(logits).sub(wanted).abs().max() < 1e-4
        check(local, whole, lambda answering: local.kill('b'))


@pytest.mark.parametrize('accelerator', ACCELERATORS)
@pytest.mark.parametrize('types', ['q8_0', {'attn_v.weight': 'q6_k', '': 'q4_k'}], ids=str)
def test_packed_weights_stay_so_on_an_accelerator(tmp_path, types, accelerator, monkeypatch):
    monkeypatch.setattr(language_kernels, 'EXPANDED', 100 * 256 * 4)  # in pieces
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    path = write_packed(tmp_path / 'model.gguf', 'llama', types, num_hidden_layers=2)
    manifest = import_model(path, store.put)
    given = costs(manifest, 1)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, times=STEADY,
                       computes_on={'a': open_device(accelerator)}) as local:
        local.wait_ready()
        check(local, whole_model(manifest, store))
        held = sum(slot._copy.nbytes for slot in local.roles['a'].engine._program.slots)
        assert held == sum(block.nbytes for block in manifest.blocks)


@needed
def test_a_plan_says_that_bits_are_not_promised_and_counts_what_torch_needs(tmp_path):
    manifest, store, whole = tiny_model(tmp_path, dtype=torch.bfloat16)
    given, said = costs(manifest, 2), []
    planner = LanguagePlanner(given, 'a', said.append)
    with LocalLanguage(given, 'a', planner, {'a': store}, times=STEADY,
                       options=LanguageOptions(policy=HeadPolicy(drafts=4)),
                       computes_on={'b': open_device(NAME)}) as local:
        local.wait_ready()
        plan = plan_of(local)
        assert isinstance(plan, SegmentPlan)
        assert plan.exact == ('b' not in plan.participants)
        for other in (even_plan(given, 'ab'), even_plan(given, 'a')):
            found = planner._proposal(other).plan
            assert isinstance(found, SegmentPlan)
            assert found.exact == (other.participants == ('a',)) == parse_plan(
                found.to_json()).exact
            assert ('b computes by imagined' in planner.text(found)) != found.exact
    there = replace(given, arithmetic={'b': 'cuda', 'a': f'cuda{UNIFIED}'})
    plain, more = given.need(plan, 'b').total, there.need(plan, 'b').total
    matrix = 97 * 32 * 4  # the head's, in floats
    assert more - plain == matrix
    assert there.need(plan, 'a').total - given.need(plan, 'a').total == matrix + max(
        file.nbytes for file in (*manifest.blocks, manifest.embedding, manifest.head))


def test_a_device_that_is_not_there_is_said(capsys):
    with pytest.raises(DeviceError, match='no device .nothing.'):
        open_device('nothing')
    assert main(['language', 'plan', 'smollm2', '--device', 'nothing']) != 0
    assert '--device: no device' in capsys.readouterr().err
