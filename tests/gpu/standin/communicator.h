/* communicator.h - inside the stand-in for NCCL: a communicator, and an operation on it. */
#ifndef STANDIN_COMMUNICATOR_H
#define STANDIN_COMMUNICATOR_H

#include <pthread.h>

#include <nccl.h>

#include "segment.h"
#include "standin.h"

#define POSTPONED_MAX 256
#define TRANSFERS_MAX (2 * RANKS_MAX)

typedef enum kind {
    ALL_REDUCE = 1,
    REDUCE = 2,
    BROADCAST = 3,
    ALL_GATHER = 4,
    REDUCE_SCATTER = 5,
    EXCHANGE = 6
} kind_t;

typedef struct transfer {
    const char *from; /* NULL: it comes in */
    char *to;
    size_t bytes;
    int peer;
    int is_registered; /* the memory here; the peer's has to be, or not, too */
} transfer_t;

typedef struct operation {
    ncclComm_t comm;
    cudaStream_t stream;
    call_t call;
    const void *in;
    void *out;
    standin_fault_t fault;
    int num_transfers;
    transfer_t transfers[TRANSFERS_MAX];
} operation_t;

struct ncclComm {
    segment_t *segment;
    int rank, size;
    int pid, fd; /* whose segment it is, until it is mapped */
    _Atomic int is_ready, is_aborted;
    _Atomic int num_running; /* operations in streams */
    _Atomic int num_blocked; /* calls that do not return */
    _Atomic ncclResult_t async;
    _Atomic int polls_left;
    int is_blocking;        /* config.blocking */
    _Atomic int is_revoked; /* good for an abort only */
    pthread_t helper;       /* of init */
    int has_helper;
    _Atomic int is_entered;                /* a thread is within a call that only one may be in */
    int num_windows;                       /* that were ever made */
    operation_t *postponed[POSTPONED_MAX]; /* the calling thread's */
    int num_postponed;
    struct split {
        ncclComm_t parent;
        int color, key;
        ncclComm_t *result;
    } split;                   /* what it is made of */
    ncclResult_t split_result; /* of the last one of this */
};

/* Keeps the text for ncclGetLastError; returns `result`. */
ncclResult_t standin_fail(ncclResult_t result, const char *text);

/* Until *aborted. */
void standin_wait_forever(const _Atomic int *aborted);

/* Only one thread at a time may be in a call that changes a communicator, or uses it. */
void standin_enter(ncclComm_t comm);
void standin_leave(ncclComm_t comm);

/* What memory an operation brings, in its call_t. */
void standin_describe_memory(operation_t *operation, size_t in_bytes, size_t out_bytes);
int standin_is_registered(ncclComm_t comm, const void *memory, size_t bytes);
/* How many collectives, but exchanges, this process has begun with memory of a kind: 0 not
 * registered, 1 registered, 2 in windows. */
STANDIN_API int standin_count_operations(int memory);

/* Memory is about to be freed, or a communicator to end. */
void standin_check_free(const void *memory);
void standin_forget_comm(ncclComm_t comm, int is_clean);

/* What a stream does of an operation_t. */
void standin_run_operation(void *argument);

#endif
