include_guard()

# lockstep_all_runs(unit_NAME suite.case ...): in the soak, these cases of the program with all their runs (all_runs.h).
function(lockstep_all_runs program)
  string(REGEX REPLACE "^unit_" "simulated." test ${program})
  list(JOIN ARGN : cases)
  add_test(NAME ${test} COMMAND ${program} --gtest_brief=1 --gtest_filter=${cases}
           --gtest_output=xml:${CMAKE_BINARY_DIR}/tests/cases/${test}.xml)
  set_tests_properties(${test} PROPERTIES TIMEOUT 1200 ENVIRONMENT LOCKSTEP_ALL_RUNS=1)
  lockstep_soak(simulated TESTS ${test})
endfunction()
