/*
 * boards.h - memory in which each rank shows the other ranks of its node what it is doing: they
 * can read it also when the rank is stuck, or has died. What is in it is the engine's affair.
 */
#ifndef DT_COMM_BOARDS_H
#define DT_COMM_BOARDS_H

#include <stddef.h>

/* Of one rank: whole pages, zeros at first, of which only what is touched costs memory. */
#define DT_BOARD_BYTES ((size_t)256 << 10)

/* All zeros: there are none. */
typedef struct dt_boards {
    void **at; /* by rank: its board, NULL where it is out of sight; or NULL: there are none */
    void (*release)(void *memory); /* gives back what the boards lie in */
    void *memory;
} dt_boards_t;

/* The board of a rank, or NULL. */
void *dt_boards_get(const dt_boards_t *boards, int rank);

void dt_boards_free(dt_boards_t *boards);

#endif
