/*
 * Reading private memory of another rank of the node costs one copy less than to have it copied
 * into shared memory first, but the kernel's permission: ranks of one user have it on most
 * machines, and not everywhere (seccomp, Yama, user namespaces). So each rank tries once, and
 * tells. What it finds has to be what that rank says is there, since in another pid namespace the
 * number may be another process's.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shm/shm_stream.h"

/* 0, or -1 and errno. */
static int read_from(const dt_shm_owner_t *owner, void *to, uint64_t address, size_t bytes)
{
    while (bytes > 0) {
        struct iovec here = {to, bytes};
        struct iovec there = {(void *)(uintptr_t)address, bytes}; /* NOLINT: the peer's */
        ssize_t got = process_vm_readv((pid_t)owner->pid, &here, 1, &there, 1, 0);
        if (got <= 0)
            return -1;
        to = (uint8_t *)to + got;
        address += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

void dt_shm_pull_introduce(dt_shm_stream_t *stream)
{
    uint64_t pid = (uint64_t)getpid();
    stream->secret = (uint64_t)dt_now_ns() ^ pid << 40 ^ (uint64_t)(uintptr_t)stream;
    stream->boards[stream->rank]->owner = (dt_shm_owner_t){
        .pid = pid, .address = (uint64_t)(uintptr_t)&stream->secret, .secret = stream->secret};
}

static int can_read(const dt_shm_stream_t *stream, int rank)
{
    const dt_shm_owner_t *owner = &stream->boards[rank]->owner;
    uint64_t found = 0;
    return read_from(owner, &found, owner->address, sizeof found) == 0 && found == owner->secret;
}

void dt_shm_pull_probe(dt_shm_stream_t *stream)
{
    if (stream->has_probed || !dt_shm_stream_reached(stream, DT_SHM_OPENED, stream->base + 1))
        return;
    int works = 1;
    for (int rank = 0; rank < stream->size && works; rank++)
        works = rank == stream->rank || can_read(stream, rank);
    stream->has_probed = 1;
    atomic_store_explicit(&stream->boards[stream->rank]->counters[DT_SHM_PROBED].value,
                          stream->base + 1 + (uint64_t)works, memory_order_release);
}

/* First whether all have told: what they have told does not change after that. */
int dt_shm_pull_works(dt_shm_stream_t *stream)
{
    if (!dt_shm_stream_reached(stream, DT_SHM_PROBED, stream->base + 1))
        return -1;
    return dt_shm_stream_reached(stream, DT_SHM_PROBED, stream->base + 2);
}

dt_shm_step_t dt_shm_pull(dt_shm_stream_t *stream, int rank, void *to, uint64_t address,
                          size_t bytes)
{
    if (read_from(&stream->boards[rank]->owner, to, address, bytes) == 0)
        return DT_SHM_DONE;
    if (errno != ESRCH) /* of a rank that is gone, others tell */
        stream->status =
            dt_fail(DTRAIN_ERR_COMMUNICATION, "cannot read %zu bytes of local rank %d's memory: %s",
                    bytes, rank, strerror(errno));
    return DT_SHM_WAITS;
}
