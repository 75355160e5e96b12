#include "comm/shm/shm_layout.h"

#include "comm/shm/shm_eager.h"
#include "comm/shm/shm_mail.h"

/*
 * Measured on 2 cores. A vector in library memory is as fast in one round as shared out (DIRECT) at
 * 1.5 KiB, for 2 and 4 ranks. One that is not, in one round as through the arena: at more than 32
 * KiB for 2 ranks and about 24 KiB for 4, since every rank reduces all of it.
 */
#define TINY_BYTES_DEFAULT ((size_t)2 << 10)
#define SMALL_TRAFFIC ((size_t)64 << 10) /* bytes times ranks */

/*
 * Chunks of 32 to 256 KiB are equal for 2 ranks and large vectors. For 4 ranks 16 and 32 KiB are
 * the best: what matters is that all slots of a rank stay in its core's second-level cache. More
 * slots than 4 gain nothing, 2 are slower for short vectors.
 */
#define CHUNK_TRAFFIC ((size_t)128 << 10)
#define CHUNK_BYTES_MIN ((size_t)4 << 10)
#define SLOTS_DEFAULT 4
#define COPY_BYTES_MAX ((size_t)64 << 10)
#define PULL_BYTES_DEFAULT ((size_t)32 << 10)

/*
 * Across nodes a chunk is a message to each of them, and all slots' chunks are on their way at
 * once: what matters is that messages are long enough to be worth their cost, and enough to fill
 * the way.
 */
#define CROSS_TRAFFIC ((size_t)512 << 10)
#define CROSS_CHUNK_BYTES_MIN ((size_t)32 << 10)
#define CROSS_CHUNK_BYTES_MAX ((size_t)128 << 10)
#define CROSS_SLOTS_DEFAULT 8
#define SLOTS_MAX 64

/* What of a heap is left to allocate begins at a multiple of this. */
#define HUGE_PAGE ((size_t)2 << 20)

/* Sets have at most this part of a heap, and a set no fewer descriptors. */
#define SETS_PART 4
#define DESCRIPTORS_MIN 64

/* Of an element, at most. */
#define ELEMENT_BYTES ((size_t)8)

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t at_least(size_t bytes, size_t least)
{
    return bytes < least ? least : bytes;
}

static dt_shm_layout_t default_sizes(size_t size, int num_nodes)
{
    dt_shm_layout_t layout = {.slots = SLOTS_DEFAULT,
                              .descriptors = DT_SHM_DESCRIPTORS,
                              .tiny_bytes = TINY_BYTES_DEFAULT,
                              .small_bytes = SMALL_TRAFFIC / size,
                              .chunk_bytes = at_least(CHUNK_TRAFFIC / size, CHUNK_BYTES_MIN),
                              .pull_bytes = PULL_BYTES_DEFAULT};
    if (num_nodes == 0)
        return layout;
    /* Every vector is shared out, and has a header. */
    layout.tiny_bytes = layout.small_bytes = 0;
    layout.slots = CROSS_SLOTS_DEFAULT;
    layout.chunk_bytes = at_least(CROSS_TRAFFIC / size, CROSS_CHUNK_BYTES_MIN);
    if (layout.chunk_bytes > CROSS_CHUNK_BYTES_MAX)
        layout.chunk_bytes = CROSS_CHUNK_BYTES_MAX;
    return layout;
}

static dt_shm_layout_t choose_sizes(const dt_shm_tuning_t *tuning, int size, int num_nodes)
{
    dt_shm_tuning_t wanted = tuning ? *tuning : (dt_shm_tuning_t){0};
    dt_shm_layout_t layout = default_sizes((size_t)size, num_nodes);
    if (num_nodes > 0)
        wanted.tiny_bytes = wanted.small_bytes = 0;
    if (wanted.tiny_bytes != 0)
        layout.tiny_bytes = wanted.tiny_bytes > 0 ? (size_t)wanted.tiny_bytes : 0;
    if (wanted.small_bytes != 0)
        layout.small_bytes = wanted.small_bytes > 0 ? (size_t)wanted.small_bytes : 0;
    if (wanted.chunk_bytes > 0)
        layout.chunk_bytes = (size_t)wanted.chunk_bytes;
    if (wanted.pull_bytes != 0)
        layout.pull_bytes = wanted.pull_bytes > 0 ? (size_t)wanted.pull_bytes : SIZE_MAX;
    if (wanted.slots > 0)
        layout.slots = wanted.slots < SLOTS_MAX ? wanted.slots : SLOTS_MAX;
    /* An element for each node, of a reduce-scatter. */
    layout.chunk_bytes = at_least(layout.chunk_bytes, (size_t)num_nodes * ELEMENT_BYTES);
    return layout;
}

/* Derives all else from the sizes. */
static void place(dt_shm_layout_t *layout, size_t size, size_t head_bytes, size_t eager_bytes)
{
    layout->small_bytes = at_least(layout->small_bytes, layout->tiny_bytes);
    layout->chunk_bytes = round_up(layout->chunk_bytes, DT_SHM_LINE);
    layout->input_bytes = at_least(layout->chunk_bytes * (size > 1 ? size - 1 : 1),
                                   round_up(layout->small_bytes, DT_SHM_LINE));
    layout->slot_bytes = layout->input_bytes + layout->chunk_bytes;
    layout->head_bytes = head_bytes;
    layout->pairs_offset = round_up(head_bytes, DT_SHM_LINE);
    layout->copies_offset = layout->pairs_offset + size * sizeof(dt_shm_pair_t);
    layout->copy_bytes =
        layout->chunk_bytes < COPY_BYTES_MAX ? layout->chunk_bytes : COPY_BYTES_MAX;
    layout->arena_offset = layout->copies_offset + size * DT_SHM_ENTRIES * layout->copy_bytes;
    layout->eager_offset =
        round_up(layout->arena_offset + (size_t)layout->slots * layout->slot_bytes, DT_SHM_PAGE);
    layout->end = round_up(layout->eager_offset + eager_bytes, DT_SHM_PAGE);
}

dt_shm_layout_t dt_shm_layout_make(const dt_shm_tuning_t *tuning, int size, int num_nodes)
{
    dt_shm_layout_t layout = choose_sizes(tuning, size, num_nodes);
    place(&layout, (size_t)size, DT_SHM_MAIL_OFFSET + sizeof(dt_shm_mail_t), DT_SHM_EAGER_BYTES);
    return layout;
}

static size_t board_bytes(int descriptors)
{
    return sizeof(dt_shm_board_t) + (size_t)descriptors * sizeof(dt_shm_descriptor_t);
}

static size_t half(size_t bytes)
{
    return bytes / 2;
}

int dt_shm_layout_fit(const dt_shm_tuning_t *tuning, int size, size_t room, dt_shm_layout_t *layout)
{
    dt_shm_layout_t made = choose_sizes(tuning, size, 0);
    for (;;) {
        place(&made, (size_t)size, board_bytes(made.descriptors), 0);
        if (made.end <= room)
            break;
        if (made.descriptors > DESCRIPTORS_MIN && made.head_bytes > room / SETS_PART) {
            made.descriptors /= 2;
        } else if (made.chunk_bytes > DT_SHM_LINE || made.small_bytes > DT_SHM_LINE) {
            made.chunk_bytes = half(made.chunk_bytes);
            made.small_bytes = half(made.small_bytes);
            made.tiny_bytes =
                made.tiny_bytes < made.small_bytes ? made.tiny_bytes : made.small_bytes;
        } else if (made.slots > 1) {
            made.slots /= 2;
        } else {
            return -1;
        }
    }
    *layout = made;
    return 0;
}

size_t dt_shm_layout_set_bytes(const dt_shm_layout_t *world, size_t heap_bytes)
{
    size_t most = heap_bytes / SETS_PART / DT_SUBSETS_MAX / DT_SHM_PAGE * DT_SHM_PAGE;
    return world->eager_offset < most ? world->eager_offset : most;
}

size_t dt_shm_layout_free_offset(const dt_shm_layout_t *world, size_t heap_bytes)
{
    return round_up(world->end + DT_SUBSETS_MAX * dt_shm_layout_set_bytes(world, heap_bytes),
                    HUGE_PAGE);
}
