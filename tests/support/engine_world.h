/*
 * engine_world.h - runs a function on n ranks that are threads of this process: each has a runtime
 * of its own over the loopback transport. For tests of the engine.
 *
 * CMocka's assertions may run on the test's main thread only. So ranks check with ENGINE_CHECK and
 * its like, which note a failure and go on, and engine_run fails the test once all have returned.
 */
#ifndef DT_TEST_ENGINE_WORLD_H
#define DT_TEST_ENGINE_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "comm/loopback/loopback.h"
#include "core/runtime.h"

#define ENGINE_RANKS_MAX 8

typedef struct engine_world engine_world_t;

/* One rank, on its thread. */
typedef struct engine_rank {
    engine_world_t *world;
    dt_loopback_t *loopback;
    dt_runtime_t *runtime;
    int rank, size;
    void *argument;            /* engine_run's */
    dtrain_status_t end;       /* what its shutdown is to return; OK unless the function says so */
    int has_left;              /* the function has shut the runtime down, or destroyed it */
    struct engine_memory *own; /* buffers */
} engine_rank_t;

typedef void (*engine_fn_t)(engine_rank_t *self);

/* Nothing is warned about; operations end after 30 s, so that a hang becomes a failure. */
dt_config_t engine_config(void);

/*
 * Runs `fn` on every rank of a world of `size`, shuts down and destroys all runtimes, and fails
 * the test when a check failed. `config` may be NULL.
 */
void engine_run(int size, const dt_config_t *config, engine_fn_t fn, void *argument);

/* The same; `prepare` may put its own backend or control in place of what a rank has joined, before
 * its runtime is made. On the main thread. */
typedef void (*engine_prepare_fn_t)(engine_rank_t *self, dt_world_t *world);
void engine_run_prepared(int size, const dt_config_t *config, engine_prepare_fn_t prepare,
                         engine_fn_t fn, void *argument);

/* Shuts this rank down before its function returns. */
dtrain_status_t engine_shutdown(engine_rank_t *self);

/* Zeroed memory that lives until every rank has destroyed its runtime: operations that fail may
 * still be written to until then. */
void *engine_buffer(engine_rank_t *self, size_t bytes);

/* ---- Checks, on any thread ----------------------------------------------------------- */

/* Notes a failure; returns `ok`. */
int engine_check(engine_rank_t *self, int ok, const char *what, const char *file, int line);
int engine_check_status(engine_rank_t *self, dtrain_status_t status, dtrain_status_t wanted,
                        const char *what, const char *file, int line);
int engine_check_text(engine_rank_t *self, const char *text, const char *part, const char *file,
                      int line);

#define ENGINE_CHECK(self, condition) \
    engine_check(self, (condition) != 0, #condition, __FILE__, __LINE__)
#define ENGINE_STATUS(self, expression, wanted) \
    engine_check_status(self, expression, wanted, #expression, __FILE__, __LINE__)
#define ENGINE_OK(self, expression) ENGINE_STATUS(self, expression, DTRAIN_OK)
/* `part` stands in `text`. */
#define ENGINE_TEXT(self, text, part) engine_check_text(self, text, part, __FILE__, __LINE__)

/* ---- Operations ---------------------------------------------------------------------- */

/* A tensor of one dimension, of floats unless set otherwise. */
typedef struct engine_op {
    const char *name;
    const void *in;
    void *out;
    int64_t count;
    dt_kind_t kind;       /* 0: allreduce */
    dtrain_dtype_t dtype; /* 0: float32 */
    dtrain_op_t op;
    int root;
    dtrain_pset_t pset;
    int timeout_ms;
    double prescale, postscale;
    int ndim;             /* with shape; 0 and no shape: one dimension of `count` */
    const int64_t *shape; /* scalar: any pointer, and ndim 0 */
    int64_t out_bytes;
    const int64_t *splits; /* of an alltoall, a rank each; or NULL */
    int num_splits;        /* 0: the number of ranks */
    int is_receiver;       /* of a transfer; root is the other rank */
    int device;
    int32_t priority;
    dtrain_callback_fn_t callback;
    void *user;
    const dtrain_codec_t *codec;
    const int64_t *indices; /* of a sparse allreduce: nnz rows of `in` */
    int64_t nnz;
} engine_op_t;

dtrain_status_t engine_submit(engine_rank_t *self, const engine_op_t *op, dtrain_handle_t *handle);

/* A group: kind, options and so on of the first hold for all. */
dtrain_status_t engine_submit_group(engine_rank_t *self, const engine_op_t *ops, int n,
                                    dtrain_handle_t *handles);

/* Waits, and gives the handle back. The error's text is dt_last_error(). */
dtrain_status_t engine_finish(engine_rank_t *self, dtrain_handle_t handle);

/* Submits, waits, releases, as the public blocking calls do. */
dtrain_status_t engine_do(engine_rank_t *self, const engine_op_t *op);

/* An allreduce over all ranks whose result is checked: does the world still work? */
void engine_check_works(engine_rank_t *self, const char *name);

/* ---- Process sets and join: blocking, as the public calls --------------------------------- */

dtrain_status_t engine_pset_add(engine_rank_t *self, const int *ranks, int n, dtrain_pset_t *pset);
dtrain_status_t engine_pset_remove(engine_rank_t *self, dtrain_pset_t pset);
dtrain_status_t engine_join(engine_rank_t *self, dtrain_pset_t pset, int *last_rank);

/* ---- Meeting outside the library ------------------------------------------------------- */

/* Returns once every rank has called it as often as this one. */
void engine_meet(engine_rank_t *self);

/* ---- The log --------------------------------------------------------------------------- */

/* Waits until the library has logged a line with `part`, for at most 20 s. 1 when it has. */
int engine_log_wait(engine_rank_t *self, const char *part);

#endif
