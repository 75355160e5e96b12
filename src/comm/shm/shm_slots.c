#include "comm/shm/shm_slots.h"

/* ---- Slots ------------------------------------------------------------------------------- */

uint8_t *dt_shm_slot(const dt_shm_stream_t *stream, int rank, uint64_t chunk)
{
    const dt_shm_layout_t *layout = &stream->layout;
    uint64_t slot = chunk % (uint64_t)layout->slots;
    return (uint8_t *)stream->boards[rank] + layout->arena_offset + slot * layout->slot_bytes;
}

uint8_t *dt_shm_input(const dt_shm_stream_t *stream, int rank, int owner, uint64_t chunk)
{
    int place = owner < rank ? owner : owner - 1;
    return dt_shm_slot(stream, rank, chunk) + (size_t)place * stream->layout.chunk_bytes;
}

uint8_t *dt_shm_result(const dt_shm_stream_t *stream, int rank, uint64_t chunk)
{
    return dt_shm_slot(stream, rank, chunk) + stream->layout.input_bytes;
}

dt_shm_pair_t *dt_shm_pair(const dt_shm_stream_t *stream, int rank, int other)
{
    uint8_t *region = (uint8_t *)stream->boards[rank];
    return (dt_shm_pair_t *)(region + stream->layout.pairs_offset) + other;
}

uint8_t *dt_shm_copy(const dt_shm_stream_t *stream, int other, uint64_t entry)
{
    size_t index = (size_t)other * DT_SHM_ENTRIES + entry % DT_SHM_ENTRIES;
    return (uint8_t *)stream->boards[stream->rank] + stream->layout.copies_offset +
           index * stream->layout.copy_bytes;
}

int dt_shm_slot_is_free(dt_shm_stream_t *stream, dt_shm_event_t event, uint64_t chunk)
{
    uint64_t slots = (uint64_t)stream->layout.slots;
    return chunk - stream->base < slots || dt_shm_stream_reached(stream, event, chunk - slots + 1);
}

/* ---- Cutting ----------------------------------------------------------------------------- */

dt_span_t dt_shm_all(const dt_shm_task_t *task)
{
    return (dt_span_t){0, task->collective.count};
}

dt_span_t dt_shm_share(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int rank)
{
    return dt_schedule_share(task->collective.count, stream->size, rank);
}

dt_span_t dt_shm_segment(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int rank,
                         uint64_t chunk)
{
    return dt_schedule_cut(dt_shm_share(stream, task, rank), task->segment,
                           (int64_t)(chunk - task->first));
}

dt_span_t dt_shm_part_of(const dt_shm_task_t *task, const int64_t *places, int rank, uint64_t chunk)
{
    dt_span_t part = {places[rank], places[rank + 1]};
    return dt_schedule_cut(part, task->segment, (int64_t)(chunk - task->first));
}

dt_span_t dt_shm_relayed(const dt_shm_task_t *task, uint64_t chunk)
{
    return dt_schedule_cut(dt_shm_all(task), task->segment, (int64_t)(chunk - task->first));
}

static int64_t cut_shares(const dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    dt_span_t longest = dt_shm_share(stream, task, 0);
    task->segment =
        dt_schedule_segment(task->collective.count, stream->size, task->pieces.element_bytes,
                            (int64_t)stream->layout.chunk_bytes);
    return dt_schedule_num_segments(longest.hi - longest.lo, task->segment);
}

/* On the way to other nodes a chunk is in a slot's result, which has room for less. */
static int64_t cut_relay(const dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    const dt_shm_layout_t *layout = &stream->layout;
    int64_t room = (int64_t)(stream->cross ? layout->chunk_bytes : layout->input_bytes);
    int64_t count = task->collective.count;
    task->segment = dt_schedule_segment(count, 1, task->pieces.element_bytes, room);
    return dt_schedule_num_segments(count, task->segment);
}

/* Short parts are cut as well, so that some are reduced while others are filled; but not shorter.
 */
#define CUT_MIN (INT64_C(16) << 10)
#define CUTS 4

/* Of the ranks' parts. Across nodes a chunk has a segment of each node's. */
static int64_t cut_parts(const dt_shm_stream_t *stream, dt_shm_task_t *task, const int64_t *places)
{
    int num_nodes = stream->cross ? stream->cross->num_nodes : 1;
    int64_t room = (int64_t)stream->layout.chunk_bytes / num_nodes;
    int64_t longest = dt_schedule_longest(places, stream->size * num_nodes);
    int64_t cut = longest / CUTS * (int64_t)task->pieces.element_bytes;
    if (num_nodes == 1 && room > CUT_MIN && cut < room)
        room = cut > CUT_MIN ? cut : CUT_MIN;
    task->segment = num_nodes == 1
                        ? dt_schedule_segment(longest, 1, task->pieces.element_bytes, room)
                        : room / (int64_t)task->pieces.element_bytes;
    return dt_schedule_num_segments(longest, task->segment);
}

uint64_t dt_shm_task_cut(const dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    int64_t num_chunks = 1;
    if (task->path == DT_SHM_RELAY)
        num_chunks = cut_relay(stream, task);
    else if (task->path == DT_SHM_SCATTER)
        num_chunks = cut_parts(stream, task, task->in_places);
    else if (task->path == DT_SHM_GATHER)
        num_chunks = cut_parts(stream, task, task->out_places);
    else if (task->path == DT_SHM_ARENA || (task->path == DT_SHM_DIRECT && stream->cross))
        num_chunks = cut_shares(stream, task);
    return num_chunks > 0 ? (uint64_t)num_chunks : 1;
}
