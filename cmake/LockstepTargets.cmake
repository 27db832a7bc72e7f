# Common settings of every target.

add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(lockstep_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
# Open MPI 4's mpi.h pulls in its long-deprecated C++ bindings otherwise.
target_compile_definitions(lockstep_options INTERFACE OMPI_SKIP_MPICXX)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# lockstep_library(name SOURCES a.cc ... LIBS x y): a static library with the common settings.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC lockstep_options ${ARG_LIBS})
endfunction()

# lockstep_unit_test(name SOURCES ... LIBS ...): a GoogleTest program, its cases known to ctest.
function(lockstep_unit_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE lockstep_options ${ARG_LIBS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    LOCKSTEP_BUILD_DIR="${CMAKE_BINARY_DIR}" LOCKSTEP_SHARED_DIR="${LOCKSTEP_SHARED_DIR}")
  gtest_discover_tests(${name} PROPERTIES TIMEOUT 300 DISCOVERY_TIMEOUT 60)
endfunction()
