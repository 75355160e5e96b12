/*
 * stamp.h - at which step of its program a rank submits an operation that comes with every step.
 *
 * Name and signature of such an operation are the same in each step, and so is its id. The stamp is
 * what tells the steps apart: it travels beside the id, and ranks must agree on it as they must on
 * a signature, so that what belongs to different steps is never combined.
 */
#ifndef DT_CORE_STAMP_H
#define DT_CORE_STAMP_H

#include <stddef.h>
#include <stdint.h>

/* How the step came about on this rank. */
typedef enum dt_stamp_kind {
    DT_STAMP_USUAL = 0,
    DT_STAMP_EMPTY = 1, /* the program brought nothing: it ends a step more than others */
    DT_STAMP_EARLY = 2  /* it brought all before it had ended the step before */
} dt_stamp_kind_t;

typedef struct dt_stamp {
    uint32_t step;   /* from 1; 0: the operation has no stamp */
    uint16_t passes; /* over which the step accumulates */
    uint16_t kind;   /* dt_stamp_kind_t */
} dt_stamp_t;

static inline int dt_stamp_equal(dt_stamp_t a, dt_stamp_t b)
{
    return a.step == b.step && a.passes == b.passes && a.kind == b.kind;
}

/* Writes "7 (of 2 passes)" for a text that sets it against `other`. */
void dt_stamp_describe(dt_stamp_t stamp, dt_stamp_t other, char *text, size_t cap);

#endif
