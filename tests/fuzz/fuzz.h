/*
 * fuzz.h - what is fuzzed: whatever reads bytes that may come from outside. A target is any bytes'
 * way through one decoder; it must neither crash nor leak, and what is checked in it must hold.
 */
#ifndef DT_TEST_FUZZ_H
#define DT_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with a text, as a crash does, when something does not hold. */
#define FUZZ_CHECK(condition)                                                          \
    do {                                                                               \
        if (!(condition)) {                                                            \
            __builtin_printf("%s:%d: %s is not so\n", __FILE__, __LINE__, #condition); \
            __builtin_trap();                                                          \
        }                                                                              \
    } while (0)

#endif
