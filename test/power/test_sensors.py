# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sensors as Linux shows them, in a folder that has what /sys has on such machines."""
from __future__ import annotations

from pathlib import Path

import pytest

from intradp_ros.power.power_sensors import find_sensor


def write(folder: Path, **files: object) -> Path:
    """Write a number or a text to each file of a device."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f'{content}\n')
    return folder


def hwmon(sysfs: Path, number: int, name: str = 'ina3221', **files: object) -> Path:
    """Write a sensor chip."""
    return write(sysfs / 'class' / 'hwmon' / f'hwmon{number}', name=name, **files)


def channel(number: int, label: str, millivolts: int, milliamperes: int) -> dict[str, object]:
    """Return the files of a channel of an INA3221."""
    return {f'in{number}_label': label, f'in{number}_input': millivolts,
            f'curr{number}_input': milliamperes}


def zone(sysfs: Path, number: str, name: str, microjoules: int) -> Path:
    """Write a powercap zone whose counter goes up to 1000 J."""
    return write(sysfs / 'class' / 'powercap' / f'intel-rapl:{number}', name=name,
                 energy_uj=microjoules, max_energy_range_uj=1_000_000_000)


def test_the_rail_that_feeds_a_module_counts_alone(tmp_path: Path) -> None:
    hwmon(tmp_path, 0, 'tmp451', in1_input=30_000)
    board = hwmon(tmp_path, 3, **channel(1, 'VDD_IN', 5000, 1000),
                  **channel(2, 'VDD_CPU_GPU_CV', 5000, 400), **channel(3, 'VDD_SOC', 5000, 300))
    sensor = find_sensor(tmp_path)
    assert sensor is not None and sensor.source == 'INA3221 VDD_IN'
    assert sensor.joules(100.0) == 0.0
    assert sensor.joules(102.0) == pytest.approx(10.0)
    write(board, curr1_input=3000)  # from 5 to 15 W in a second
    assert sensor.joules(103.0) == pytest.approx(20.0)
    assert sensor.joules(104.0) == pytest.approx(35.0)


def test_else_all_rails_of_all_chips_do(tmp_path: Path) -> None:
    hwmon(tmp_path, 1, **channel(1, 'VDD_GPU_SOC', 20_000, 500),
          **channel(2, 'VDD_CPU_CV', 20_000, 100), **channel(3, 'NC', 0, 0))
    hwmon(tmp_path, 2, in1_label='VIN_SYS_5V0', in1_input=5000, curr1_input=1000,
          in2_label='switched off', in2_input=5000)
    sensor = find_sensor(tmp_path)
    assert sensor is not None
    assert sensor.source == 'INA3221 VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0'
    sensor.joules(0.0)
    assert sensor.joules(1.0) == pytest.approx(10 + 2 + 5)


def test_the_driver_of_jetpack_4_is_known(tmp_path: Path) -> None:
    write(tmp_path / 'bus/i2c/drivers/ina3221x/6-0040/iio:device0',
          rail_name_0='POM_5V_IN', in_power0_input=4200, rail_name_1='POM_5V_GPU',
          in_power1_input=900, rail_name_2='POM_5V_CPU', in_power2_input=700)
    sensor = find_sensor(tmp_path)
    assert sensor is not None and sensor.source == 'INA3221 POM_5V_IN'
    sensor.joules(0.0)
    assert sensor.joules(0.5) == pytest.approx(2.1)


def test_processors_count_with_their_memory_but_not_twice_with_their_cores(
        tmp_path: Path) -> None:
    package = zone(tmp_path, '0', 'package-0', 5_000_000)
    memory = zone(tmp_path, '0:1', 'dram', 1_000_000)
    cores = zone(tmp_path, '0:0', 'core', 4_000_000)
    sensor = find_sensor(tmp_path)
    assert sensor is not None and sensor.source == 'RAPL package-0 + dram'
    assert sensor.joules(0.0) == 0.0
    write(package, energy_uj=25_000_000)
    write(memory, energy_uj=3_000_000)
    write(cores, energy_uj=20_000_000)
    assert sensor.joules(1.0) == pytest.approx(22.0)


def test_a_counter_may_begin_again(tmp_path: Path) -> None:
    package = zone(tmp_path, '0', 'package-0', 999_000_000)
    sensor = find_sensor(tmp_path)
    assert sensor is not None
    sensor.joules(0.0)
    write(package, energy_uj=2_000_000)
    assert sensor.joules(1.0) == pytest.approx(3.0)
    write(package, energy_uj=4_000_000)
    assert sensor.joules(2.0) == pytest.approx(5.0)


def test_a_board_goes_before_its_processor(tmp_path: Path) -> None:
    zone(tmp_path, '0', 'package-0', 5_000_000)
    hwmon(tmp_path, 0, **channel(1, 'VDD_IN', 5000, 1000))
    sensor = find_sensor(tmp_path)
    assert sensor is not None and sensor.source == 'INA3221 VDD_IN'


@pytest.mark.parametrize('counter', ['', 'none'])
def test_what_cannot_be_read_is_no_sensor(tmp_path: Path, counter: str) -> None:
    assert find_sensor(tmp_path) is None
    write(zone(tmp_path, '0', 'package-0', 0), energy_uj=counter)
    hwmon(tmp_path, 0, in1_label='VDD_IN', in1_input=5000, curr1_input=counter)
    assert find_sensor(tmp_path) is None


def test_a_sensor_that_stops_answering_says_so(tmp_path: Path) -> None:
    package = zone(tmp_path, '0', 'package-0', 0)
    sensor = find_sensor(tmp_path)
    assert sensor is not None
    sensor.joules(0.0)
    (package / 'energy_uj').unlink()
    with pytest.raises(OSError):
        sensor.joules(1.0)
