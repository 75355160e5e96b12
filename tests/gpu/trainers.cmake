# The trainers on GPUs, on the stand-ins.
function(dt_add_trainer_case case ranks)
    set(test gpu.standin.trainer_${case}.np${ranks})
    add_test(NAME ${test} COMMAND ${DT_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/test_trainers.py
        ${DT_MPIRUN} ${DTRAIN_MPI_FLAVOR} ${MPIEXEC_EXECUTABLE} $<TARGET_FILE_DIR:mlp_cuda>
        ${case}.np${ranks})
    dt_set_test_limits(${test} 300 "cuda;standin")
    set_tests_properties(${test} PROPERTIES PROCESSORS ${ranks}
        ENVIRONMENT "LSAN_OPTIONS=detect_leaks=0"
        ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${PROJECT_BINARY_DIR}/standin)
endfunction()

foreach(ranks IN ITEMS 1 2 4)
    foreach(case IN ITEMS cublas fp32 fashion)
        dt_add_trainer_case(${case} ${ranks})
    endforeach()
endforeach()
dt_add_trainer_case(precision 2)
dt_add_trainer_case(plain 1)
dt_add_trainer_case(plain 2)
dt_add_trainer_case(delayed 2)
dt_add_trainer_case(fails 1)
dt_add_trainer_case(fails 2)
