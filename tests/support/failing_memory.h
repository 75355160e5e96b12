/*
 * failing_memory.h - counts what is allocated, and lets an allocation fail. A test program that
 * uses it is linked by dt_add_core_test of tests/unit/core/CMakeLists.txt, which puts these
 * functions in place of base/memory.h's. One thread only, unless nothing is to fail.
 */
#ifndef DT_TEST_FAILING_MEMORY_H
#define DT_TEST_FAILING_MEMORY_H

/* Allocations that are not freed yet. */
int memory_live(void);

/* The n-th allocation from now on fails (1: the next), and all after it; 0: none does. */
void memory_fail_at(int n);

/* 1 when an allocation has failed since memory_fail_at was called. */
int memory_has_failed(void);

#endif
