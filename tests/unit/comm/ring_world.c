#include "ring_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/loopback/loopback.h"
#include "samples.h"
#include "test_random.h"

/* Bytes around buffers that nothing may write to. */
#define GUARD 64
#define GUARD_BYTE 0xa5

/* Calls of progress after which an interleaved run is stuck. */
#define CALLS_MAX 20000000

typedef struct item {
    uint8_t *in, *out;
    dt_piece_t piece;
    dt_task_t *task;
    dtrain_status_t status;
} item_t;

typedef struct run {
    ring_world_t *world;
    const ring_task_t *tasks;
    int num_tasks;
    dt_loopback_t *loopback;
    dt_backend_t *backends[RING_WORLD_MAX];
    item_t items[RING_WORLD_MAX][RING_WORLD_TASKS_MAX];
} run_t;

static int complain(run_t *run, const char *what, int rank, int task)
{
    snprintf(run->world->why, sizeof run->world->why,
             "%s: rank %d of %d, task %d (count %lld, type %s, op %s, buffers %d), seed %llu, "
             "segments of %lld, direct %lld: %s",
             what, rank, run->world->size, task, (long long)run->tasks[task].count,
             dt_dtype_name(run->tasks[task].dtype), dt_op_name(run->tasks[task].op),
             (int)run->tasks[task].buffers, (unsigned long long)run->world->seed,
             (long long)run->world->tuning.segment_bytes,
             (long long)run->world->tuning.direct_bytes, dt_last_error());
    return -1;
}

/* ---- Buffers ------------------------------------------------------------------------- */

static size_t bytes_of(const ring_task_t *task)
{
    return (size_t)task->count * dt_dtype_size(task->dtype);
}

static uint8_t *make_buffer(size_t bytes)
{
    uint8_t *memory = malloc(bytes + 2 * GUARD);
    if (!memory)
        abort();
    memset(memory, GUARD_BYTE, bytes + 2 * GUARD);
    return memory + GUARD;
}

static void free_buffer(uint8_t *buffer)
{
    if (buffer)
        free(buffer - GUARD);
}

static int guards_hold(const uint8_t *buffer, size_t bytes)
{
    int hold = 1;
    for (int i = 0; i < GUARD; i++)
        hold &= buffer[i - GUARD] == GUARD_BYTE && buffer[bytes + (size_t)i] == GUARD_BYTE;
    return hold;
}

static uint64_t input_seed(const run_t *run, int rank, int task)
{
    return run->world->seed * 1000003 + (uint64_t)(rank * RING_WORLD_TASKS_MAX + task);
}

static void make_item(run_t *run, int rank, int index)
{
    const ring_task_t *task = &run->tasks[index];
    item_t *item = &run->items[rank][index];
    int is_receiver = task->kind == DT_BROADCAST && task->root != rank;
    item->status = DTRAIN_IN_PROGRESS;
    if (!is_receiver) {
        item->in = make_buffer(bytes_of(task));
        sample_values(item->in, task->count, task->dtype, input_seed(run, rank, index));
    }
    if (is_receiver || task->buffers == RING_SEPARATE)
        item->out = make_buffer(bytes_of(task));
    item->piece = (dt_piece_t){item->in, item->out, task->count};
    if (!is_receiver && task->buffers == RING_IN_PLACE)
        item->piece.out = item->in;
}

/* ---- Run ------------------------------------------------------------------------------- */

static dt_reduction_t reduction_of(const run_t *run, const ring_task_t *task)
{
    return (dt_reduction_t){
        .dtype = task->dtype,
        .op = task->op,
        .divisor = task->op == DTRAIN_OP_AVERAGE ? run->world->size : 1,
        .prescale = task->prescale == 0 ? 1 : task->prescale,
        .postscale = task->postscale == 0 ? 1 : task->postscale,
    };
}

static dtrain_status_t start_item(run_t *run, int rank, int index)
{
    const ring_task_t *task = &run->tasks[index];
    item_t *item = &run->items[rank][index];
    dt_backend_t *backend = run->backends[rank];
    /* Sequences that wrap around what tags can tell apart. */
    dt_collective_t collective = {
        .kind = task->kind == 0 ? DT_ALLREDUCE : task->kind,
        .sequence = run->world->seed * 13 + 1020 + (uint64_t)index,
        .reduction = reduction_of(run, task),
        .root = task->root,
        .pieces = &item->piece,
        .num_pieces = 1,
        .count = task->count,
    };
    return backend->ops->start(backend, &collective, &item->task);
}

static dtrain_status_t progress_item(run_t *run, int rank, int index)
{
    item_t *item = &run->items[rank][index];
    dt_backend_t *backend = run->backends[rank];
    if (item->status == DTRAIN_IN_PROGRESS) {
        item->status = backend->ops->progress(backend, item->task);
        if (item->status == DTRAIN_OK)
            backend->ops->release(backend, item->task);
    }
    return item->status;
}

static int run_interleaved(run_t *run)
{
    int size = run->world->size;
    int num_started[RING_WORLD_MAX] = {0};
    int num_left = size * run->num_tasks;
    uint64_t random = run->world->seed;
    for (int64_t calls = 0; num_left > 0; calls++) {
        uint64_t choice = test_random(&random);
        int rank = (int)(choice % (uint64_t)size);
        int index = (int)((choice >> 32) % (uint64_t)run->num_tasks);
        if (calls == CALLS_MAX)
            return complain(run, "stuck", rank, index);
        if (index > num_started[rank])
            continue;
        if (index == num_started[rank] && start_item(run, rank, num_started[rank]++) != DTRAIN_OK)
            return complain(run, "start failed", rank, index);
        if (run->items[rank][index].status != DTRAIN_IN_PROGRESS)
            continue;
        dtrain_status_t status = progress_item(run, rank, index);
        if (status < 0)
            return complain(run, "progress failed", rank, index);
        num_left -= status == DTRAIN_OK;
    }
    return 0;
}

typedef struct actor {
    run_t *run;
    int rank;
    pthread_t thread;
    dtrain_status_t status;
} actor_t;

static void *act(void *context)
{
    actor_t *actor = context;
    run_t *run = actor->run;
    int num_left = run->num_tasks;
    for (int i = 0; i < run->num_tasks && actor->status == DTRAIN_OK; i++)
        actor->status = start_item(run, actor->rank, i);
    while (num_left > 0 && actor->status == DTRAIN_OK) {
        num_left = 0;
        for (int i = 0; i < run->num_tasks; i++) {
            dtrain_status_t status = progress_item(run, actor->rank, i);
            num_left += status == DTRAIN_IN_PROGRESS;
            if (status < 0)
                actor->status = status;
        }
        sched_yield();
    }
    return NULL;
}

static int run_threads(run_t *run)
{
    actor_t actors[RING_WORLD_MAX];
    int result = 0;
    for (int rank = 0; rank < run->world->size; rank++) {
        actors[rank] = (actor_t){.run = run, .rank = rank};
        if (pthread_create(&actors[rank].thread, NULL, act, &actors[rank]) != 0)
            abort();
    }
    for (int rank = 0; rank < run->world->size; rank++) {
        pthread_join(actors[rank].thread, NULL);
        if (actors[rank].status != DTRAIN_OK)
            result = complain(run, "a collective failed", rank, 0);
    }
    return result;
}

/* ---- Check ------------------------------------------------------------------------------ */

/* What every rank's output must hold. */
static uint8_t *make_expected(const run_t *run, int index)
{
    const ring_task_t *task = &run->tasks[index];
    uint8_t *inputs[RING_WORLD_MAX];
    uint8_t *expected = make_buffer(bytes_of(task));
    if (task->kind == DT_BROADCAST) {
        sample_values(expected, task->count, task->dtype, input_seed(run, task->root, index));
        return expected;
    }
    for (int rank = 0; rank < run->world->size; rank++) {
        inputs[rank] = make_buffer(bytes_of(task));
        sample_values(inputs[rank], task->count, task->dtype, input_seed(run, rank, index));
    }
    dt_reduction_t reduction = reduction_of(run, task);
    if (task->count > 0)
        dt_reduce(&reduction, (void *const *)&expected, 1, (const void *const *)inputs,
                  run->world->size, (size_t)task->count);
    for (int rank = 0; rank < run->world->size; rank++)
        free_buffer(inputs[rank]);
    return expected;
}

static int check_item(run_t *run, int rank, int index, const uint8_t *expected)
{
    const item_t *item = &run->items[rank][index];
    size_t bytes = bytes_of(&run->tasks[index]);
    if (item->piece.out && memcmp(item->piece.out, expected, bytes) != 0)
        return complain(run, "wrong result", rank, index);
    if ((item->in && !guards_hold(item->in, bytes)) ||
        (item->out && !guards_hold(item->out, bytes)))
        return complain(run, "written outside a buffer", rank, index);
    if (item->in && item->piece.out != item->in) {
        uint8_t *original = make_buffer(bytes);
        sample_values(original, run->tasks[index].count, run->tasks[index].dtype,
                      input_seed(run, rank, index));
        int is_same = memcmp(original, item->in, bytes) == 0;
        free_buffer(original);
        if (!is_same)
            return complain(run, "an input was changed", rank, index);
    }
    return 0;
}

static int check(run_t *run)
{
    int result = 0;
    for (int index = 0; index < run->num_tasks; index++) {
        uint8_t *expected = make_expected(run, index);
        for (int rank = 0; rank < run->world->size && result == 0; rank++)
            result = check_item(run, rank, index, expected);
        free_buffer(expected);
    }
    return result;
}

static int check_reports(run_t *run)
{
    int result = 0;
    for (int rank = 0; rank < run->world->size; rank++) {
        const jitter_report_t *report = &run->world->reports[rank];
        if (report->num_overlaps > 0 || report->num_scribbles > 0)
            result = complain(run, "memory of a message under way was used", rank, 0);
        if (report->num_left > 0 || report->num_empty > 0)
            result = complain(run, "messages left over or empty", rank, 0);
    }
    return result;
}

/* ---- World ------------------------------------------------------------------------------ */

static void open_world(run_t *run)
{
    ring_world_t *world = run->world;
    run->loopback = dt_loopback_create(world->size, 1);
    if (!run->loopback)
        abort();
    for (int rank = 0; rank < world->size; rank++) {
        dt_p2p_t *p2p;
        if (dt_loopback_p2p(run->loopback, rank, &p2p) != DTRAIN_OK)
            abort();
        p2p = jitter_p2p_create(p2p, world->seed + (uint64_t)rank, -1, &world->reports[rank]);
        if (!p2p || dt_ring_create(p2p, &world->tuning, &run->backends[rank]) != DTRAIN_OK)
            abort();
        for (int index = 0; index < run->num_tasks; index++)
            make_item(run, rank, index);
    }
}

static void close_world(run_t *run, int clean)
{
    for (int rank = 0; rank < run->world->size; rank++) {
        if (run->backends[rank])
            run->backends[rank]->ops->destroy(run->backends[rank], clean);
        for (int index = 0; index < run->num_tasks; index++) {
            free_buffer(run->items[rank][index].in);
            free_buffer(run->items[rank][index].out);
        }
    }
    dt_loopback_free(run->loopback);
}

int ring_world_run(ring_world_t *world, const ring_task_t *tasks, int num_tasks)
{
    run_t *run = calloc(1, sizeof *run);
    if (!run)
        abort();
    run->world = world;
    run->tasks = tasks;
    run->num_tasks = num_tasks;
    world->why[0] = 0;
    open_world(run);
    int result = world->driver == RING_THREADS ? run_threads(run) : run_interleaved(run);
    if (result == 0)
        result = check(run);
    close_world(run, result == 0);
    if (result == 0)
        result = check_reports(run);
    free(run);
    return result;
}
