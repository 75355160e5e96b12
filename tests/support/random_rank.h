/* random_rank.h - carries out one rank's part of a random program, and checks what comes of it. */
#ifndef DT_TEST_RANDOM_RANK_H
#define DT_TEST_RANDOM_RANK_H

#include "engine_world.h"

/* For engine_run, whose argument is the program_t of random_program.h. Checks say seed, round and
 * operation. */
void random_rank_run(engine_rank_t *self);

#endif
