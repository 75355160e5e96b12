# What the machine has. Only zlib is required, and MPI when DTRAIN_MPI is ON.
find_package(ZLIB REQUIRED)

set(DTRAIN_HAVE_MPI 0)
set(DTRAIN_MPI_FLAVOR none)
if(NOT DTRAIN_MPI STREQUAL OFF)
    if(DTRAIN_MPI STREQUAL ON)
        find_package(MPI REQUIRED COMPONENTS C)
    else()
        find_package(MPI COMPONENTS C)
    endif()
endif()
if(MPI_C_FOUND)
    set(DTRAIN_HAVE_MPI 1)
    # Launchers differ in their options: tests/support/mpirun.sh is told which one this is.
    execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version
        OUTPUT_VARIABLE dt_mpiexec_version ERROR_VARIABLE dt_mpiexec_version)
    if(dt_mpiexec_version MATCHES "Open ?MPI|OpenRTE|PRRTE")
        set(DTRAIN_MPI_FLAVOR openmpi)
    elseif(dt_mpiexec_version MATCHES "HYDRA|Intel")
        set(DTRAIN_MPI_FLAVOR hydra)
    else()
        set(DTRAIN_MPI_FLAVOR other)
    endif()
endif()

# Looked for and reported; nothing is built with them yet.
set(DTRAIN_HAVE_CUDA 0)
set(DTRAIN_HAVE_NCCL 0)
find_package(CUDAToolkit QUIET)
find_path(DTRAIN_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(DTRAIN_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(DTRAIN_NCCL_INCLUDE_DIR DTRAIN_NCCL_LIBRARY)
