# What every file of the project is compiled with.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(dtrain_compiler INTERFACE)
target_compile_definitions(dtrain_compiler INTERFACE _GNU_SOURCE)
target_compile_options(dtrain_compiler INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes
    $<$<BOOL:${DTRAIN_WERROR}>:-Werror>
    # The same bits on every machine: a product and a sum are rounded twice, never once.
    -ffp-contract=off)

if(DTRAIN_SANITIZE)
    target_compile_options(dtrain_compiler INTERFACE
        -fsanitize=${DTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(dtrain_compiler INTERFACE -fsanitize=${DTRAIN_SANITIZE})
endif()
