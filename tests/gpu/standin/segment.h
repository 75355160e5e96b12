/* segment.h - what the ranks of one of the stand-in's communicators share: memory in which they
 * meet and leave chunks of data for each other. It has no name in a file system: its maker is asked
 * for it by process and descriptor, and it is gone with the last process that has it. */
#ifndef STANDIN_SEGMENT_H
#define STANDIN_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

#define RANKS_MAX 8
#define CHUNK_BYTES 65536
#define PAIR_BYTES 16384

/* What a rank brings to a collective, by which a mismatch is seen. */
typedef struct call {
    int32_t kind, dtype, op, root;
    uint64_t count;
    int32_t memory; /* 0 not registered, 1 registered, 2 in windows */
    int32_t in_window, out_window, reserved;
    uint64_t in_offset, out_offset;
} call_t;

/* What a rank brings to a split. */
typedef struct candidate {
    int32_t color, key, pid, fd;
} candidate_t;

/* From one rank to another: a chunk at a time. */
typedef struct pair {
    _Atomic uint64_t sent, taken; /* chunks */
    uint64_t bytes;
    int32_t is_registered;
    char data[PAIR_BYTES];
} pair_t;

typedef struct segment {
    _Atomic uint64_t device_turns[RANKS_MAX]; /* how often each has come to a meeting in a stream */
    _Atomic uint64_t host_turns[RANKS_MAX];   /* ditto, outside streams */
    call_t calls[RANKS_MAX];
    candidate_t candidates[RANKS_MAX];
    uint64_t windows[RANKS_MAX]; /* their bytes */
    char data[RANKS_MAX][CHUNK_BYTES];
    pair_t pairs[RANKS_MAX][RANKS_MAX]; /* [from][to] */
} segment_t;

/* A new one, all zeros; its descriptor stays open. */
int segment_create(void);
/* That of a process's descriptor; NULL: it cannot be had. */
segment_t *segment_map(int pid, int fd);
void segment_unmap(segment_t *segment);

/* Comes to a meeting and waits until all `n` ranks have come to as many, or *aborted. 0, or -1 when
 * aborted. */
int segment_meet(_Atomic uint64_t *turns, int rank, int n, const _Atomic int *aborted);

/* Gives way to other threads, ever longer. */
void segment_relax(int *turn);

#endif
