# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the launch files share. Needs `launch_ros`, which a ROS installation brings."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
import json
from pathlib import Path
import sys
from types import MappingProxyType
from typing import Any, List  # noqa: UP035

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    GroupAction,
    OpaqueFunction,
    SetEnvironmentVariable,
)
from launch.logging import get_logger
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution, TextSubstitution
from launch_ros.actions import LifecycleNode, PushRosNamespace
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from intradp_ros.dds.transport_profile import possible_environment, TRANSPORTS

PACKAGE = 'intradp_ros'
_TEXTS = List[str]  # noqa: UP006 (launch does not know list[str])
#: What a robot's node publishes of its results.
RESULT_TOPICS = ('result', 'result_image', 'result_points', 'detections', 'classification',
                 'labels', 'instances', 'key_points', 'depth/image', 'depth/camera_info',
                 'depth/points')
#: Set by launch itself, or by a file that includes ours.
_OF_LAUNCH = frozenset({'ros_namespace', 'global_params', 'ros_params', 'ros_remaps'})


def share(*path: str) -> PathJoinSubstitution:
    """Return the place of a file below the package's share directory."""
    return PathJoinSubstitution([FindPackageShare(PACKAGE), *path])


def common_arguments(transport: str = 'udp') -> list[DeclareLaunchArgument]:
    """Return the declarations of the arguments that every launch file takes."""
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
            'transport', default_value=transport, choices=list(TRANSPORTS),
            description='How Fast DDS carries tensors, the same on robot and server: udp is '
                        'robust to loss and outages, air is udp with less talk for a fleet that '
                        'shares an access point, large_data (TCP) is more efficient, '
                        'default leaves the choice to Fast DDS.'),
    ]


def pair_arguments() -> list[DeclareLaunchArgument]:
    """Return the declarations of the arguments of both sides that override parameters."""
    return [
        parameter_argument('model', 'The model, the same on robot and server: '
                           '"package.module:factory shape dtype" or an archive path.'),
        parameter_argument('server', 'Name of the server, under which robots find it.'),
        parameter_argument('device', 'What operators run on: cpu, a device of PyTorch such as '
                           'cuda, or auto (cuda where there is one).'),
        parameter_argument('weights_folder', 'Folder below which files lie that ~/load_weights '
                           'may load.'),
    ]


def robot_arguments() -> list[DeclareLaunchArgument]:
    """Return the declarations of the arguments that only the robot's node takes."""
    return [
        parameter_argument('mode', 'How inferences run.', ('shared', 'local', 'offload', 'cut')),
        DeclareLaunchArgument(
            'name', default_value='',
            description='Name of the node, for several robots in a namespace: its results are on '
                        'NAME/result, NAME/detections, ... If empty, inference_node, with its '
                        'results on result, detections, ...'),
        DeclareLaunchArgument(
            'image_topic', default_value='image',
            description='Topic of sensor_msgs/Image that the robot takes its input from.'),
        DeclareLaunchArgument(
            'points_topic', default_value='points',
            description='Topic of sensor_msgs/PointCloud2, for models that take a grid of cells.'),
    ]


def robot_node(params_file: str) -> OpaqueFunction:
    """Return the action that runs the robot's node; the argument names its parameter file."""
    def run(context: LaunchContext) -> list[Action]:
        name = LaunchConfiguration('name').perform(context)
        results = [(topic, f'{name}/{topic}') for topic in RESULT_TOPICS] if name else []
        return [node('inference_node', params_file,
                     [('image', LaunchConfiguration('image_topic')),
                      ('points', LaunchConfiguration('points_topic')), *results],
                     name='name' if name else '',
                     overrides={name: name for name in (
                         'model', 'server', 'mode', 'device', 'weights_folder')})]
    return OpaqueFunction(function=run)


def server_nodes(params_file: str, planner_params_file: str) -> list[OpaqueFunction]:
    """Return the actions that run the server's nodes; arguments name their parameter files."""
    return [node('offload_node', params_file, overrides={
                'model': 'models[]', 'server': 'server', 'device': 'device',
                'weights_folder': 'weights_folder'}),
            node('planner_node', planner_params_file)]


def params_file_argument(name: str, default: str) -> DeclareLaunchArgument:
    """Return the declaration of a parameter file, by default one of the package."""
    return DeclareLaunchArgument(
        name, default_value=share('config', default),
        description=f'YAML file with parameters in the manner of config/{default}.')


def parameter_argument(name: str, description: str, choices: Sequence[str] = (),
                       ) -> DeclareLaunchArgument:
    """Return the declaration of an argument that overrides a parameter if it is given."""
    return DeclareLaunchArgument(
        name, default_value='', choices=['', *choices] if choices else None,
        description=f'{description} If empty, as the parameter file says.')


def node(executable: str, params_file: str,
         remappings: Iterable[tuple[str, str | LaunchConfiguration]] = (), *, name: str = '',
         overrides: Mapping[str, str] = MappingProxyType({})) -> OpaqueFunction:
    """
    Return the action that runs a node of the package.

    :param params_file: the launch argument that names its parameter file.
    :param name: the launch argument that names the node; by default it is the executable's name.
    :param overrides: parameters by the launch arguments that override them; `NAME[]` is a
        parameter of which that is the only item.
    """
    def run(context: LaunchContext) -> list[Action]:
        file = LaunchConfiguration(params_file).perform(context)
        if not Path(file).is_file():  # launch_ros would start the node without it
            raise FileNotFoundError(f'{params_file}:={file}: there is no such file')
        given: dict[str, Any] = {
            'use_sim_time': ParameterValue(LaunchConfiguration('use_sim_time'), value_type=bool),
            'autostart': ParameterValue(LaunchConfiguration('autostart'), value_type=bool)}
        for argument, parameter in overrides.items():
            if value := LaunchConfiguration(argument).perform(context):
                given[parameter.removesuffix('[]')] = (
                    ParameterValue(TextSubstitution(text=json.dumps([value])), value_type=_TEXTS)
                    if parameter.endswith('[]') else ParameterValue(value, value_type=str))
        return [LifecycleNode(
            package=PACKAGE, executable=executable, namespace='', output='screen',
            name=LaunchConfiguration(name) if name else executable,
            parameters=[file, given], remappings=list(remappings),
            ros_arguments=['--log-level', LaunchConfiguration('log_level')])]

    return OpaqueFunction(function=run)


def described(file: str, arguments: Sequence[DeclareLaunchArgument],
              nodes: Sequence[OpaqueFunction]) -> LaunchDescription:
    """Return a launch file's arguments and its nodes, in their namespace and transport."""
    names = [action.name for action in arguments]

    def warn(context: LaunchContext) -> list[Action]:
        typed = any(Path(word).name == file for word in sys.argv)
        for text in unknown_arguments(context.launch_configurations, names, typed=typed):
            get_logger(PACKAGE).warning(text)
        return []

    return LaunchDescription([
        *arguments, OpaqueFunction(function=warn),
        GroupAction([PushRosNamespace(LaunchConfiguration('namespace')),
                     OpaqueFunction(function=_set_transport), *nodes])])


def unknown_arguments(given: Iterable[str], known: Sequence[str], *, typed: bool) -> list[str]:
    """
    Return a warning for each launch argument that has no effect.

    :param typed: the arguments were given to this very launch file; else those of the files that
        include it are among them, and only what looks misspelt is reported.
    """
    warnings = []
    for name in given:
        near = get_close_matches(name, known, 1, cutoff=0.75)
        if name not in known and name not in _OF_LAUNCH and (near or typed):
            hint = f': is {near[0]} meant?' if near else f'; there are {", ".join(known)}'
            warnings.append(f'there is no launch argument {name}{hint}')
    return warnings


def _set_transport(context: LaunchContext) -> list[Action]:
    """Return the actions that set the variables of the chosen transport, checked on this host."""
    chosen = LaunchConfiguration('transport').perform(context)
    variables, warning = possible_environment(chosen)
    if warning:
        get_logger(PACKAGE).warning(warning)
    return [SetEnvironmentVariable(name, value) for name, value in variables.items()]
