# How tests are added. Every test has a time limit, 60 seconds unless it says otherwise.
set(DT_TEST_SUPPORT ${PROJECT_SOURCE_DIR}/tests/support)
set(DT_MPIRUN ${DT_TEST_SUPPORT}/mpirun.sh)
# The system's Python first: Debian's numpy belongs to it.
find_program(DT_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(DT_PYTHON NAMES python3)
# For the checks that the headers are C++ too.
find_program(DT_CXX NAMES c++ g++ clang++)
mark_as_advanced(DT_PYTHON DT_CXX)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(CMOCKA IMPORTED_TARGET GLOBAL cmocka)
endif()

# dt_add_unit_test(file [TIMEOUT seconds] [LABELS …] [LINK_OPTIONS …])
# Makes a program of one CMocka source in tests/unit/<dir> and the test unit.<dir>.<name>, where
# test_<name>.c is the file. The program sees the library's internals.
function(dt_add_unit_test file)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;LINK_OPTIONS")
    cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME dir)
    cmake_path(GET file STEM stem)
    string(REGEX REPLACE "^test_" "" name ${stem})
    set(target unit_${dir}_${name})
    add_executable(${target} ${file})
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} OUTPUT_NAME ${stem})
    target_link_libraries(${target} PRIVATE dtrain_internal PkgConfig::CMOCKA)
    target_include_directories(${target} PRIVATE ${DT_TEST_SUPPORT})
    target_link_options(${target} PRIVATE ${arg_LINK_OPTIONS})
    add_test(NAME unit.${dir}.${name} COMMAND ${target})
    dt_set_test_limits(unit.${dir}.${name} "${arg_TIMEOUT}" "unit;${arg_LABELS}")
endfunction()

# dt_add_parallel_test(file RANKS 1 2 … [MPI] [TIMEOUT seconds] [LABELS …] [ARGS …])
# Makes a program of tests/parallel/<file>, linked to the shared library as a user's would be,
# and one test for each number of ranks. MPI: the program makes MPI calls of its own.
function(dt_add_parallel_test file)
    cmake_parse_arguments(PARSE_ARGV 1 arg "MPI" "TIMEOUT" "RANKS;LABELS;ARGS")
    if(NOT DTRAIN_HAVE_MPI)
        return()
    endif()
    cmake_path(GET file STEM stem)
    string(REGEX REPLACE "^test_" "" name ${stem})
    set(target parallel_${name})
    if(NOT TARGET ${target})
        add_executable(${target} ${file})
        set_target_properties(${target} PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} OUTPUT_NAME ${stem})
        target_link_libraries(${target} PRIVATE dtrain dtrain_compiler)
        target_include_directories(${target} PRIVATE ${DT_TEST_SUPPORT})
        if(arg_MPI)
            target_link_libraries(${target} PRIVATE MPI::MPI_C)
        endif()
    endif()
    foreach(ranks IN LISTS arg_RANKS)
        dt_add_mpirun_test(parallel.${name}.np${ranks} RANKS ${ranks}
            TIMEOUT ${arg_TIMEOUT} LABELS parallel ${arg_LABELS}
            COMMAND $<TARGET_FILE:${target}> ${arg_ARGS})
    endforeach()
endfunction()

# dt_add_example_test(name RANKS alone 1 2 … COMMAND program [argument …] [TIMEOUT seconds]
#                     [LABELS …] [ENVIRONMENT NAME=value …])
# Runs an example as users would, once for each number of ranks: example.<name>.np<ranks>; alone
# means without a launcher, which works without MPI too.
function(dt_add_example_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "RANKS;COMMAND;LABELS;ENVIRONMENT")
    list(POP_FRONT arg_COMMAND program)
    if(TARGET ${program})
        set(program $<TARGET_FILE:${program}>)
    endif()
    list(PREPEND arg_COMMAND ${program})
    foreach(ranks IN LISTS arg_RANKS)
        if(ranks STREQUAL alone)
            set(test example.${name}.alone)
            add_test(NAME ${test} COMMAND ${arg_COMMAND})
            dt_set_test_limits(${test} "${arg_TIMEOUT}" "example;${arg_LABELS}")
        elseif(DTRAIN_HAVE_MPI)
            set(test example.${name}.np${ranks})
            dt_add_mpirun_test(${test} RANKS ${ranks} TIMEOUT ${arg_TIMEOUT}
                LABELS example ${arg_LABELS} COMMAND ${arg_COMMAND})
        else()
            continue()
        endif()
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT})
    endforeach()
endfunction()

# dt_add_mpirun_test(name RANKS n COMMAND … [TIMEOUT seconds] [LABELS …])
function(dt_add_mpirun_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS;TIMEOUT" "LABELS;COMMAND")
    add_test(NAME ${name} COMMAND ${DT_MPIRUN} ${DTRAIN_MPI_FLAVOR} ${MPIEXEC_EXECUTABLE}
        ${arg_RANKS} ${arg_COMMAND})
    dt_set_test_limits(${name} "${arg_TIMEOUT}" "${arg_LABELS}")
    set_tests_properties(${name} PROPERTIES PROCESSORS ${arg_RANKS})
    # MPI libraries keep memory until exit and are not instrumented.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "LSAN_OPTIONS=detect_leaks=0")
endfunction()

# Exit status 77 means: skipped, and the output says why.
function(dt_set_test_limits name timeout labels)
    if(NOT timeout)
        set(timeout 60)
    endif()
    set_tests_properties(${name} PROPERTIES
        TIMEOUT ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77)
endfunction()
