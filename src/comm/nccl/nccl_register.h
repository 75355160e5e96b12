/*
 * nccl_register.h - which memory NCCL has been told of, for one communicator.
 *
 * Blocks of dtrain_mem_alloc's are registered by each rank for itself, when a tensor in them is
 * first used where it lies. Windows are registered by all ranks together, at one place in the order
 * of the communicator's jobs: NCCL has the ranks' windows at the same offsets of a range of
 * addresses, so what exists of them when another is made has to be the same on all ranks.
 *
 * NCCL is called for a communicator by one thread at a time: its issuer, or one that frees memory.
 */
#ifndef DT_COMM_NCCL_REGISTER_H
#define DT_COMM_NCCL_REGISTER_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/nccl/nccl_memory.h"

typedef struct dt_nccl_comm dt_nccl_comm_t;

/* What a communicator uses, the same on all ranks. */
typedef enum dt_nccl_level {
    DT_NCCL_UNREGISTERED = 0, /* NCCL has no such function, or does not do it here */
    DT_NCCL_BLOCKS = 1,       /* blocks are registered, windows are not */
    DT_NCCL_WINDOWS = 2
} dt_nccl_level_t;

typedef struct dt_nccl_register {
    struct dt_nccl_register *next; /* [device->registers_lock] */
    pthread_mutex_t calls;  /* held by who calls NCCL for the communicator, but to make or end it */
    dt_nccl_ranges_t known; /* [calls] with NCCL's handles */
    dt_nccl_level_t level;  /* [issuer] written before the first task */
    int num_windows;        /* [calls] that were ever made */
    pthread_mutex_t life;   /* taken behind `calls`, or alone */
    int is_over;            /* [life] not made yet, or about to be aborted, which deregisters all */
} dt_nccl_register_t;

/* From now on memory that is freed is deregistered first. */
void dt_nccl_register_begin(dt_nccl_comm_t *comm);

/* In the job that makes the communicator: registers its first buffer, as a window where that is
 * possible. *level is what this rank can have. An error is NCCL's. */
dtrain_status_t dt_nccl_register_first(dt_nccl_comm_t *comm, dt_nccl_level_t *level);

/* Before the first task: the lowest level of all ranks. */
void dt_nccl_register_agree(dt_nccl_comm_t *comm, dt_nccl_level_t level);

/* In a job: sees to it that the block which an address is in is registered. An error is one on all
 * ranks, as others have registered theirs. */
dtrain_status_t dt_nccl_register_block(dt_nccl_comm_t *comm, const void *address);

/* In a job of all ranks: makes the block that an address is in a window, unless ranks have freed
 * different ones so far. */
dtrain_status_t dt_nccl_register_window(dt_nccl_comm_t *comm, const void *address);

/* In a job: whether NCCL knows the memory that an address is in. */
int dt_nccl_register_knows(const dt_nccl_comm_t *comm, const void *address);

/* Before the communicator is aborted: NCCL is not called to deregister any more. */
void dt_nccl_register_abandon(dt_nccl_comm_t *comm);

/* Before it is destroyed, when no job is left: deregisters all. */
void dt_nccl_register_drop_all(dt_nccl_comm_t *comm);

/* At last. */
void dt_nccl_register_end(dt_nccl_comm_t *comm);

/* Before a block is freed, in any thread: deregisters it wherever it is known. -1: a call of NCCL's
 * does not come back, and the block has to be kept. */
int dt_nccl_register_forget(dt_nccl_device_t *device, const void *block);

#endif
