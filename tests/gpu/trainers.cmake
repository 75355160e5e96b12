# The trainers on GPUs and their parts, on the stand-ins.
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

# dt_add_trainer_program(name sources …): one process, no library; run.sh runs it on a GPU.
function(dt_add_trainer_program name)
    add_executable(gpu_${name} test_${name}.c ${ARGN})
    set_target_properties(gpu_${name} PROPERTIES LINKER_LANGUAGE CXX
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} OUTPUT_NAME ${name})
    target_include_directories(gpu_${name} PRIVATE
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
    target_link_libraries(gpu_${name} PRIVATE
        mlp_kernels mlp_common dtrain_compiler CUDA::cublasLt PkgConfig::CMOCKA m)
    if(NOT TARGET standin_cublaslt)
        return()
    endif()
    add_test(NAME gpu.standin.${name} COMMAND gpu_${name})
    dt_set_test_limits(gpu.standin.${name} 60 "cuda;standin")
    set_tests_properties(gpu.standin.${name} PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1
        ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${PROJECT_BINARY_DIR}/standin)
endfunction()

dt_add_trainer_program(capture)
dt_add_trainer_program(trainer_parts ${PROJECT_SOURCE_DIR}/examples/mlp/cuda/gpu_product.c
    ${PROJECT_SOURCE_DIR}/src/reduce/half.c)

if(NOT TARGET standin_cublaslt OR NOT DT_PYTHON)
    return()
endif()
foreach(ranks IN ITEMS 1 2 4)
    foreach(case IN ITEMS cublas fp32 fashion)
        dt_add_trainer_case(${case} ${ranks})
    endforeach()
endforeach()
dt_add_trainer_case(precision 2)
dt_add_trainer_case(plain 1)
dt_add_trainer_case(plain 2)
dt_add_trainer_case(short 1)
dt_add_trainer_case(delayed 2)
dt_add_trainer_case(fails 1)
dt_add_trainer_case(fails 2)
