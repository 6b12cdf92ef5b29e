# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names with markup, mathematics or control characters are shown as they are, everywhere."""
from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
import io
import json
from pathlib import Path
from types import SimpleNamespace

from matplotlib import rc_context
from matplotlib.text import Text
import pytest

from intradp_lab.cli.demo_fleet import RIVALS
from intradp_lab.cli.fleet_report import show_report
from intradp_lab.report.overview_plot import overview_figure
from intradp_lab.report.soak_plot import draw_soak
from intradp_lab.report.trace_plot import draw_trace
from intradp_ros.cli.main import main
from intradp_ros.cli.output import output, plain, table
from intradp_ros.report.book_plot import book_figure, draw_book
from intradp_ros.report.front_plot import draw_front
from intradp_ros.report.language_plot import BlockSpan, draw_blocks
from intradp_ros.report.palette import colours, LANES, OVERLAPS
from intradp_ros.report.round_plot import draw_round, FORWARD, RoundSpan
from intradp_ros.report.timeline_plot import timeline_figure
from intradp_ros.report.training_plot import draw_training, Part
from intradp_ros.report.view.blocks import headline, section, view_of
from intradp_ros.report.view.standing_page import standing_page
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.systems.fleet.planner import OURS

ODD = ('[red]b[/red]', '[/]', '$x_$', r'a\\[b]', '[link=x]c', '<script>x</script>', '%s {0}')


def printed(write, as_json: bool = False) -> str:
    """Return what a function writes to the output, and the progress, of a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), output(as_json) as shown:
        write(shown)
    return out.getvalue() + err.getvalue()


@pytest.mark.parametrize('name', ODD)
def test_tables_steps_progress_and_warnings_show_a_name_as_it_is(name: str) -> None:
    def write(out):
        rows = table(name, name)
        rows.add_row(plain(name))
        out.show(rows)
        out.warn(name)
        with out.steps() as step:
            step(name)
        with out.status(name), out.progress(name) as advance:
            advance(1, 2)

    assert printed(write).count(name) == 5


def test_no_control_character_reaches_the_terminal() -> None:
    def write(out):
        rows = table('t\x1b[2J', 'c\x1b]0;x\x07')
        rows.add_row('v\x1b[31m')
        out.show(rows, 'w\x9b2J')
        out.warn('x\x1b[2J\ny')
        with out.steps() as step:
            step('z\x07')

    text = printed(write)
    assert all(c.isprintable() or c == '\n' for c in text)
    assert all(f'{c}\\x' in text for c in 'tcvwxz')


@pytest.mark.parametrize('name', ODD)
def test_reports_and_pages_show_names_of_devices_as_they_are(name: str) -> None:
    row = {'latency_ms': 1.0, 'predicted_ms': 1.0, 'stream_ms': None, 'fps': 1.0,
           'predicted_fps': 1.0, 'joules': 1.0, 'qoe_missed_s': 0.0, 'by_asker': 0,
           'bound_ms': 1.0, 'failed': '', 'lost': 0,
           'stages': [{'operators': 3, 'devices': [name]}]}
    report = {'target': {'latency_ms': 1.0, 'fps': 1.0}, 'systems': {name: row}, 'burst': {},
              'frames': 1, 'lost': 0, 'max_rel_diff': 0.0, 'killed': {
                  'device': name, 'frames': 1, 'lost': 0, 'max_rel_diff': 0.0, 'by_asker': 0,
                  'recovered_ms': 1.0, 'half_the_air_s': 0, 'network': 'n', 'failed': ''}}
    assert printed(lambda out: show_report(report, out)).count(name) == 4
    page = standing_page([view_of(name, [section(name, name, headline(name))])],
                         lambda picture: None)
    assert '<script>x' not in page


@pytest.mark.parametrize('name', ['$x_$', '$$', '[red]b[/red]', r'\\frac{'])
def test_pictures_show_names_as_they_are(name: str) -> None:
    figure = timeline_figure([Event(name, 'compute', name, 0.0, 1.0)], name)
    texts = [text for text in figure.findobj(Text) if name in text.get_text()]
    assert len(texts) >= 2
    assert not any(text.get_parse_math() for text in texts)


@pytest.mark.parametrize('name', ['$x_$', '$$', r'$\\frac{$'])
def test_pictures_of_language_and_training_show_names_as_they_are(
        name: str, tmp_path: Path) -> None:
    for number, draw in enumerate((
            lambda path: draw_blocks([BlockSpan(name, False, 0.0, 1.0)], [name], path, name),
            lambda path: draw_round([RoundSpan(name, FORWARD, name, 0.0, 1.0)], [name], [], path,
                                    name),
            lambda path: draw_training([1.0, 0.5], [], [Part(name, 0, 0, 2, name)], [name],
                                       [(name, 1)], path))):
        draw(tmp_path / f'{number}.svg')  # mathematics that is none would raise
        assert (tmp_path / f'{number}.svg').stat().st_size


@pytest.mark.parametrize('name', ['$x_$', '$$', r'$\frac{$', '_x', '_'])
def test_legends_show_names_as_they_are(name: str, tmp_path: Path) -> None:
    curve = [(1.0, 2.0), (3.0, 4.0)]
    soak = SimpleNamespace(rows=[], happened=[SimpleNamespace(name=name, start=0.0, stop=1.0)],
                           samples={name: [SimpleNamespace(at=0.0, resident_bytes=1e6)]})
    with rc_context({'svg.fonttype': 'none'}):  # texts stay texts
        for number, draw in enumerate((
                lambda path: draw_book({name: curve}, path, 'title'),
                lambda path: draw_front(curve, {name: (1.0, 2.0)}, path, 'title'),
                lambda path: draw_soak(soak, path),
                lambda path: draw_trace(curve, {name: curve}, path, 'title'),
                lambda path: overview_figure({'title': {'case': {name: 1.0}}}, 'ms').savefig(path),
                lambda path: overview_figure({name: {name: {'s': 1.0}}}, 'ms').savefig(path))):
            draw(tmp_path / f'{number}.svg')
            assert f'>{name}<' in (tmp_path / f'{number}.svg').read_text(), number


def test_a_legend_is_no_wider_than_its_figure() -> None:
    curve = [(1.0, 2.0), (3.0, 4.0)]
    figure = book_figure({f'a strategy of a long name {k}': curve for k in range(9)}, 'title')
    legend, = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert len(legend.get_texts()) == 9


def test_tables_of_the_fleet_demo_fit_80_columns() -> None:
    row = {'latency_ms': 1234.5, 'predicted_ms': 1111.5, 'stream_ms': 2345.6, 'fps': 12.3,
           'predicted_fps': 14.5, 'joules': 23.45, 'qoe_missed_s': 67.89, 'by_asker': 0,
           'bound_ms': 987.6, 'failed': '', 'lost': 0,
           'stages': [{'operators': 33, 'devices': ['robot_1']},
                      {'operators': 120, 'devices': ['robot_2', 'server']}]}
    report = {'target': {'latency_ms': 100.0, 'fps': 10.0}, 'killed': None, 'frames': 240,
              'systems': dict.fromkeys((OURS, *RIVALS), row), 'burst': {'kept': row},
              'lost': 0, 'max_rel_diff': 0.0}
    text = printed(lambda out: show_report(report, out))
    tables = text[:text.index('240 frames')]
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= 80
    for shown in ('2346', '14.5', '23.45', '67.89'):
        assert tables.count(shown) == len(RIVALS) + 2  # no number is cut


def test_lanes_of_a_large_fleet_have_colours_of_their_own() -> None:
    names = [f'd{k}' for k in range(32)]
    found = colours(names, LANES)
    assert len(set(found.values())) == len(names)
    assert not set(found.values()) & {*LANES.values(), *OVERLAPS}


FLEET = """\
devices:
  robot: {memory: 1 GB, speed: 0.1}
  "[red]b[/red] $x_": {memory: 1 GB, speed: 9}
networks:
  "wifi $a$ [/]": {access point: 400Mbit/s, devices: [robot, "[red]b[/red] $x_"]}
"""


def test_a_fleet_with_odd_names_is_planned_and_drawn(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'fleet.yaml').write_text(FLEET)
    (tmp_path / 'graph.txt').write_text(
        'node0 -- Input -- forward_compute_time=0.000, backward_compute_time=0.000, '
        'activation_size=100.0, parameter_size=0.000\n'
        'node1 -- [bold]$c$ -- forward_compute_time=90.000, backward_compute_time=0.000, '
        'activation_size=100.0, parameter_size=1000.000\n\tnode0 -- node1')
    words = ['fleet', 'plan', str(tmp_path / 'graph.txt'), '--fleet', str(tmp_path / 'fleet.yaml'),
             '--qoe', 'rate=1Hz', '--timeline', str(tmp_path / 'gantt.png'), '--loads',
             str(tmp_path / 'loads.svg')]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert '[red]b[/red] $x_' in text and 'wifi $a$ [/]' in text and '[bold]$c$' in text
    assert main([*words, '--json']) == 0
    assert '[red]b[/red] $x_' in json.loads(capsys.readouterr().out)['best']['busy']
