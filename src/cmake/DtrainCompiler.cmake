# What every file of the project is compiled with.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(dtrain_compiler INTERFACE)
target_compile_definitions(dtrain_compiler INTERFACE _GNU_SOURCE)
target_compile_options(dtrain_compiler INTERFACE
    -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<BOOL:${DTRAIN_WERROR}>:-Werror>
    # The same bits on every machine: a product and a sum are rounded twice, never once.
    -ffp-contract=off)

if(DTRAIN_SANITIZE)
    target_compile_options(dtrain_compiler INTERFACE
        -fsanitize=${DTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(dtrain_compiler INTERFACE -fsanitize=${DTRAIN_SANITIZE})
endif()

# dt_add_kernels(): one kernel source, compiled once an instruction set: kernels_<set>.c of the
# current folder. It is vector code already: -O3 would unroll it to four times the size, for
# nothing. Without errno a square root is an instruction.
function(dt_add_kernels)
    set(sets scalar)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        list(APPEND sets avx2 avx512)
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
        list(APPEND sets neon)
    endif()
    set(options_avx2 -mavx2 -mf16c)
    set(options_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mf16c)
    foreach(set IN LISTS sets)
        target_sources(dtrain_objects PRIVATE kernels_${set}.c)
        set_source_files_properties(kernels_${set}.c TARGET_DIRECTORY dtrain_objects
            PROPERTIES COMPILE_OPTIONS "-O2;-fno-math-errno;${options_${set}}")
    endforeach()
endfunction()
