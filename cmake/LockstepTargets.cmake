# Common settings of every target.

add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(lockstep_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(NOT LOCKSTEP_JOIN_SOURCES)
  # Joined files would shadow each other's `using` declarations.
  target_compile_options(lockstep_options INTERFACE -Wshadow)
endif()
# Open MPI 4's mpi.h pulls in its long-deprecated C++ bindings otherwise.
target_compile_definitions(lockstep_options INTERFACE OMPI_SKIP_MPICXX)
if(LOCKSTEP_CHECK_ODR)
  # Objects with both: machine code for the links that compare nothing, and what the linker compares types by.
  target_compile_options(lockstep_options INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_UNIT_TEST>>>:-flto;-ffat-lto-objects>")
  add_link_options($<$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_COMPARES_TYPES>>>:-fno-lto>)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# Files that are compiled by themselves although their target's sources are joined: a name in their anonymous namespace
# is also one in another file of the target. tests/style/joined.py checks the list, and prints it with --list.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/apart.txt LOCKSTEP_APART REGEX "^[^#]")

# lockstep_join(target): with LOCKSTEP_JOIN_SOURCES its sources are compiled sixteen at a time. Headers are then read, and
# the templates that many files use are compiled, once for sixteen files. Precompiled headers save less.
function(lockstep_join target)
  if(NOT LOCKSTEP_JOIN_SOURCES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC inlines less once a translation unit is large. Sixteen files together may be sixteen times as large.
    # And it takes a class of an included file for one that other units see, too.
    target_compile_options(${target} PRIVATE --param=large-unit-insns=160000 -Wno-subobject-linkage)
  endif()
  cmake_language(EVAL CODE "cmake_language(DEFER CALL lockstep_keep_apart ${target})")  # When all sources are known.
endfunction()
function(lockstep_keep_apart target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME)
    if(name IN_LIST LOCKSTEP_APART)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# lockstep_check_odr(target...): with LOCKSTEP_CHECK_ODR their links fail where two files define one type differently.
function(lockstep_check_odr)
  foreach(target IN LISTS ARGN)
    if(LOCKSTEP_CHECK_ODR AND TARGET ${target})
      set_target_properties(${target} PROPERTIES LOCKSTEP_COMPARES_TYPES ON)
      target_link_options(${target} PRIVATE -flto=auto -Wodr -Werror=odr)
    endif()
  endforeach()
endfunction()

# lockstep_library(name SOURCES a.cc ... LIBS x y): a static library with the common settings. ALONE: never joined,
# for what applications load.
function(lockstep_library name)
  cmake_parse_arguments(ARG "ALONE" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC lockstep_options ${ARG_LIBS})
  if(NOT ARG_ALONE)
    lockstep_join(${name})
  endif()
endfunction()

# lockstep_unit_test(name [SHARDS n] SOURCES ... LIBS ...): a GoogleTest program and its test unit.NAME, split into n that
# run side by side. Each case is a testcase of build/tests.xml (tests/summary.py).
function(lockstep_unit_test name)
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE lockstep_options ${ARG_LIBS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    LOCKSTEP_BUILD_DIR="${CMAKE_BINARY_DIR}" LOCKSTEP_SHARED_DIR="${LOCKSTEP_SHARED_DIR}")
  # What is tested is in libraries, compiled as ever.
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  set_target_properties(${name} PROPERTIES LOCKSTEP_UNIT_TEST ON)  # Only the links of the programs compare types.
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_UNIT_TESTS ${name})
  lockstep_join(${name})
  string(REGEX REPLACE "^unit_" "" test ${name})
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(suffix)
    if(ARG_SHARDS GREATER 1)
      set(suffix .${shard})
    endif()
    add_test(NAME unit.${test}${suffix}
             COMMAND ${name} --gtest_brief=1 --gtest_output=xml:${CMAKE_BINARY_DIR}/tests/cases/unit.${test}${suffix}.xml)
    set_tests_properties(unit.${test}${suffix} PROPERTIES TIMEOUT 600 LABELS unit
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
