#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/status.h"

#define REPORT_MAX 16384
#define LOG_MAX 65536
#define LOG_WAIT_S 20

typedef struct engine_memory {
    struct engine_memory *next;
    _Alignas(64) char data[];
} engine_memory_t;

struct engine_world {
    int size;
    engine_fn_t fn;
    engine_rank_t ranks[ENGINE_RANKS_MAX];
    pthread_barrier_t meeting;
    pthread_mutex_t lock;
    int num_failures;        /* [lock] */
    char report[REPORT_MAX]; /* [lock] */
    pthread_cond_t logged;
    char log[LOG_MAX]; /* [lock] */
    size_t log_length; /* [lock] */
};

dt_config_t engine_config(void)
{
    dt_config_t config = {
        .log_level = DTRAIN_LOG_WARN,
        .fusion_threshold = INT64_C(64) << 20,
        .fusion_tensor_limit = INT64_C(128) << 10,
        .timeout_ns = 30 * DT_NS_PER_S,
        .stall_warning_ns = DT_NEVER,
        .init_timeout_ns = 30 * DT_NS_PER_S,
        .spin_ns = -1,
    };
    return config;
}

/* ---- Checks -------------------------------------------------------------------------- */

static void note(engine_rank_t *self, const char *what, const char *detail, const char *file,
                 int line)
{
    engine_world_t *world = self->world;
    pthread_mutex_lock(&world->lock);
    world->num_failures++;
    size_t used = strlen(world->report);
    snprintf(world->report + used, REPORT_MAX - used, "%s:%d: rank %d of %d: %s: %s\n", file, line,
             self->rank, self->size, what, detail);
    pthread_mutex_unlock(&world->lock);
}

int engine_check(engine_rank_t *self, int ok, const char *what, const char *file, int line)
{
    if (!ok)
        note(self, what, "is not so", file, line);
    return ok;
}

int engine_check_status(engine_rank_t *self, dtrain_status_t status, dtrain_status_t wanted,
                        const char *what, const char *file, int line)
{
    if (status == wanted)
        return 1;
    char detail[DT_ERROR_MAX + 128];
    snprintf(detail, sizeof detail, "got \"%s\", not \"%s\"; last error: %s",
             dt_status_string(status), dt_status_string(wanted), dt_last_error());
    note(self, what, detail, file, line);
    return 0;
}

int engine_check_text(engine_rank_t *self, const char *text, const char *part, const char *file,
                      int line)
{
    if (strstr(text, part))
        return 1;
    char detail[2 * DT_ERROR_MAX];
    snprintf(detail, sizeof detail, "\"%.200s\" is not in \"%s\"", part, text);
    note(self, "text", detail, file, line);
    return 0;
}

/* ---- The log --------------------------------------------------------------------------- */

static void take_line(dtrain_log_level_t level, const char *line, void *user)
{
    engine_world_t *world = user;
    (void)level;
    pthread_mutex_lock(&world->lock);
    int length =
        snprintf(world->log + world->log_length, LOG_MAX - world->log_length, "%s\n", line);
    world->log_length += (size_t)length;
    if (world->log_length >= LOG_MAX)
        world->log_length = LOG_MAX - 1;
    pthread_cond_broadcast(&world->logged);
    pthread_mutex_unlock(&world->lock);
}

int engine_log_wait(engine_rank_t *self, const char *part)
{
    engine_world_t *world = self->world;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOG_WAIT_S;
    int late = 0;
    pthread_mutex_lock(&world->lock);
    while (!strstr(world->log, part) && !late)
        late = pthread_cond_timedwait(&world->logged, &world->lock, &until) != 0;
    int has = strstr(world->log, part) != NULL;
    pthread_mutex_unlock(&world->lock);
    return has;
}

/* ---- Ranks ----------------------------------------------------------------------------- */

void *engine_buffer(engine_rank_t *self, size_t bytes)
{
    engine_memory_t *memory = aligned_alloc(64, (sizeof *memory + bytes + 63) / 64 * 64);
    if (!memory)
        abort();
    memset(memory->data, 0, bytes);
    memory->next = self->own;
    self->own = memory;
    return memory->data;
}

static void free_buffers(engine_rank_t *self)
{
    while (self->own) {
        engine_memory_t *memory = self->own;
        self->own = memory->next;
        free(memory);
    }
}

void engine_meet(engine_rank_t *self)
{
    pthread_barrier_wait(&self->world->meeting);
}

dtrain_status_t engine_shutdown(engine_rank_t *self)
{
    self->has_left = 1;
    return dt_runtime_shutdown(self->runtime);
}

static void *rank_main(void *argument)
{
    engine_rank_t *self = argument;
    self->world->fn(self);
    if (!self->has_left)
        ENGINE_STATUS(self, engine_shutdown(self), self->end);
    dt_runtime_destroy(self->runtime);
    return NULL;
}

static void make_world(engine_world_t *world, dt_loopback_t *loopback, const dt_config_t *config,
                       engine_prepare_fn_t prepare, void *argument)
{
    for (int rank = 0; rank < world->size; rank++) {
        engine_rank_t *self = &world->ranks[rank];
        *self = (engine_rank_t){.world = world,
                                .loopback = loopback,
                                .rank = rank,
                                .size = world->size,
                                .argument = argument};
        dt_world_t joined;
        assert_int_equal(dt_loopback_join(loopback, rank, &joined), DTRAIN_OK);
        if (prepare)
            prepare(self, &joined);
        assert_int_equal(dt_runtime_create(&joined, config, NULL, &self->runtime), DTRAIN_OK);
    }
}

static void run_threads(engine_world_t *world)
{
    pthread_t threads[ENGINE_RANKS_MAX];
    for (int rank = 0; rank < world->size; rank++)
        assert_int_equal(pthread_create(&threads[rank], NULL, rank_main, &world->ranks[rank]), 0);
    for (int rank = 0; rank < world->size; rank++)
        pthread_join(threads[rank], NULL);
}

void engine_run(int size, const dt_config_t *config, engine_fn_t fn, void *argument)
{
    engine_run_prepared(size, config, NULL, fn, argument);
}

void engine_run_prepared(int size, const dt_config_t *config, engine_prepare_fn_t prepare,
                         engine_fn_t fn, void *argument)
{
    dt_config_t standard = engine_config();
    engine_world_t *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->size = size;
    world->fn = fn;
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->logged, NULL);
    pthread_barrier_init(&world->meeting, NULL, (unsigned)size);
    dt_log_set_sink(take_line, world);
    dt_loopback_t *loopback = dt_loopback_create(size, 1);
    assert_non_null(loopback);
    make_world(world, loopback, config ? config : &standard, prepare, argument);
    run_threads(world);
    dt_log_set_sink(NULL, NULL);
    for (int rank = 0; rank < size; rank++)
        free_buffers(&world->ranks[rank]);
    dt_loopback_free(loopback);
    int failures = world->num_failures;
    if (failures > 0)
        fprintf(stderr, "%slog:\n%s", world->report, world->log);
    pthread_barrier_destroy(&world->meeting);
    pthread_cond_destroy(&world->logged);
    pthread_mutex_destroy(&world->lock);
    free(world);
    assert_int_equal(failures, 0);
}

/* ---- Operations ---------------------------------------------------------------------- */

static dtrain_tensor_t tensor_of(const engine_op_t *op)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = op->shape ? op->ndim : 1,
                              .name = op->name,
                              .in = op->in,
                              .out = op->out,
                              .shape = op->shape ? op->shape : &op->count,
                              .dtype = op->dtype ? op->dtype : DTRAIN_DTYPE_F32,
                              .device = op->device,
                              .out_bytes = op->out_bytes};
    return tensor;
}

static dtrain_options_t options_of(const engine_op_t *op)
{
    dtrain_options_t options = {.struct_size = sizeof options,
                                .op = op->op,
                                .pset = op->pset,
                                .prescale = op->prescale,
                                .postscale = op->postscale,
                                .priority = op->priority,
                                .timeout_ms = op->timeout_ms,
                                .callback = op->callback,
                                .user = op->user,
                                .codec = op->codec};
    return options;
}

static dtrain_status_t submit(engine_rank_t *self, const engine_op_t *op, int will_wait,
                              dtrain_handle_t *handle)
{
    dtrain_tensor_t tensor = tensor_of(op);
    dtrain_options_t options = options_of(op);
    dt_submission_t submission = {.kind = op->kind ? op->kind : DT_KIND_ALLREDUCE,
                                  .tensor = &tensor,
                                  .options = &options,
                                  .root = op->root,
                                  .splits = op->splits,
                                  .num_splits = op->num_splits ? op->num_splits : self->size,
                                  .is_receiver = op->is_receiver,
                                  .indices = op->indices,
                                  .nnz = op->nnz,
                                  .will_wait = will_wait};
    if (submission.kind == DT_KIND_BARRIER || submission.kind == DT_KIND_JOIN)
        submission.tensor = NULL;
    return dt_runtime_submit(self->runtime, &submission, handle);
}

dtrain_status_t engine_submit_group(engine_rank_t *self, const engine_op_t *ops, int n,
                                    dtrain_handle_t *handles)
{
    dtrain_tensor_t *tensors = calloc((size_t)n, sizeof *tensors);
    if (!tensors)
        abort();
    for (int i = 0; i < n; i++)
        tensors[i] = tensor_of(&ops[i]);
    dtrain_options_t options = options_of(&ops[0]);
    dt_submission_t submission = {.kind = ops[0].kind ? ops[0].kind : DT_KIND_ALLREDUCE,
                                  .tensor = tensors,
                                  .options = &options};
    dtrain_status_t status = dt_runtime_submit_group(self->runtime, &submission, n, handles);
    free(tensors);
    return status;
}

dtrain_status_t engine_submit(engine_rank_t *self, const engine_op_t *op, dtrain_handle_t *handle)
{
    return submit(self, op, 0, handle);
}

dtrain_status_t engine_finish(engine_rank_t *self, dtrain_handle_t handle)
{
    dtrain_status_t status = dt_runtime_wait(self->runtime, handle, -1);
    dtrain_status_t released = dt_runtime_release(self->runtime, handle);
    return status == DTRAIN_OK ? released : status;
}

dtrain_status_t engine_do(engine_rank_t *self, const engine_op_t *op)
{
    dtrain_handle_t handle;
    dtrain_status_t status = submit(self, op, 1, &handle);
    return status == DTRAIN_OK ? engine_finish(self, handle) : status;
}

static dtrain_status_t run(engine_rank_t *self, dt_submission_t *submission, int *result)
{
    dtrain_handle_t handle;
    submission->will_wait = 1;
    dtrain_status_t status = dt_runtime_submit(self->runtime, submission, &handle);
    if (status != DTRAIN_OK)
        return status;
    status = dt_runtime_wait(self->runtime, handle, -1);
    if (status == DTRAIN_OK)
        status = dt_runtime_result(self->runtime, handle, submission->kind, result);
    dt_runtime_release(self->runtime, handle);
    return status;
}

dtrain_status_t engine_pset_add(engine_rank_t *self, const int *ranks, int n, dtrain_pset_t *pset)
{
    dt_submission_t submission = {.kind = DT_KIND_PSET_ADD, .ranks = ranks, .num_ranks = n};
    return run(self, &submission, pset);
}

dtrain_status_t engine_pset_remove(engine_rank_t *self, dtrain_pset_t pset)
{
    int none;
    dt_submission_t submission = {.kind = DT_KIND_PSET_REMOVE, .pset = pset};
    return run(self, &submission, &none);
}

dtrain_status_t engine_join(engine_rank_t *self, dtrain_pset_t pset, int *last_rank)
{
    dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
    dt_submission_t submission = {.kind = DT_KIND_JOIN, .options = &options};
    return run(self, &submission, last_rank);
}

void engine_check_works(engine_rank_t *self, const char *name)
{
    float values[5];
    for (int i = 0; i < 5; i++)
        values[i] = (float)(self->rank + 1);
    engine_op_t op = {.name = name, .in = values, .out = values, .count = 5};
    ENGINE_OK(self, engine_do(self, &op));
    float sum = (float)(self->size * (self->size + 1) / 2);
    for (int i = 0; i < 5; i++)
        ENGINE_CHECK(self, values[i] == sum);
}
