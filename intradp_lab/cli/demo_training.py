# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`intradp demo-training`: a network learns written digits on three devices; one is killed.

Real computation in three processes, each of which takes the seconds of an emulated device and
sends at its rate.  The same training runs in one process, and the plans of several planners, and
torch's DistributedDataParallel, are timed on the same devices.  A rival that fails is a row that
says by what.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
import time
from typing import Any

import torch

from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.emulation.processes import ChildError
from intradp_lab.report.page import number_text
from intradp_lab.training.ddp import train_by_ddp
from intradp_lab.training.digits import digits_float64
from intradp_lab.training.least_times import measured_hop, port_seconds
from intradp_lab.training.one_process import OneProcess, train_alone
from intradp_ros.cli.arguments import number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import Output, output, plain, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.cli.train_task import parts_of
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.report.result_tables import write_json
from intradp_ros.report.training_plot import draw_training
from intradp_ros.report.view.blocks import power
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.checkpoint import Checkpoint, write_checkpoint
from intradp_ros.systems.training.layers.judgement import judge
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.layer_profiler import measure_layers
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.plan.baselines import baseline_seconds, BASELINES
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import plan_round
from intradp_ros.systems.training.plan.replanning import (
    costs_of,
    entering,
    layer_calls,
    linear,
    on_devices,
    replanner,
    runnable,
)
from intradp_ros.systems.training.plan.round_costs import RoundCosts
from intradp_ros.systems.training.plan.training_plan import TrainingPlan
from intradp_ros.systems.training.run.round_groups import (
    check_distributed,
    GroupError,
)
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.process_fleet import ProcessFleet
from intradp_ros.systems.training.service.round_commit import Recovery, RoundCommit
from intradp_ros.systems.training.service.trainer import TrainingError

TASK = 'intradp_lab.training.digits:digits_float64'
OURS = 'training'
DDP = 'torch DDP'
RESULTS = ('checkpoint.safetensors', 'ddp', 'page.html', 'report.json', 'training.png')
#: How fast the emulated devices are; one of speed 1 takes `SAMPLE` seconds for a sample.
SPEEDS, SAMPLE = {'dock': 1.0, 'rover': 0.6, 'drone': 0.4}, 2e-3
#: Largest difference from one process, in float64.
EXACT = 1e-10
#: Rounds that the plan of each planner is timed for; the first two are left out.
TIMED = 14
SETTINGS = Settings(timeout=3.0, every=5)
#: Seconds that a training may take, and its processes until they are there: a bound on what hangs.
PATIENCE = 1800.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.description = (
        "Train a network with batch norm on scikit-learn's written digits, on three emulated "
        'devices that are as fast as 1, 0.6 and 0.4; kill one of them on the way. Weights and '
        'losses are compared with those of one process. Writes report.json, training.png, '
        'page.html and checkpoint.safetensors.')
    parser.add_argument('--rate', type=number(1.0, 1e4), default=100.0, metavar='MBPS',
                        help="rate of each device's port, each way (default %(default)s)")
    parser.add_argument('--kill', type=whole(0, 1 << 20), default=42, metavar='ROUND',
                        help='when a device is killed (default %(default)s)')
    parser.add_argument('--out', type=result_folder, default='out/demo-training',
                        help='folder to write to')


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    with output(False) as out:
        try:
            check_distributed()
            task = digits_float64()
            if not 10 <= args.kill <= task.rounds - 10:
                raise CommandError(f'--kill must be 10 to {task.rounds - 10}')
            claim_folder(args.out, 'demo-training', RESULTS)
            prepare_process(1)
            with out.steps() as step:
                report = _Demo(args, task, out, step).run()
        except (ValueError, GroupError) as error:
            raise CommandError(str(error)) from error
        _show(report, out)
        out.show(f'Wrote {args.out}/report.json, training.png, page.html and '
                 'checkpoint.safetensors')
    return 0 if well(report) else 1


def well(report: Mapping[str, Any]) -> bool:
    """Whether nothing was lost and the result is that of one process."""
    return bool(not report['failed'] and report['max_rel_diff'] <= EXACT
                and not report['killed']['samples_lost']
                and all(abs(a - b) <= 1e-9 * abs(b) for a, b in
                        zip(report['loss'], report['loss_one_process'], strict=True)))


@dataclass
class _Run:
    """What one training left behind."""

    commit: RoundCommit
    state: Mapping[str, torch.Tensor]
    plans: list[tuple[int, TrainingPlan]]
    killed: tuple[str, int, float] | None

    @property
    def loss(self) -> Recovery | None:
        """Return what the kill cost, whatever else happened; None if it was lost before."""
        assert self.killed
        name, _, when = self.killed
        return next((one for one in self.commit.recoveries
                     if name in one.lost and one.noticed >= when), None)

    @property
    def round_seconds(self) -> float:
        """Return what rounds take after the loss (median)."""
        figures = self.commit.figures
        first = self.loss.reached + 1 if self.loss else 0
        return float(median(
            [figures[k]['seconds'] for k in range(first, self.commit.committed) if k in figures]
            or [one['seconds'] for one in figures.values()]))


@dataclass
class _Watch:
    """Notes plans, and kills the first device that has a stage alone, at a round."""

    kill: int | None
    fleet: ProcessFleet | None = None
    plans: list[tuple[int, TrainingPlan]] = field(default_factory=list)
    killed: tuple[str, int, float] | None = None

    def __call__(self, commit: RoundCommit) -> None:
        """Look at where training stands."""
        if commit.plan and (not self.plans or self.plans[-1][1] is not commit.plan):
            self.plans.append((commit.committed, commit.plan))
        if self.kill is not None and self.killed is None and commit.committed >= self.kill \
                and commit.plan and self.fleet:
            alone = [s.devices[0] for s in commit.plan.stages if len(s.devices) == 1]
            name = next((n for n in alone if n != 'dock'), commit.plan.participants[-1])
            self.killed = name, commit.committed, time.monotonic()
            self.fleet.links[name].kill()


class _Demo:
    def __init__(self, args: argparse.Namespace, task: TrainingTask, out: Output,
                 step: Callable[[str], None]) -> None:
        self._args, self._task, self._out, self._step = args, task, out, step
        step('exporting the network and measuring its layers')
        self._graph: LayerGraph = capture(task)
        measured = measure_layers('here', layer_calls(self._graph, task),
                                  entering(self._graph, task), task.optimiser, task.grain)
        times = measured.times['here']
        whole = sum(times.forward[-1]) + sum(times.backward[-1])
        scale = whole / times.batches[-1] / SAMPLE
        self._table: LayerTable = on_devices(linear(measured), {
            name: speed * scale for name, speed in SPEEDS.items()})
        ports = behind_access_point(
            [Device(name, speed=speed) for name, speed in SPEEDS.items()], 125e6,
            wired=list(SPEEDS), port=args.rate * 125e3)
        # Other work of a moment must not make the plan.  Half of a hop up, half down.
        hop = median(measured_hop() for _ in range(5)) / 2
        self._topology: Topology = replace(
            ports, media=tuple(replace(port, delay=hop) for port in ports.media))
        self._costs: RoundCosts = costs_of(task, self._table, self._topology)

    def run(self) -> dict[str, Any]:
        """Run everything; write the results and return the report."""
        self._step('training in one process')
        alone = train_alone(self._task)
        systems = self._systems(alone)
        ours = self._attempt('training over three devices, one is killed', replanner(
            self._task, self._table, self._topology), self._args.kill)
        heavy = self._attempt('the same with plans from scratch', replanner(
            self._task, self._table, self._topology, heavy=True), self._args.kill,
            self._args.kill + 8)
        if isinstance(ours, str):
            report = self._failed(ours, alone, systems)
            return self._write(report, [f'The training failed: {ours}'])
        kept = None if isinstance(heavy, str) else heavy
        report = self._report(ours, kept, alone, systems)
        self._draw(ours, report)
        return self._write(report, [
            f'{report["rounds"]} rounds of {self._task.batch} samples: the largest difference of '
            f'a weight from one process is {report["max_rel_diff"]:.1e}; '
            f'{report["killed"]["samples_lost"]} samples were lost. Accuracy on pictures that '
            f'it never saw: {report["accuracy"]:.1%}.', *self._limits(systems),
            *self._after(ours, kept)])

    def _attempt(self, text: str, planner: Any, kill: int | None, rounds: float = float('inf'),
                 ) -> _Run | str:
        """Return what a training left behind, or by what it failed."""
        try:
            return self._train(text, planner, kill, rounds)
        except (TrainingError, GroupError) as error:
            self._out.show(plain(f'{text}: {error}'))
            return str(error)

    def _train(self, text: str, planner: Any, kill: int | None,
               rounds: float = float('inf')) -> _Run:
        self._step(text)
        watch = _Watch(kill)
        with ProcessFleet(TASK, self._task, self._graph, self._topology, planner, self._table,
                          SETTINGS, emulate=True, progress=watch, wait=PATIENCE) as fleet:
            watch.fleet = fleet
            fleet.trainer.run(PATIENCE, rounds)
            done = rounds > self._task.rounds
            return _Run(fleet.trainer.commit, fleet.trainer.collect() if done else {},
                        watch.plans, watch.killed)

    def _systems(self, alone: OneProcess) -> dict[str, dict[str, Any]]:
        """Time rounds by the plan of each planner, and by DDP."""
        costs, batches = self._costs, self._task.micro_batches
        best = plan_round(costs)
        plans: dict[str, tuple[Sequence[HybridStage], float]] = {OURS: (best.stages, best.seconds)}
        one = [HybridStage(0, costs.layers, (('dock', costs.micro_batch),), 1)]
        plans['one device'] = one, baseline_seconds(costs, [(one, batches)])
        for name in ('EDDL', 'PP', 'PipeDream'):
            if (found := BASELINES[name](costs)) and len(found) == 1:
                plans[name] = found[0][0], baseline_seconds(costs, found)
        systems: dict[str, dict[str, Any]] = {}
        for name, (stages, seconds) in plans.items():
            try:
                plan = runnable(costs, stages, self._task)
            except ValueError as error:
                systems[name] = _row(predicted=seconds, failed=str(error))
                continue
            same = next((one for one in systems if systems[one]['plan'] == str(plan)), None)
            if same is not None:
                systems[name] = {**systems[same], 'predicted_ms': 1e3 * seconds,
                                 'same_plan_as': same}
                continue
            timed = self._attempt(f'timing the plan of {name}', partial(_always, plan), None,
                                  TIMED)
            if isinstance(timed, str):
                systems[name] = _row(str(plan), seconds, failed=timed)
                continue
            rounds = [timed.commit.figures[k] for k in range(TIMED)]
            systems[name] = _row(str(plan), seconds, [one['seconds'] for one in rounds],
                                 [one['loss'] for one in rounds], alone)
        systems[DDP] = self._ddp(alone)
        return systems

    def _ddp(self, alone: OneProcess) -> dict[str, Any]:
        """Time torch's DistributedDataParallel on the same devices, samples by speed."""
        self._step(f'timing {DDP}')
        times = self._table.times
        seconds = {name: ((sum(times[name].forward[-1]) + sum(times[name].backward[-1]))
                          / times[name].batches[-1], sum(times[name].step)) for name in SPEEDS}
        try:
            found = train_by_ddp(TASK, self._task.batch, TIMED, seconds, self._args.rate * 125e3,
                                 self._args.out / 'ddp')
        except (ChildError, OSError, ValueError) as error:
            return _row(failed=error.what if isinstance(error, ChildError) else str(error))
        return _row('all layers: ' + ', '.join(f'{name} {count} samples' for name, count in
                                               found.shares.items()),
                    None, found.seconds, found.loss, alone)

    def _failed(self, why: str, alone: OneProcess, systems: Mapping[str, Mapping[str, Any]],
                ) -> dict[str, Any]:
        return {'failed': why, 'rounds': 0, 'samples': 0, 'max_rel_diff': None, 'loss': [],
                'loss_one_process': alone.loss, 'accuracy': None, 'killed': None,
                'systems': systems}

    def _report(self, ours: _Run, heavy: _Run | None, alone: OneProcess,
                systems: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        figures, task = ours.commit.figures, self._task
        judged = judge(task, ours.state)
        assert judged
        return {
            'failed': '', 'rounds': len(figures),
            'samples': sum(int(f['samples']) for f in figures.values()),
            'max_rel_diff': _difference(ours.state, alone),
            'loss': [figures[k]['loss'] for k in sorted(figures)],
            'loss_one_process': alone.loss, 'accuracy': judged.accuracy,
            'systems': systems, 'parts': [
                (part.device, part.text, part.first, part.last)
                for part in parts_of(ours.plans, task.rounds)],
            'killed': {
                'rounds_replayed': ours.loss.reached - ours.loss.tag if ours.loss else 0,
                'samples_lost': task.rounds * task.batch - sum(
                    int(f['samples']) for f in figures.values()),
                'recovery_ms': _split(ours), 'heavy_ms': heavy and _sum(_split(heavy))}}

    def _draw(self, ours: _Run, report: Mapping[str, Any]) -> None:
        """Write the picture and the weights."""
        out, task = self._args.out, self._task
        write_checkpoint(out / 'checkpoint.safetensors', Checkpoint(
            ours.state, TASK, task.rounds, task.seed, task.batch, report['loss'][-1]))
        assert ours.killed
        draw_training(report['loss'], report['loss_one_process'],
                      parts_of(ours.plans, task.rounds), list(SPEEDS), [ours.killed[:2]],
                      out / 'training.png', how='is killed')

    def _write(self, report: dict[str, Any], remarks: Sequence[str]) -> dict[str, Any]:
        """Write the report and its page; return the report."""
        self._out.show(*map(plain, remarks[1:]))
        report['said'] = {
            'title': 'A network learns digits on three devices', 'well': well(report),
            'headline': 'The result of one process, with a device killed on the way.'
            if well(report) else 'Not all is as it must be.',
            'remarks': remarks,
            'measured': [
                ('a round', f'median of {TIMED - 2} rounds; a plan that several planners found '
                            'was run once'),
                ('from one process', 'largest difference of a loss from that of one process in '
                                     f'the first {TIMED} rounds; {DDP} normalises the samples of '
                                     'one device at a time, as batch norm does there'),
                ('devices', 'processes of this machine that compute really, and take the seconds '
                            'of devices of speed 1, 0.6 and 0.4; each sends '
                            f'{self._args.rate:g} Mbit/s at most (emulated)'),
                ('recovery', 'from the kill until all have left the plan; until layers are '
                             'moved; until the round that was reached is reached again'),
                ('again', '`make demo-training` makes these figures again; one run')]}
        write_json(self._args.out / 'report.json', report)
        write_page(self._args.out)
        return report

    def _limits(self, systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Say how far from all devices computing all the time a round is."""
        best, least = systems[OURS], self._least()
        if best['failed']:
            return []
        return [f'A round took {number_text(best["round_ms"])} ms; all three computing all the '
                f'time would take {number_text(1e3 * least)} ms: '
                f'{best["round_ms"] / 1e3 / least:.2f} x the limit.']

    def _least(self) -> float:
        """Return the seconds of a round if all devices computed all the time."""
        costs = self._costs
        return costs.micro_batches / sum(1 / sum(costs.seconds(
            name, 0, costs.layers, costs.micro_batch)) for name in self._topology.names)

    def _after(self, ours: _Run, heavy: _Run | None) -> list[str]:
        """Say what recovery took, what it must take at least, and how fast it went on."""
        assert ours.killed
        name, number, when = ours.killed
        recovery = ours.loss
        if recovery is None:
            return [f'{name} was killed at round {number}, when it had left the plan already.']
        moved = port_seconds(recovery.moved, ours.commit.sizes, self._args.rate * 125e3)
        work = (recovery.reached - recovery.tag) * ours.round_seconds
        took, detect = recovery.caught_up - when, recovery.planned - when
        plan = next((plan for _, plan in ours.plans if name not in plan.participants), None)
        scratch = '' if heavy is None else (
            f'; {heavy.round_seconds / ours.round_seconds:.2f} times as many rounds a second as '
            'by a plan from scratch')
        return [f'{name} was killed at round {number}; the {len(SPEEDS) - 1} others went on from '
                f'round {recovery.tag} and were where they had been after {1e3 * took:.0f} ms. '
                f'At least {1e3 * (detect + moved + work):.0f} ms are needed: '
                f'{1e3 * detect:.0f} until all have left the plan, {1e3 * moved:.0f} for the '
                f'bytes of layers, {1e3 * work:.0f} for the rounds since then. Their plan: '
                f'{plan}{scratch}.']


def _always(plan: TrainingPlan, devices: tuple[str, ...], before: TrainingPlan | None,
            ) -> TrainingPlan:
    return plan


def _row(plan: str = '', predicted: float | None = None, seconds: Sequence[float] = (),
         loss: Sequence[float] = (), alone: OneProcess | None = None, failed: str = '',
         ) -> dict[str, Any]:
    """Return the row of a system: what its rounds took, or by what it failed."""
    return {'plan': plan, 'predicted_ms': None if predicted is None else 1e3 * predicted,
            'round_ms': 1e3 * median(seconds[2:]) if seconds else None, 'failed': failed,
            'loss_diff': max(abs(a - b) / abs(b) for a, b in zip(loss, alone.loss))
            if alone and loss else None}


def _split(run: _Run) -> dict[str, float] | None:
    """Return the milliseconds of a recovery, in three; None if there was none."""
    if run.loss is None or run.killed is None:
        return None
    return {name: 1e3 * seconds for name, seconds in zip(
        ('detect', 'move', 'replay'), run.loss.parts(run.killed[2]))}


def _sum(split: Mapping[str, float] | None) -> float | None:
    return None if split is None else sum(split.values())


def _difference(state: Mapping[str, torch.Tensor], alone: OneProcess) -> float:
    """Return the largest difference of weights and statistics, by the largest of their tensor."""
    wanted = {f'p:{name}': p.detach() for name, p in alone.module.named_parameters()}
    wanted |= {f'b:{name}': b for name, b in alone.module.named_buffers() if 'running' in name}
    return max(float((state[name] - value).abs().max() / value.abs().max())
               for name, value in wanted.items())


def _named(name: str, row: Mapping[str, Any]) -> str:
    """Return a planner's name, and whose plan it has where that was timed before."""
    return f'{name} (the plan of {row["same_plan_as"]})' if 'same_plan_as' in row else name


def _show(report: Mapping[str, Any], out: Output) -> None:
    shown = table('Rounds of three devices', 'planner', 'ms a round', 'predicted',
                  'from one process', 'failed')
    for name, row in report['systems'].items():
        shown.add_row(_named(name, row), number_text(row['round_ms']),
                      number_text(row['predicted_ms']), power(row['loss_diff']),
                      plain(row['failed']))
    out.show(shown)
    killed = report['killed']
    if report['failed']:
        out.show(f'[red]The training failed:[/red] {plain(report["failed"])}')
        return
    recovery, scratch = _sum(killed['recovery_ms']), killed['heavy_ms']
    out.show(f'largest difference from one process {report["max_rel_diff"]:.1e}, accuracy '
             f'{report["accuracy"]:.1%}; after the kill {killed["rounds_replayed"]} rounds '
             f'replayed, {killed["samples_lost"]} samples lost, recovered in '
             f'{number_text(recovery)} ms (plans from scratch: {number_text(scratch)} ms)')
