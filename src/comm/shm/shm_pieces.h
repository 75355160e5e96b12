/*
 * shm_pieces.h - a collective's pieces as one vector: which parts of them an interval of it is.
 * Intervals are spans of elements.
 */
#ifndef DT_COMM_SHM_SHM_PIECES_H
#define DT_COMM_SHM_SHM_PIECES_H

#include "comm/algo/schedule.h"
#include "comm/backend.h"

typedef struct dt_shm_pieces {
    const dt_piece_t *pieces;
    int num_pieces;
    size_t element_bytes;
    int64_t *begins; /* the vector's element at which each piece begins */
    int capacity;    /* of begins */
    int64_t *copied; /* the collective's */
} dt_shm_pieces_t;

/* What a span has in common with one piece. */
typedef struct dt_shm_part {
    int piece;
    int64_t offset; /* elements from the start of the piece */
    int64_t count;  /* 0: the span has no more parts */
    int64_t begin;  /* elements from the start of the span */
    int64_t left;   /* elements of the span behind this part */
} dt_shm_part_t;

/* Takes a collective's pieces up; what the struct had before is used again. -1: no memory. */
int dt_shm_pieces_set(dt_shm_pieces_t *pieces, const dt_collective_t *collective);
void dt_shm_pieces_free(dt_shm_pieces_t *pieces);

/* The first part of a span, and the one after `part`. None has count 0 but the end. */
dt_shm_part_t dt_shm_pieces_first(const dt_shm_pieces_t *pieces, dt_span_t span);
void dt_shm_pieces_next(const dt_shm_pieces_t *pieces, dt_shm_part_t *part);

size_t dt_shm_pieces_bytes(const dt_shm_pieces_t *pieces, dt_span_t span);

/* The memory of a part. */
const void *dt_shm_pieces_in(const dt_shm_pieces_t *pieces, dt_shm_part_t part);
void *dt_shm_pieces_out(const dt_shm_pieces_t *pieces, dt_shm_part_t part);

/* Copies the span of all inputs to `to`; from `from` into the span of all outputs. */
void dt_shm_pieces_pack(const dt_shm_pieces_t *pieces, dt_span_t span, void *to);
void dt_shm_pieces_unpack(const dt_shm_pieces_t *pieces, dt_span_t span, const void *from);

/* Copies the span from inputs to outputs, except where they are the same or there is none. */
void dt_shm_pieces_copy(const dt_shm_pieces_t *pieces, dt_span_t span);

#endif
