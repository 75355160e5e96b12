/*
 * fp_mode.h - the calling thread's floating point mode, put to the default for a while: a program
 * built with -ffast-math, or a framework, may have set its threads to flush subnormals to zero or
 * to round otherwise, and which thread computes must not be seen in the bits.
 */
#ifndef DT_BASE_FP_MODE_H
#define DT_BASE_FP_MODE_H

#include <stdint.h>

typedef uint64_t dt_fp_mode_t;

/* To nearest, nothing flushed, no exception taken. Returns what to leave with. */
dt_fp_mode_t dt_fp_mode_enter(void);
void dt_fp_mode_leave(dt_fp_mode_t mode);

#endif
