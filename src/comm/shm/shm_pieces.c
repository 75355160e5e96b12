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
    pieces->copied = collective->copied;
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

/* Gives the part as much of what is left as its piece has. */
static void take(const dt_shm_pieces_t *pieces, dt_shm_part_t *part)
{
    int64_t there = pieces->pieces[part->piece].count - part->offset;
    part->count = there < part->left ? there : part->left;
    part->left -= part->count;
}

dt_shm_part_t dt_shm_pieces_first(const dt_shm_pieces_t *pieces, dt_span_t span)
{
    dt_shm_part_t part = {.left = span.hi - span.lo};
    if (part.left == 0)
        return part;
    part.piece = find(pieces, span.lo);
    part.offset = span.lo - pieces->begins[part.piece];
    take(pieces, &part);
    return part;
}

void dt_shm_pieces_next(const dt_shm_pieces_t *pieces, dt_shm_part_t *part)
{
    part->begin += part->count;
    part->offset = 0;
    part->count = 0;
    while (part->left > 0 && part->count == 0) {
        part->piece++;
        take(pieces, part);
    }
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

static size_t part_bytes(const dt_shm_pieces_t *pieces, dt_shm_part_t part)
{
    return (size_t)part.count * pieces->element_bytes;
}

static void count(const dt_shm_pieces_t *pieces, dt_span_t span)
{
    if (pieces->copied)
        *pieces->copied += (int64_t)dt_shm_pieces_bytes(pieces, span);
}

void dt_shm_pieces_pack(const dt_shm_pieces_t *pieces, dt_span_t span, void *to)
{
    uint8_t *at = to;
    count(pieces, span);
    dt_shm_part_t part = dt_shm_pieces_first(pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(pieces, &part)) {
        memcpy(at, dt_shm_pieces_in(pieces, part), part_bytes(pieces, part));
        at += part_bytes(pieces, part);
    }
}

void dt_shm_pieces_unpack(const dt_shm_pieces_t *pieces, dt_span_t span, const void *from)
{
    const uint8_t *at = from;
    count(pieces, span);
    dt_shm_part_t part = dt_shm_pieces_first(pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(pieces, &part)) {
        memcpy(dt_shm_pieces_out(pieces, part), at, part_bytes(pieces, part));
        at += part_bytes(pieces, part);
    }
}

void dt_shm_pieces_copy(const dt_shm_pieces_t *pieces, dt_span_t span)
{
    dt_shm_part_t part = dt_shm_pieces_first(pieces, span);
    for (; part.count > 0; dt_shm_pieces_next(pieces, &part)) {
        const dt_piece_t *piece = &pieces->pieces[part.piece];
        if (piece->out && piece->out != piece->in)
            memcpy(dt_shm_pieces_out(pieces, part), dt_shm_pieces_in(pieces, part),
                   part_bytes(pieces, part));
    }
}
