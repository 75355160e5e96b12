/* judge.h - which rank holds the others up. */
#ifndef DT_TOOLS_FLIGHT_JUDGE_H
#define DT_TOOLS_FLIGHT_JUDGE_H

#include "tools/flight/dump.h"

/* An operation that some ranks wait in. */
typedef struct flight_wait {
    const flight_op_t *op;   /* one rank's record of it */
    unsigned char *is_there; /* by rank: it has come as far */
    unsigned char *is_late;  /* by rank: it has not, though it takes part */
    int is_agreed;           /* all have submitted it, and late ones have not begun or finished */
} flight_wait_t;

/* Where ranks went different ways. */
typedef struct flight_fork {
    int set;
    const flight_op_t *common; /* the last that was agreed on by all; NULL: none that is known */
    const flight_op_t **first_after; /* by rank: what it has submitted after; NULL: nothing */
} flight_fork_t;

typedef struct flight_verdict {
    flight_wait_t *waits;
    size_t num_waits;
    flight_fork_t fork;
    int has_fork;
    int *blame;  /* by rank: how many ranks wait for it, over all operations */
    int *behind; /* the ranks with the most, num_behind of them */
    int num_behind;
    int lost; /* the rank whose loss ended the world; -1: none */
} flight_verdict_t;

/* 0, or -1 when memory ran out. */
int flight_judge(const flight_dump_t *dump, flight_verdict_t *verdict);
void flight_verdict_free(flight_verdict_t *verdict);

#endif
