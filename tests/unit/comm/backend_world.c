#include "backend_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "samples.h"
#include "test_random.h"

/* Bytes around buffers that nothing may write to. */
#define GUARD 64
#define GUARD_BYTE 0xa5
#define SCRIBBLE_BYTE 0x5a

/* Calls after which an interleaved run is stuck. */
#define CALLS_MAX 5000000

#define RANKS BACKEND_WORLD_MAX

typedef struct buffer {
    uint8_t *data; /* NULL: there is none */
    size_t bytes;
    int in_library;
} buffer_t;

/* A task on one rank. */
typedef struct item {
    int rank, size; /* in the task's set; rank -1: this one is not in it */
    int64_t counts[RANKS], recv_counts[RANKS];
    int64_t in_count, out_count;
    buffer_t in, out; /* in place one of them is the whole, and the other has no data */
    dt_piece_t piece;
    dt_task_t *task;
    dtrain_status_t status;
} item_t;

typedef struct member {
    backend_world_t *world;
    const backend_task_t *tasks;
    int num_tasks;
    int rank;
    item_t items[BACKEND_TASKS_MAX];
    int num_started, num_left;
    uint64_t sequences[BACKEND_SETS_MAX + 1];
    _Atomic int *failed; /* shared by all */
    char why[512];
} member_t;

static uint64_t hash(const backend_world_t *world, int a, int b, int c)
{
    uint64_t state = world->seed * 1000003 + (uint64_t)((a * 64 + b) * 64 + c);
    return test_random(&state);
}

static int complain(member_t *member, const char *what, int index)
{
    const backend_task_t *task = &member->tasks[index];
    snprintf(
        member->why, sizeof member->why,
        "%s: rank %d of %d, task %d (kind %d, set %d, root %d, longest %lld, %s, %s, place %d, "
        "in place %d), seed %llu: %s",
        what, member->rank, member->world->size, index, (int)task->kind, task->set, task->root,
        (long long)task->longest, dt_dtype_name(task->dtype), dt_op_name(task->op),
        (int)task->place, task->in_place, (unsigned long long)member->world->seed, dt_last_error());
    *member->failed = 1;
    return -1;
}

/* ---- The model --------------------------------------------------------------------------- */

static int set_size(const backend_world_t *world, const backend_task_t *task)
{
    return task->set == 0 ? world->size : world->sets[task->set - 1].size;
}

/* A world rank's number in a task's set, or -1; and the other way round. */
static int rank_in_set(const backend_world_t *world, const backend_task_t *task, int rank)
{
    if (task->set == 0)
        return rank;
    for (int i = 0; i < world->sets[task->set - 1].size; i++) {
        if (world->sets[task->set - 1].ranks[i] == rank)
            return i;
    }
    return -1;
}

static int64_t any_count(const backend_world_t *world, int index, int64_t longest, int from, int to)
{
    uint64_t random = hash(world, index + 64, from, to);
    return random % 4 == 0 ? 0 : (int64_t)((random >> 8) % (uint64_t)(longest + 1));
}

/* What goes from one rank of the set to another; of other kinds but EXCHANGE, what is `to`'s. */
static int64_t count_of(const backend_world_t *world, const backend_task_t *task, int index,
                        int from, int to)
{
    return any_count(world, index, task->longest, task->kind == DT_EXCHANGE ? from : 0, to);
}

static int64_t in_count(const backend_world_t *world, const backend_task_t *task, int index,
                        int rank)
{
    int64_t count = 0;
    if (task->kind == DT_ALLGATHER)
        return count_of(world, task, index, 0, rank);
    if (task->kind != DT_REDUCE_SCATTER && task->kind != DT_EXCHANGE)
        return task->longest;
    for (int to = 0; to < set_size(world, task); to++)
        count += count_of(world, task, index, rank, to);
    return count;
}

static int64_t out_count(const backend_world_t *world, const backend_task_t *task, int index,
                         int rank)
{
    int64_t count = 0;
    if (task->kind == DT_REDUCE_SCATTER)
        return count_of(world, task, index, 0, rank);
    if (task->kind != DT_ALLGATHER && task->kind != DT_EXCHANGE)
        return task->longest;
    for (int from = 0; from < set_size(world, task); from++)
        count += task->kind == DT_EXCHANGE ? count_of(world, task, index, from, rank)
                                           : count_of(world, task, index, 0, from);
    return count;
}

/* Where the part of `rank` begins in what `owner` brings (EXCHANGE) or all have. */
static int64_t place_of(const backend_world_t *world, const backend_task_t *task, int index,
                        int owner, int rank)
{
    int64_t place = 0;
    for (int i = 0; i < rank; i++)
        place += count_of(world, task, index, owner, i);
    return place;
}

/* The whole input of a rank of the set. */
static uint8_t *make_input(const backend_world_t *world, const backend_task_t *task, int index,
                           int rank)
{
    size_t element = dt_dtype_size(task->dtype);
    int64_t count = in_count(world, task, index, rank);
    uint8_t *input = malloc((size_t)count * element + 1);
    if (!input)
        abort();
    sample_values(input, count, task->dtype, hash(world, index, rank, 1));
    return input;
}

static dt_reduction_t reduction_of(const backend_world_t *world, const backend_task_t *task)
{
    return (dt_reduction_t){
        .dtype = task->dtype,
        .op = task->op,
        .divisor = task->op == DTRAIN_OP_AVERAGE ? set_size(world, task) : 1,
        .prescale = task->prescale == 0 ? 1 : task->prescale,
        .postscale = task->postscale == 0 ? 1 : task->postscale,
    };
}

static void reduce_all(const backend_world_t *world, const backend_task_t *task, void **vectors,
                       int64_t count)
{
    dt_reduction_t reduction = reduction_of(world, task);
    if (world->reduce && task->set == 0)
        world->reduce(world, &reduction, vectors, count);
    else
        dt_reduce(&reduction, vectors, 1, (const void *const *)vectors, set_size(world, task),
                  (size_t)count);
}

/* What a rank's output must hold, in the order of ranks. */
static uint8_t *make_expected(const backend_world_t *world, const backend_task_t *task, int index,
                              int rank)
{
    size_t element = dt_dtype_size(task->dtype);
    int size = set_size(world, task);
    void *inputs[RANKS];
    uint8_t *expected = malloc((size_t)out_count(world, task, index, rank) * element + 1);
    uint8_t *at = expected;
    if (!expected)
        abort();
    for (int i = 0; i < size; i++)
        inputs[i] = make_input(world, task, index, i);
    int reduces =
        task->kind == DT_ALLREDUCE || task->kind == DT_REDUCE || task->kind == DT_REDUCE_SCATTER;
    if (reduces)
        reduce_all(world, task, inputs, in_count(world, task, index, 0));
    for (int from = 0; from < size; from++) {
        int64_t begin = 0, count = 0;
        if (task->kind == DT_ALLGATHER) {
            count = count_of(world, task, index, 0, from);
        } else if (task->kind == DT_EXCHANGE) {
            begin = place_of(world, task, index, from, rank);
            count = count_of(world, task, index, from, rank);
        } else if (from == (task->kind == DT_BROADCAST ? task->root : 0)) {
            count = out_count(world, task, index, rank);
            begin = task->kind == DT_REDUCE_SCATTER ? place_of(world, task, index, 0, rank) : 0;
        }
        memcpy(at, (uint8_t *)inputs[from] + (size_t)begin * element, (size_t)count * element);
        at += (size_t)count * element;
    }
    for (int i = 0; i < size; i++)
        free(inputs[i]);
    return expected;
}

/* ---- Buffers ----------------------------------------------------------------------------- */

static buffer_t make_buffer(const member_t *member, size_t bytes, int in_library)
{
    dt_backend_t *backend = member->world->backends[0][member->rank];
    void *memory = NULL;
    in_library = in_library && backend->ops->allocate;
    if (in_library) {
        if (backend->ops->allocate(backend, bytes + 2 * GUARD, &memory) != DTRAIN_OK)
            abort();
    } else {
        memory = malloc(bytes + 2 * GUARD);
    }
    if (!memory)
        abort();
    memset(memory, GUARD_BYTE, bytes + 2 * GUARD);
    return (buffer_t){(uint8_t *)memory + GUARD, bytes, in_library};
}

static void free_buffer(member_t *member, const buffer_t *buffer)
{
    dt_backend_t *backend = member->world->backends[0][member->rank];
    if (!buffer->data)
        return;
    if (!buffer->in_library)
        free(buffer->data - GUARD);
    else if (backend->ops->deallocate(backend, buffer->data - GUARD) != 0)
        complain(member, "memory was not taken back", 0);
}

static int guards_hold(const buffer_t *buffer)
{
    int hold = 1;
    for (int i = 0; buffer->data && i < GUARD; i++)
        hold &= buffer->data[i - GUARD] == GUARD_BYTE &&
                buffer->data[buffer->bytes + (size_t)i] == GUARD_BYTE;
    return hold;
}

static int is_in_library(const backend_task_t *task, uint64_t random)
{
    return task->place == BACKEND_ANY ? (int)(random & 1) : task->place == BACKEND_LIBRARY;
}

/* Whether a rank of the set has an output of its own. */
static int has_output(const backend_task_t *task, int rank)
{
    return task->kind != DT_REDUCE || task->root == rank;
}

/* Whether it has an input. */
static int has_input(const backend_task_t *task, int rank)
{
    return task->kind != DT_BROADCAST || task->root == rank;
}

static void make_in_place(member_t *member, int index, const uint8_t *input, int in_library)
{
    const backend_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    size_t element = dt_dtype_size(task->dtype);
    size_t in_bytes = (size_t)item->in_count * element;
    size_t place = task->kind == DT_REDUCE_SCATTER || task->kind == DT_ALLGATHER
                       ? (size_t)place_of(member->world, task, index, 0, item->rank) * element
                       : 0;
    if (task->kind == DT_ALLGATHER) {
        item->out = make_buffer(member, (size_t)item->out_count * element, in_library);
        item->piece.out = item->out.data;
        item->piece.in = item->out.data + place;
        memcpy(item->out.data + place, input, in_bytes);
    } else {
        item->in = make_buffer(member, in_bytes, in_library);
        item->piece.in = item->in.data;
        item->piece.out = item->in.data + place;
        memcpy(item->in.data, input, in_bytes);
    }
}

static void make_buffers(member_t *member, int index)
{
    const backend_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    size_t element = dt_dtype_size(task->dtype);
    uint64_t random = hash(member->world, index, member->rank, 2);
    uint8_t *input = make_input(member->world, task, index, item->rank);
    int in_place = task->in_place < 0 ? (int)(random >> 8) & 1 : task->in_place;
    if (in_place && task->kind != DT_EXCHANGE && has_input(task, item->rank) &&
        has_output(task, item->rank)) {
        make_in_place(member, index, input, is_in_library(task, random));
    } else {
        if (has_input(task, item->rank)) {
            item->in =
                make_buffer(member, (size_t)item->in_count * element, is_in_library(task, random));
            memcpy(item->in.data, input, (size_t)item->in_count * element);
        }
        if (has_output(task, item->rank))
            item->out = make_buffer(member, (size_t)item->out_count * element,
                                    is_in_library(task, random >> 1));
        item->piece.in = item->in.data;
        item->piece.out = item->out.data;
    }
    free(input);
}

static void make_item(member_t *member, int index)
{
    const backend_world_t *world = member->world;
    const backend_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    item->rank = rank_in_set(world, task, member->rank);
    item->size = set_size(world, task);
    item->status = DTRAIN_IN_PROGRESS;
    if (item->rank < 0) {
        item->status = DTRAIN_OK;
        return;
    }
    for (int i = 0; i < item->size; i++) {
        item->counts[i] = count_of(world, task, index, item->rank, i);
        item->recv_counts[i] = count_of(world, task, index, i, item->rank);
    }
    item->in_count = in_count(world, task, index, item->rank);
    item->out_count = out_count(world, task, index, item->rank);
    make_buffers(member, index);
    item->piece.count = item->in_count > item->out_count ? item->in_count : item->out_count;
}

/* ---- Checks ------------------------------------------------------------------------------ */

static int check_item(member_t *member, int index)
{
    const backend_task_t *task = &member->tasks[index];
    const item_t *item = &member->items[index];
    size_t element = dt_dtype_size(task->dtype);
    uint8_t *expected = make_expected(member->world, task, index, item->rank);
    uint8_t *input = make_input(member->world, task, index, item->rank);
    int result = 0;
    if (has_output(task, item->rank) &&
        memcmp(item->piece.out, expected, (size_t)item->out_count * element) != 0)
        result = complain(member, "wrong result", index);
    else if (!guards_hold(&item->in) || !guards_hold(&item->out))
        result = complain(member, "written outside a buffer", index);
    else if (item->in.data && (item->out.data || !has_output(task, item->rank)) &&
             memcmp(item->in.data, input, item->in.bytes) != 0)
        result = complain(member, "an input was changed", index);
    free(expected);
    free(input);
    return result;
}

/* What a program does with its buffers once a task is done. */
static void scribble(const item_t *item)
{
    if (item->in.data)
        memset(item->in.data, SCRIBBLE_BYTE, item->in.bytes);
    if (item->out.data)
        memset(item->out.data, SCRIBBLE_BYTE, item->out.bytes);
}

static int is_scribbled(const buffer_t *buffer)
{
    size_t same = 0;
    while (buffer->data && same < buffer->bytes && buffer->data[same] == SCRIBBLE_BYTE)
        same++;
    return !buffer->data || same == buffer->bytes;
}

/* Nobody may use a buffer of a task that was done. */
static void check_rest(member_t *member, int index)
{
    const item_t *item = &member->items[index];
    if (!is_scribbled(&item->in) || !is_scribbled(&item->out) || !guards_hold(&item->in) ||
        !guards_hold(&item->out))
        complain(member, "written after it was done", index);
}

/* ---- A rank ------------------------------------------------------------------------------ */

static void open_member(member_t *member)
{
    backend_world_t *world = member->world;
    dt_backend_t *all = world->backends[0][member->rank];
    for (int s = 1; s <= world->num_sets && !world->keeps_sets; s++) {
        const backend_set_t *set = &world->sets[s - 1];
        const backend_task_t in_set = {.set = s};
        if (rank_in_set(world, &in_set, member->rank) >= 0 &&
            all->ops->subset(all, set->ranks, set->size, set->number,
                             &world->backends[s][member->rank]) != DTRAIN_OK)
            complain(member, "a set was not made", 0);
    }
    for (int index = 0; index < member->num_tasks; index++)
        make_item(member, index);
    for (int index = 0; index < member->num_tasks; index++)
        member->num_left += member->items[index].status != DTRAIN_OK;
}

static void close_member(member_t *member)
{
    backend_world_t *world = member->world;
    for (int s = 1; s <= world->num_sets && !world->keeps_sets; s++) {
        dt_backend_t *set = world->backends[s][member->rank];
        if (set)
            set->ops->destroy(set, !*member->failed);
        world->backends[s][member->rank] = NULL;
    }
}

static void free_member(member_t *member)
{
    for (int index = 0; index < member->num_tasks; index++)
        check_rest(member, index);
    for (int index = 0; index < member->num_tasks; index++) {
        free_buffer(member, &member->items[index].in);
        free_buffer(member, &member->items[index].out);
    }
}

static int start_next(member_t *member)
{
    int index = member->num_started++;
    const backend_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    dt_backend_t *backend = member->world->backends[task->set][member->rank];
    if (item->rank < 0)
        return 0;
    dt_collective_t collective = {
        .kind = task->kind,
        .sequence = member->sequences[task->set]++,
        .reduction = reduction_of(member->world, task),
        .root = task->root,
        .pieces = &item->piece,
        .num_pieces = 1,
        .count = item->piece.count,
        .counts = item->counts,
        .recv_counts = item->recv_counts,
    };
    if (backend->ops->start(backend, &collective, &item->task) != DTRAIN_OK)
        return complain(member, "start failed", index);
    return 0;
}

static int progress_one(member_t *member, int index)
{
    item_t *item = &member->items[index];
    dt_backend_t *backend = member->world->backends[member->tasks[index].set][member->rank];
    if (item->status != DTRAIN_IN_PROGRESS)
        return 0;
    item->status = backend->ops->progress(backend, item->task);
    if (item->status == DTRAIN_IN_PROGRESS)
        return 0;
    if (item->status != DTRAIN_OK)
        return complain(member, "progress failed", index);
    member->num_left--;
    backend->ops->release(backend, item->task);
    int result = check_item(member, index);
    scribble(item);
    return result;
}

/* Starts or progresses what `choice` says, if that can be. */
static void act_once(member_t *member, uint64_t choice)
{
    int index = (int)(choice % (uint64_t)member->num_tasks);
    if (index == member->num_started)
        start_next(member);
    else if (index < member->num_started)
        progress_one(member, index);
}

/* ---- Drivers ------------------------------------------------------------------------------ */

static void run_interleaved(member_t *members, int size, uint64_t seed)
{
    int64_t calls = 0;
    int left = 1;
    for (int rank = 0; rank < size; rank++)
        open_member(&members[rank]);
    for (; left > 0 && !*members->failed && calls < CALLS_MAX; calls++) {
        uint64_t choice = test_random(&seed);
        member_t *member = &members[(choice >> 32) % (uint64_t)size];
        if (member->num_left > 0)
            act_once(member, choice & 0xffffffff);
        left = 0;
        for (int rank = 0; rank < size; rank++)
            left += members[rank].num_left;
    }
    if (left > 0 && !*members->failed)
        complain(&members[0], "stuck", 0);
    for (int rank = 0; rank < size; rank++)
        close_member(&members[rank]);
}

static void *run_alone(void *context)
{
    member_t *member = context;
    uint64_t random = member->world->seed + (uint64_t)member->rank;
    open_member(member);
    while (member->num_left > 0 && !*member->failed) {
        for (int i = 0; i < 4; i++)
            act_once(member, test_random(&random));
        sched_yield();
    }
    close_member(member);
    return NULL;
}

static void run_threads(member_t *members, int size)
{
    pthread_t threads[RANKS];
    for (int rank = 0; rank < size; rank++) {
        if (pthread_create(&threads[rank], NULL, run_alone, &members[rank]) != 0)
            abort();
    }
    for (int rank = 0; rank < size; rank++)
        pthread_join(threads[rank], NULL);
}

int backend_world_run(backend_world_t *world, const backend_task_t *tasks, int num_tasks)
{
    _Atomic int failed = 0;
    member_t *members = calloc((size_t)world->size, sizeof *members);
    if (!members || world->size > RANKS || num_tasks > BACKEND_TASKS_MAX)
        abort();
    for (int rank = 0; rank < world->size; rank++) {
        members[rank].world = world;
        members[rank].tasks = tasks;
        members[rank].num_tasks = num_tasks;
        members[rank].rank = rank;
        members[rank].failed = &failed;
    }
    if (world->has_threads)
        run_threads(members, world->size);
    else
        run_interleaved(members, world->size, world->seed);
    world->why[0] = 0;
    int is_over = failed;
    for (int rank = 0; rank < world->size && !is_over; rank++)
        free_member(&members[rank]);
    for (int rank = world->size - 1; rank >= 0; rank--) {
        if (members[rank].why[0])
            memcpy(world->why, members[rank].why, sizeof world->why);
    }
    if (is_over)
        world->rest = members;
    else
        free(members);
    return failed ? -1 : 0;
}

void backend_world_free_rest(backend_world_t *world)
{
    member_t *members = world->rest;
    for (int rank = 0; members && rank < world->size; rank++) {
        for (int index = 0; index < members[rank].num_tasks; index++) {
            const item_t *item = &members[rank].items[index];
            if (item->in.data && !item->in.in_library)
                free(item->in.data - GUARD);
            if (item->out.data && !item->out.in_library)
                free(item->out.data - GUARD);
        }
    }
    free(members);
    world->rest = NULL;
}

/* ---- Tasks -------------------------------------------------------------------------------- */

backend_task_t backend_any_task(const backend_world_t *world, int64_t longest, uint64_t *random)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64, DTRAIN_DTYPE_BF16,
                                            DTRAIN_DTYPE_U8,  DTRAIN_DTYPE_I32, DTRAIN_DTYPE_F32};
    uint64_t choice = test_random(random);
    uint64_t most = choice % 3 == 0 ? (uint64_t)longest : 1 + (uint64_t)longest / 40;
    backend_task_t task = {.kind = (dt_collective_kind_t)(1 + (choice >> 4) % 6)};
    task.dtype = dtypes[(choice >> 8) % 6];
    task.op = (choice >> 12) % 4 == 0 ? DTRAIN_OP_MAX : DTRAIN_OP_SUM;
    task.set = (int)((choice >> 16) % (uint64_t)(world->num_sets + 1));
    task.root = (int)((choice >> 24) % (uint64_t)set_size(world, &task));
    task.longest = (int64_t)(test_random(random) % (most + 1));
    task.place = (backend_place_t)((choice >> 32) % 3);
    task.in_place = (int)((choice >> 40) % 3) - 1;
    return task;
}
