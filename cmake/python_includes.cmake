# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

# The message packages of the ROS wheels export the Python include directories of the machine that
# built them. CMake refuses directories that do not exist, so name this interpreter's instead.
set(python_includes "${Python3_INCLUDE_DIRS};${Python3_NumPy_INCLUDE_DIRS}")
foreach(package ${rosidl_generate_interfaces_DEPENDENCY_PACKAGE_NAMES})
  set(target ${package}::${package}__rosidl_generator_py)
  get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
  list(GET directories 0 directory)
  if(NOT EXISTS "${directory}")
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${python_includes}")
  endif()
endforeach()
# Nor export such paths from here: CMake refuses those of a virtual environment in this directory.
set_target_properties(${PROJECT_NAME}__rosidl_generator_py PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "$<BUILD_INTERFACE:${python_includes}>")
