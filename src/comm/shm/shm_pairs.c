/*
 * Exchange within a node. A rank knows what it has for each other one and what comes from it, and
 * nothing of other pairs; so a pair has a channel of its own: entries, each with some of the bytes,
 * which the sender makes as the receiver takes them. Bytes in the sender's heap, and long ones that
 * the receiver can read, are one entry, and lie where they are; others are copied, some at a time.
 * A rank never waits for one that it has nothing to exchange with.
 */
#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "comm/shm/shm_slots.h"
#include "comm/shm/shm_stream.h"

/* Bytes that are moved at a time, of all pairs together: so that a call takes no longer than it
 * may, but of each enough for a call of the kernel to be worth it. */
#define SWEEP_BYTES ((uint64_t)2 << 20)
#define STEP_BYTES_MIN ((uint64_t)128 << 10)

static uint64_t bytes_at(const dt_shm_task_t *task, int64_t element)
{
    return (uint64_t)element * task->pieces.element_bytes;
}

/* What goes to a rank begins here in the input: of an allgather, to all the same. */
static int64_t first_to(const dt_shm_task_t *task, int peer)
{
    return task->collective.kind == DT_ALLGATHER ? 0 : task->in_places[peer];
}

static uint64_t bytes_to(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int peer)
{
    if (task->collective.kind == DT_ALLGATHER)
        return bytes_at(task, task->collective.counts[stream->rank]);
    return bytes_at(task, task->in_places[peer + 1] - task->in_places[peer]);
}

static uint64_t bytes_from(const dt_shm_task_t *task, int peer)
{
    return bytes_at(task, task->out_places[peer + 1] - task->out_places[peer]);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t step_bytes(const dt_shm_stream_t *stream)
{
    uint64_t share = SWEEP_BYTES / (uint64_t)stream->size;
    return share > STEP_BYTES_MIN ? share : STEP_BYTES_MIN;
}

static void begin(dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    for (int peer = 0; peer < stream->size; peer++)
        stream->channels[peer].sent_bytes = stream->channels[peer].taken_bytes = 0;
    for (int peer = 0; peer < stream->size; peer++)
        stream->channels[peer].is_lent = 0;
    stream->copied_bytes = 0;
    task->has_begun = 1;
}

/* ---- Send -------------------------------------------------------------------------------- */

/* Makes an entry of the next bytes, `left` of them at most, and returns how many it has. */
static uint64_t make_entry(dt_shm_stream_t *stream, const dt_shm_task_t *task, int peer,
                           const uint8_t *from, uint64_t left)
{
    dt_shm_channel_t *channel = &stream->channels[peer];
    dt_shm_entry_t *entry =
        &dt_shm_pair(stream, stream->rank, peer)->entries[channel->sent % DT_SHM_ENTRIES];
    int is_pulled =
        !task->reachable && left >= stream->layout.pull_bytes && dt_shm_pull_works(stream) == 1;
    channel->is_lent |= task->reachable || is_pulled;
    *entry = (dt_shm_entry_t){(uint64_t)(uintptr_t)from, left, (uint64_t)is_pulled};
    if (is_pulled)
        return left;
    if (!task->reachable) {
        uint8_t *copy = dt_shm_copy(stream, peer, channel->sent);
        entry->bytes = least(left, stream->layout.copy_bytes);
        memcpy(copy, from, entry->bytes);
        from = copy;
        stream->budget -= (int64_t)entry->bytes;
    }
    entry->place = (uint64_t)((uintptr_t)from - (uintptr_t)stream->heaps[stream->rank]);
    return entry->bytes;
}

static dt_shm_step_t send(dt_shm_stream_t *stream, const dt_shm_task_t *task, int peer)
{
    dt_shm_channel_t *channel = &stream->channels[peer];
    uint64_t left = bytes_to(stream, task, peer) - channel->sent_bytes;
    if (left == 0 && !channel->is_lent)
        return DT_SHM_DONE;
    uint64_t taken =
        atomic_load_explicit(&dt_shm_pair(stream, peer, stream->rank)->taken, memory_order_acquire);
    if (left == 0)
        return taken == channel->sent ? DT_SHM_DONE : DT_SHM_WAITS;
    if (channel->sent - taken == DT_SHM_ENTRIES)
        return DT_SHM_WAITS;
    const uint8_t *from = (const uint8_t *)task->collective.pieces[0].in +
                          bytes_at(task, first_to(task, peer)) + channel->sent_bytes;
    dt_fault_point(DT_FAULT_PACK);
    channel->sent_bytes += make_entry(stream, task, peer, from, left);
    atomic_store_explicit(&dt_shm_pair(stream, stream->rank, peer)->sent, ++channel->sent,
                          memory_order_release);
    return DT_SHM_MOVED;
}

/* ---- Take -------------------------------------------------------------------------------- */

static dt_shm_step_t take(dt_shm_stream_t *stream, const dt_shm_task_t *task, int peer)
{
    dt_shm_channel_t *channel = &stream->channels[peer];
    const dt_shm_pair_t *pair = dt_shm_pair(stream, peer, stream->rank);
    uint64_t left = bytes_from(task, peer) - channel->taken_bytes;
    if (left == 0)
        return DT_SHM_DONE;
    if (atomic_load_explicit(&pair->sent, memory_order_acquire) == channel->taken)
        return DT_SHM_WAITS;
    dt_shm_entry_t entry = pair->entries[channel->taken % DT_SHM_ENTRIES];
    if (entry.bytes - channel->part > left) {
        stream->status = dt_fail(DTRAIN_ERR_INTERNAL,
                                 "local rank %d sends more than the %llu bytes that were agreed",
                                 peer, (unsigned long long)bytes_from(task, peer));
        return DT_SHM_WAITS;
    }
    uint64_t bytes = least(entry.bytes - channel->part, step_bytes(stream));
    uint8_t *to = (uint8_t *)task->collective.pieces[0].out +
                  bytes_at(task, task->out_places[peer]) + channel->taken_bytes;
    dt_fault_point(DT_FAULT_UNPACK);
    if (!entry.is_private)
        memcpy(to, stream->heaps[peer] + entry.place + channel->part, bytes);
    else if (dt_shm_pull(stream, peer, to, entry.place + channel->part, bytes) != DT_SHM_DONE)
        return DT_SHM_WAITS;
    stream->budget -= (int64_t)bytes;
    channel->taken_bytes += bytes;
    channel->part += bytes;
    if (channel->part == entry.bytes) {
        channel->part = 0;
        atomic_store_explicit(&dt_shm_pair(stream, stream->rank, peer)->taken, ++channel->taken,
                              memory_order_release);
    }
    return DT_SHM_MOVED;
}

/* ---- All pairs --------------------------------------------------------------------------- */

static dt_shm_step_t copy_own(dt_shm_stream_t *stream, const dt_shm_task_t *task)
{
    int rank = stream->rank;
    uint8_t *to = (uint8_t *)task->collective.pieces[0].out +
                  bytes_at(task, task->out_places[rank]) + stream->copied_bytes;
    const uint8_t *from = (const uint8_t *)task->collective.pieces[0].in +
                          bytes_at(task, first_to(task, rank)) + stream->copied_bytes;
    uint64_t bytes = least(bytes_to(stream, task, rank) - stream->copied_bytes, step_bytes(stream));
    if (bytes == 0 || to == from) /* in place: an allgather */
        return DT_SHM_DONE;
    memcpy(to, from, bytes);
    stream->budget -= (int64_t)bytes;
    stream->copied_bytes += bytes;
    return DT_SHM_MOVED;
}

/* What pairs a peer left behind means nothing before it has opened its region. */
static int is_open(const dt_shm_stream_t *stream, int peer)
{
    return dt_shm_stream_rank_reached(stream, peer, DT_SHM_OPENED, stream->base + 1);
}

static int has_dealings(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int peer)
{
    return bytes_to(stream, task, peer) > 0 || bytes_from(task, peer) > 0;
}

/* A sweep over all pairs, in an order in which no two ranks begin with the same one. */
dt_shm_step_t dt_shm_pairs(dt_shm_stream_t *stream, dt_shm_task_t *task)
{
    if (!task->has_begun)
        begin(stream, task);
    int num_left = 0;
    int has_moved = 0;
    for (int step = 1; step < stream->size && stream->status == DTRAIN_OK; step++) {
        int ahead = dt_schedule_ahead(stream->rank, stream->size, step);
        int behind = dt_schedule_behind(stream->rank, stream->size, step);
        dt_shm_step_t sent = !has_dealings(stream, task, ahead) ? DT_SHM_DONE
                             : is_open(stream, ahead)           ? send(stream, task, ahead)
                                                                : DT_SHM_WAITS;
        dt_shm_step_t taken = !has_dealings(stream, task, behind) ? DT_SHM_DONE
                              : is_open(stream, behind)           ? take(stream, task, behind)
                                                                  : DT_SHM_WAITS;
        num_left += (sent != DT_SHM_DONE) + (taken != DT_SHM_DONE);
        has_moved |= sent == DT_SHM_MOVED || taken == DT_SHM_MOVED;
    }
    /* What has come is taken first, since its sender waits. */
    dt_shm_step_t copied = has_moved ? DT_SHM_MOVED : copy_own(stream, task);
    if (num_left == 0 && copied == DT_SHM_DONE)
        return DT_SHM_DONE;
    return has_moved || copied == DT_SHM_MOVED ? DT_SHM_MOVED : DT_SHM_WAITS;
}
