# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names with markup, mathematics or control characters are shown as they are, everywhere."""
from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
import io
import json
from pathlib import Path

from matplotlib.text import Text
import pytest

from intradp_ros.cli.fleet_report import show_report
from intradp_ros.cli.main import main
from intradp_ros.cli.output import output, plain, table
from intradp_ros.report.page import render
from intradp_ros.report.palette import colours, LANES, OVERLAPS
from intradp_ros.report.timeline_plot import timeline_figure
from intradp_ros.runtime.timeline import Event

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
           'bound_ms': 1.0, 'stages': [{'operators': 3, 'devices': [name]}]}
    report = {'target': {'latency_ms': 1.0, 'fps': 1.0}, 'systems': {name: row}, 'burst': {},
              'frames': 1, 'lost': 0, 'max_rel_diff': 0.0, 'killed': {
                  'device': name, 'frames': 1, 'lost': 0, 'max_rel_diff': 0.0, 'by_asker': 0,
                  'recovered_ms': 1.0, 'half_the_air_s': 0, 'network': 'n'}}
    assert printed(lambda out: show_report(report, out)).count(name) == 3
    page = render('fleet.html', title=name, tables={name: {name: {**row, 'text': name}}},
                  ours='', headline=name, remarks=[name], measured=[(name, name)])
    assert '<script>x' not in page


@pytest.mark.parametrize('name', ['$x_$', '$$', '[red]b[/red]', r'\\frac{'])
def test_pictures_show_names_as_they_are(name: str) -> None:
    figure = timeline_figure([Event(name, 'compute', name, 0.0, 1.0)], name)
    texts = [text for text in figure.findobj(Text) if name in text.get_text()]
    assert len(texts) >= 2
    assert not any(text.get_parse_math() for text in texts)


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
             '--qoe', 'rate=1Hz', '--gantt', str(tmp_path / 'gantt.png'), '--loads',
             str(tmp_path / 'loads.svg')]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert '[red]b[/red] $x_' in text and 'wifi $a$ [/]' in text and '[bold]$c$' in text
    assert main([*words, '--json']) == 0
    assert '[red]b[/red] $x_' in json.loads(capsys.readouterr().out)['best']['busy']
