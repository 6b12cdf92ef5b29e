# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the launch files share. Needs `launch_ros`, which a ROS installation brings."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from launch import Action, LaunchContext
from launch.actions import (
    DeclareLaunchArgument,
    GroupAction,
    OpaqueFunction,
    SetEnvironmentVariable,
)
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode, PushRosNamespace
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from intradp_ros.dds.transport_profile import transport_environment, TRANSPORTS

PACKAGE = 'intradp_ros'
COMMON = ('namespace', 'use_sim_time', 'log_level', 'autostart', 'transport')


def share(*path: str) -> PathJoinSubstitution:
    """Return the place of a file below the package's share directory."""
    return PathJoinSubstitution([FindPackageShare(PACKAGE), *path])


def common_arguments() -> list[Action]:
    """Return the declarations of the arguments that every launch file takes (`COMMON`)."""
    return [
        DeclareLaunchArgument(
            'namespace', default_value='',
            description='Namespace of the nodes; the same on robot and server.'),
        DeclareLaunchArgument(
            'use_sim_time', default_value='false', choices=['true', 'false'],
            description='Take the time from /clock.'),
        DeclareLaunchArgument(
            'log_level', default_value='info',
            choices=['debug', 'info', 'warn', 'error', 'fatal'],
            description='Least severe log messages that are shown.'),
        DeclareLaunchArgument(
            'autostart', default_value='true', choices=['true', 'false'],
            description='Configure and activate the nodes at once; false leaves that to a '
                        'lifecycle manager.'),
        DeclareLaunchArgument(
            'transport', default_value='udp', choices=list(TRANSPORTS),
            description='How Fast DDS carries tensors, the same on robot and server: udp is '
                        'robust to loss and outages, large_data (TCP) is more efficient, '
                        'default leaves the choice to Fast DDS.'),
    ]


def params_file_argument(name: str, default: str) -> DeclareLaunchArgument:
    """Return the declaration of a parameter file, by default one of the package."""
    return DeclareLaunchArgument(
        name, default_value=share('config', default),
        description=f'YAML file with parameters in the manner of config/{default}.')


def node(executable: str, params_file: str,
         remappings: Iterable[tuple[str, str | LaunchConfiguration]] = (), *, name: str = '',
         parameters: Mapping[str, LaunchConfiguration] = MappingProxyType({})) -> LifecycleNode:
    """
    Return the action that runs a node of the package.

    :param params_file: the launch argument that names its parameter file.
    :param name: the launch argument that names the node; by default it is the executable's name.
    :param parameters: values on top of those of the file.
    """
    return LifecycleNode(
        package=PACKAGE, executable=executable, namespace='', output='screen',
        name=LaunchConfiguration(name) if name else executable,
        parameters=[LaunchConfiguration(params_file), dict(parameters), {
            'use_sim_time': ParameterValue(LaunchConfiguration('use_sim_time'), value_type=bool),
            'autostart': ParameterValue(LaunchConfiguration('autostart'), value_type=bool)}],
        remappings=list(remappings),
        ros_arguments=['--log-level', LaunchConfiguration('log_level')])


def node_group(*nodes: LifecycleNode) -> GroupAction:
    """Return nodes in their namespace and with their DDS transport."""
    return GroupAction([PushRosNamespace(LaunchConfiguration('namespace')),
                        OpaqueFunction(function=_set_transport), *nodes])


def _set_transport(context: LaunchContext) -> list[Action]:
    """Return the actions that set the variables of the chosen transport, checked on this host."""
    chosen = LaunchConfiguration('transport').perform(context)
    return [SetEnvironmentVariable(name, value)
            for name, value in transport_environment(chosen).items()]
