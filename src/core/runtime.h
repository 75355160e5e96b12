/*
 * runtime.h - one rank of one world: everything below api/ is handed a dt_runtime_t. Several may
 * live in one process.
 *
 * Who runs it: the holder of the baton (baton.h), which is the background thread or a thread that
 * waits for an operation. Locks, in the order in which they may be nested: none is taken while
 * another is held, except that the baton's gate may be held while control->wake is called, and as
 * dump.h says.
 */
#ifndef DT_CORE_RUNTIME_H
#define DT_CORE_RUNTIME_H

#include "base/buffer.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "comm/world.h"
#include "core/baton.h"
#include "core/dump.h"
#include "core/errands.h"
#include "core/executor.h"
#include "core/gpu.h"
#include "core/handle_table.h"
#include "core/id_table.h"
#include "core/intake.h"
#include "core/negotiator.h"
#include "core/pset.h"
#include "core/stall.h"
#include "core/user_memory.h"
#include "observe/flight.h"

/* Where a world stands. */
typedef enum dt_phase {
    DT_PHASE_RUNNING = 0,
    DT_PHASE_FAREWELL = 1, /* every rank has called shutdown */
    DT_PHASE_GONE = 2      /* a rank is lost, or the world was aborted */
} dt_phase_t;

struct dt_runtime {
    dt_config_t config; /* [const] */
    dt_world_t world;   /* [const], its transports are [baton] */
    dt_clock_t clock;   /* [const] */
    dt_handle_table_t *handles;
    dt_intake_t intake;
    dt_errands_t errands;
    dt_user_memory_t memory;
    dt_psets_t psets;
    dt_gpu_t gpu;
    dt_baton_t baton;
    dt_stall_t stall; /* on rank 0 */
    dt_dump_t dump;
    dt_flight_board_t *own_board; /* where the recorder writes, unless the world has boards */

    /* What callers ask of the coordinator. */
    _Atomic int wants_bye;   /* [atomic] shutdown was called */
    _Atomic int num_kept;    /* [atomic] handles that are not the program's, but gradient sets' */
    _Atomic int wants_abort; /* [atomic] -1: a caller is about to; 1: abort_text is set */
    char *abort_text;        /* written once, by the caller that set wants_abort to -1 */

    /* What the coordinator tells. */
    _Atomic int phase; /* [atomic] dt_phase_t; release: the next two are set */
    dtrain_status_t end_status;
    char *end_text;
    _Atomic int is_stranded; /* [atomic] release: the next two are set; see stranded.h */
    dtrain_status_t stranded_status;
    const char *stranded_text;
    _Atomic int num_pending; /* [atomic] operations taken and not done; written with the baton */
    _Atomic int64_t last_gradset; /* [atomic] the highest number that a gradient set was given */

    /* The thread that is in callbacks, or 0: a thread compares it with itself. */
    _Atomic uintptr_t calling; /* [atomic] written with the baton */

    /* [baton] */
    dt_flight_t flight;
    dt_operation_list_t pending; /* taken from the intake, not done */
    dt_operation_list_t called;  /* done but for their callbacks */
    dt_id_table_t by_id;         /* those of `pending` that have an id */
    dt_negotiator_t *negotiator; /* on rank 0, else NULL */
    dt_buffer_t message;         /* being written */
    dt_buffer_t part;            /* what of a verdict concerns one rank */
    int64_t check_ns;            /* when deadlines are to be looked at again */
    int64_t data_ns;             /* when data last moved; 0: never */
    int64_t linger_ns;           /* when the idle backend is called next */
    _Atomic int has_said_bye;    /* [atomic] written with the baton */
    int64_t lost_ns;             /* a rank seems lost: when that ends the world at the latest,
                                    unless the detector says who first; 0: none does */
    int lost_rank;               /* its control connection has ended; -1: see lost_text */
    dtrain_status_t lost_status; /* with it and lost_text data failed to move */
    char lost_text[DT_ERROR_MAX];
    int is_unclean; /* a rank died: nothing that needs all ranks may be called */
};

/*
 * Makes a runtime on a world, which it takes over also on error, and starts its thread (none in
 * a world of one). `clock` NULL is the system's. OUT_OF_MEMORY.
 */
dtrain_status_t dt_runtime_create(dt_world_t *world, const dt_config_t *config,
                                  const dt_clock_t *clock, dt_runtime_t **runtime_out);

/* An operation as a caller states it; checked here. */
typedef struct dt_submission {
    dt_kind_t kind;
    const dtrain_tensor_t *tensor;   /* NULL where there are no data */
    const dtrain_options_t *options; /* or NULL */
    int root;                        /* or a transfer's other rank */
    int will_wait;                   /* the caller waits at once: the thread need not be woken */
    int is_own;                      /* the library's: its name may be a reserved one */
    int is_receiver;                 /* of a transfer */
    const int64_t *splits;           /* an alltoall's, num_splits of them; or NULL */
    int num_splits;
    const int64_t *indices; /* SPARSE: of the tensor's rows, nnz of them */
    int64_t nnz;
    const int *ranks; /* PSET_ADD: num_ranks */
    int num_ranks;
    dtrain_pset_t pset; /* PSET_REMOVE; elsewhere the options have it */
    /* Not NULL: the caller will not do it, and this is why; with which status, 0:
     * INVALID_ARGUMENT. */
    const char *refusal;
    dtrain_status_t refusal_status;
    dt_mark_t *ready; /* on a device: behind the input, held for the operation; NULL: what is in the
                         tensor's stream by now */
    /* The group it belongs to, filled in by dt_runtime_submit_group; all 0: none. */
    uint64_t group;
    uint32_t group_size, group_index;
    dt_stamp_t stamp;   /* of what comes with every step; zeros: none */
    dt_memory_t memory; /* on a device, of memory at the same place on all ranks: SYMMETRIC for what
                           lies in a window, NEW_WINDOW to make it one; else ANY */
} dt_submission_t;

/* The public asynchronous calls; see dtrain.h. */
dtrain_status_t dt_runtime_submit(dt_runtime_t *runtime, const dt_submission_t *submission,
                                  dtrain_handle_t *handle);
/* `submission->tensor` is the first of n; `handles` receives n. */
dtrain_status_t dt_runtime_submit_group(dt_runtime_t *runtime, const dt_submission_t *submission,
                                        int n, dtrain_handle_t *handles);
/* Submits, waits, and gives the handle back: a blocking call. `call` is for the text of
 * IN_CALLBACK.
 */
dtrain_status_t dt_runtime_do(dt_runtime_t *runtime, const dt_submission_t *submission,
                              const char *call);
dtrain_status_t dt_runtime_poll(dt_runtime_t *runtime, dtrain_handle_t handle, int *done);
/* timeout_ms < 0: until it is done. */
dtrain_status_t dt_runtime_wait(dt_runtime_t *runtime, dtrain_handle_t handle, int timeout_ms);
/* Lets a stream wait for an operation; blocks until all of it is in a stream. */
dtrain_status_t dt_runtime_stream_wait(dt_runtime_t *runtime, dtrain_handle_t handle, void *stream);
dtrain_status_t dt_runtime_wait_all(dt_runtime_t *runtime, const dtrain_handle_t *handles, int n,
                                    dtrain_status_t *each);
/* *index is written also when the operation failed. */
dtrain_status_t dt_runtime_wait_any(dt_runtime_t *runtime, const dtrain_handle_t *handles, int n,
                                    int *index);
dtrain_status_t dt_runtime_output(dt_runtime_t *runtime, dtrain_handle_t handle, const void **data,
                                  int64_t *shape, int *ndim);
dtrain_status_t dt_runtime_sparse_output(dt_runtime_t *runtime, dtrain_handle_t handle,
                                         const int64_t **indices, const void **values,
                                         int64_t *nnz);
dtrain_status_t dt_runtime_recv_splits(dt_runtime_t *runtime, dtrain_handle_t handle,
                                       int64_t *splits, int n);
/* OK, or IN_CALLBACK on a thread that is in a callback; `call` is for the text. */
dtrain_status_t dt_runtime_may_block(const dt_runtime_t *runtime, const char *call);
dtrain_status_t dt_runtime_release(dt_runtime_t *runtime, dtrain_handle_t handle);
dtrain_status_t dt_runtime_handle_error(dt_runtime_t *runtime, dtrain_handle_t handle, char *text,
                                        size_t cap);
/* The number that an operation of `kind`, done and well, came to. INVALID_HANDLE; INVALID_ARGUMENT
 * for another kind; IN_PROGRESS; its own status when it failed. */
dtrain_status_t dt_runtime_result(dt_runtime_t *runtime, dtrain_handle_t handle, dt_kind_t kind,
                                  int *result);
dtrain_status_t dt_runtime_abort(dt_runtime_t *runtime, int code, const char *why);

/* Says goodbye and waits for all ranks; then only destroy may follow. RANK_LOST or ABORTED when
 * the world was gone. */
dtrain_status_t dt_runtime_shutdown(dt_runtime_t *runtime);

/* Stops the thread, leaves the world and frees everything, shut down or not. Threads that wait are
 * the caller's to keep away. */
void dt_runtime_destroy(dt_runtime_t *runtime);

/* 1 when a thread is stuck inside the runtime, which then must not be waited for (stranded.h). */
int dt_runtime_is_stranded(dt_runtime_t *runtime);

/* Only stops the threads, at the exit of a process that did not shut down. */
void dt_runtime_stop_thread(dt_runtime_t *runtime);

#endif
