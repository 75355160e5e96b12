#include "comm/shm/shm_pieces.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"

int dt_shm_pieces_set(dt_shm_pieces_t *pieces, const dt_collective_t *collective)
{
    int num_pieces = collective->num_pieces;
    if (num_pieces > pieces->capacity) {
        dt_free(pieces->begins);
        pieces->capacity = 0;
        pieces->begins = dt_alloc((size_t)num_pieces * sizeof *pieces->begins);
        if (!pieces->begins)
            return -1;
        pieces->capacity = num_pieces;
    }
    pieces->pieces = collective->pieces;
    pieces->num_pieces = num_pieces;
    pieces->element_bytes = dt_dtype_size(collective->reduction.dtype);
    int64_t begin = 0;
    for (int i = 0; i < num_pieces; i++) {
        pieces->begins[i] = begin;
        begin += collective->pieces[i].count;
    }
    return 0;
}

void dt_shm_pieces_free(dt_shm_pieces_t *pieces)
{
    dt_free(pieces->begins);
    *pieces = (dt_shm_pieces_t){0};
}

/* The last piece that begins at `position` or before: of several, those before it are empty. */
static int find(const dt_shm_pieces_t *pieces, int64_t position)
{
    int low = 0, high = pieces->num_pieces;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (pieces->begins[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

dt_shm_part_t dt_shm_pieces_cut(const dt_shm_pieces_t *pieces, dt_span_t span)
{
    dt_shm_part_t part = {.piece = find(pieces, span.lo)};
    part.offset = span.lo - pieces->begins[part.piece];
    int64_t left = pieces->pieces[part.piece].count - part.offset;
    part.count = left < span.hi - span.lo ? left : span.hi - span.lo;
    return part;
}

size_t dt_shm_pieces_bytes(const dt_shm_pieces_t *pieces, dt_span_t span)
{
    return (size_t)(span.hi - span.lo) * pieces->element_bytes;
}

const void *dt_shm_pieces_in(const dt_shm_pieces_t *pieces, dt_shm_part_t part)
{
    return (const uint8_t *)pieces->pieces[part.piece].in +
           (size_t)part.offset * pieces->element_bytes;
}

void *dt_shm_pieces_out(const dt_shm_pieces_t *pieces, dt_shm_part_t part)
{
    return (uint8_t *)pieces->pieces[part.piece].out + (size_t)part.offset * pieces->element_bytes;
}

void dt_shm_pieces_pack(const dt_shm_pieces_t *pieces, dt_span_t span, void *to)
{
    uint8_t *at = to;
    while (span.lo < span.hi) {
        dt_shm_part_t part = dt_shm_pieces_cut(pieces, span);
        size_t bytes = (size_t)part.count * pieces->element_bytes;
        memcpy(at, dt_shm_pieces_in(pieces, part), bytes);
        at += bytes;
        span.lo += part.count;
    }
}

void dt_shm_pieces_unpack(const dt_shm_pieces_t *pieces, dt_span_t span, const void *from)
{
    const uint8_t *at = from;
    while (span.lo < span.hi) {
        dt_shm_part_t part = dt_shm_pieces_cut(pieces, span);
        size_t bytes = (size_t)part.count * pieces->element_bytes;
        memcpy(dt_shm_pieces_out(pieces, part), at, bytes);
        at += bytes;
        span.lo += part.count;
    }
}

void dt_shm_pieces_copy(const dt_shm_pieces_t *pieces, dt_span_t span)
{
    while (span.lo < span.hi) {
        dt_shm_part_t part = dt_shm_pieces_cut(pieces, span);
        const dt_piece_t *piece = &pieces->pieces[part.piece];
        if (piece->out && piece->out != piece->in)
            memcpy(dt_shm_pieces_out(pieces, part), dt_shm_pieces_in(pieces, part),
                   (size_t)part.count * pieces->element_bytes);
        span.lo += part.count;
    }
}
