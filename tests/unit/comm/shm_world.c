#include "shm_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/status.h"
#include "samples.h"
#include "test_random.h"

/* Bytes around buffers that nothing may write to. */
#define GUARD 64
#define GUARD_BYTE 0xa5
#define SCRIBBLE_BYTE 0x5a

/* Calls of progress after which an interleaved run is stuck. */
#define CALLS_MAX 20000000

/* A piece of a task on one rank. */
typedef struct cut {
    int64_t begin, count; /* in the task's vector */
    uint8_t *in, *out;    /* out NULL: in place, or none */
    int in_library, out_library;
} cut_t;

typedef struct item {
    cut_t *cuts;
    dt_piece_t *pieces;
    int num_pieces;
    dt_task_t *task;
    dtrain_status_t status;
} item_t;

/* What one rank has. */
typedef struct member {
    shm_world_t *world;
    const shm_task_t *tasks;
    int num_tasks;
    int rank;
    dt_shm_node_t *node;
    dt_backend_t *backend;
    item_t items[SHM_WORLD_TASKS_MAX];
    int num_started, num_left;
    _Atomic int result; /* [atomic] -1: something was wrong, and the others need not wait */
    char why[512];
} member_t;

static int complain(member_t *member, const char *what, int index)
{
    const shm_task_t *task = &member->tasks[index];
    const dt_shm_tuning_t *tuning = &member->world->tuning;
    snprintf(member->why, sizeof member->why,
             "%s: rank %d of %d, task %d (kind %d, count %lld in %d, %s, %s, place %d, buffers "
             "%d), seed %llu, tuning %lld %lld %lld %d: %s",
             what, member->rank, member->world->size, index, (int)task->kind,
             (long long)task->count, task->num_pieces, dt_dtype_name(task->dtype),
             dt_op_name(task->op), (int)task->place, (int)task->buffers,
             (unsigned long long)member->world->seed, (long long)tuning->tiny_bytes,
             (long long)tuning->small_bytes, (long long)tuning->chunk_bytes, tuning->slots,
             dt_last_error());
    member->result = -1;
    return -1;
}

/* ---- Inputs ------------------------------------------------------------------------------ */

/* A rank's whole input of a task. */
static uint8_t *make_vector(const shm_world_t *world, const shm_task_t *task, int index, int rank)
{
    size_t element = dt_dtype_size(task->dtype);
    uint8_t *vector = malloc((size_t)task->count * element + 1);
    uint64_t seed = world->seed * 1000003 + (uint64_t)(rank * SHM_WORLD_TASKS_MAX + index);
    if (!vector)
        abort();
    sample_values(vector, task->count, task->dtype, seed);
    return vector;
}

static dt_reduction_t reduction_of(const shm_world_t *world, const shm_task_t *task)
{
    return (dt_reduction_t){
        .dtype = task->dtype,
        .op = task->op,
        .divisor = task->op == DTRAIN_OP_AVERAGE ? world->size : 1,
        .prescale = task->prescale == 0 ? 1 : task->prescale,
        .postscale = task->postscale == 0 ? 1 : task->postscale,
    };
}

/* What every rank's output must hold. */
static uint8_t *make_expected(const shm_world_t *world, const shm_task_t *task, int index)
{
    void *vectors[SHM_WORLD_MAX];
    dt_reduction_t reduction = reduction_of(world, task);
    if (task->kind == DT_BROADCAST)
        return make_vector(world, task, index, task->root);
    for (int rank = 0; rank < world->size; rank++)
        vectors[rank] = make_vector(world, task, index, rank);
    if (world->variant)
        world->variant->reduce(world, &reduction, vectors, task->count);
    else
        dt_reduce(&reduction, vectors, 1, (const void *const *)vectors, world->size,
                  (size_t)task->count);
    for (int rank = 1; rank < world->size; rank++)
        free(vectors[rank]);
    return vectors[0];
}

/* ---- Buffers ------------------------------------------------------------------------------ */

static uint8_t *make_buffer(member_t *member, size_t bytes, int in_library)
{
    void *memory = NULL;
    bytes += 2 * GUARD;
    if (in_library) {
        if (member->backend->ops->allocate(member->backend, bytes, &memory) != DTRAIN_OK)
            abort();
    } else {
        memory = malloc(bytes);
        if (!memory)
            abort();
    }
    memset(memory, GUARD_BYTE, bytes);
    return (uint8_t *)memory + GUARD;
}

static void free_buffer(member_t *member, uint8_t *buffer, int in_library)
{
    if (!buffer)
        return;
    if (!in_library)
        free(buffer - GUARD);
    else if (member->backend &&
             member->backend->ops->deallocate(member->backend, buffer - GUARD) != 0)
        complain(member, "memory was not taken back", 0);
}

static int guards_hold(const uint8_t *buffer, size_t bytes)
{
    int hold = 1;
    for (int i = 0; buffer && i < GUARD; i++)
        hold &= buffer[i - GUARD] == GUARD_BYTE && buffer[bytes + (size_t)i] == GUARD_BYTE;
    return hold;
}

static int is_private(const member_t *member, int index, int piece, int is_output, uint64_t random)
{
    int which = index / member->world->size % 2;
    switch (member->tasks[index].place) {
    case SHM_PRIVATE:
        return 1;
    case SHM_LIBRARY:
        return 0;
    case SHM_ONE_PRIVATE:
        return piece == 0 && is_output == which && member->rank == index % member->world->size;
    default:
        return (int)(random & 1);
    }
}

static void make_cut(member_t *member, int index, int piece, uint64_t *random)
{
    const shm_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    cut_t *cut = &item->cuts[piece];
    size_t bytes = (size_t)cut->count * dt_dtype_size(task->dtype);
    int is_receiver = task->kind == DT_BROADCAST && task->root != member->rank;
    int in_place = task->buffers == SHM_IN_PLACE ||
                   (task->buffers == SHM_ANY_BUFFERS && test_random(random) % 2);
    cut->in_library = !is_private(member, index, piece, 0, test_random(random));
    cut->out_library = !is_private(member, index, piece, 1, test_random(random));
    if (!is_receiver)
        cut->in = make_buffer(member, bytes, cut->in_library);
    if (is_receiver || (!in_place && task->buffers != SHM_NO_OUTPUT))
        cut->out = make_buffer(member, bytes, cut->out_library);
    item->pieces[piece] = (dt_piece_t){cut->in, cut->out, cut->count};
    if (!is_receiver && in_place)
        item->pieces[piece].out = cut->in;
}

/* Cuts are the same on all ranks, places are not. */
static void make_item(member_t *member, int index)
{
    const shm_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    uint64_t cuts = member->world->seed * 77 + (uint64_t)index;
    uint64_t places = member->world->seed * 99 + (uint64_t)(index * SHM_WORLD_MAX + member->rank);
    int n = task->num_pieces > 0 ? task->num_pieces : 1;
    uint8_t *vector = make_vector(member->world, task, index, member->rank);
    int64_t begin = 0;
    item->num_pieces = n;
    item->status = DTRAIN_IN_PROGRESS;
    item->cuts = calloc((size_t)n, sizeof *item->cuts);
    item->pieces = calloc((size_t)n, sizeof *item->pieces);
    if (!item->cuts || !item->pieces)
        abort();
    for (int i = 0; i < n; i++) {
        cut_t *cut = &item->cuts[i];
        int64_t left = task->count - begin;
        int64_t some = (int64_t)(test_random(&cuts) % (uint64_t)(2 * (left / (n - i)) + 2));
        cut->begin = begin;
        cut->count = i == n - 1 || some > left ? left : some;
        make_cut(member, index, i, &places);
        if (cut->in)
            memcpy(cut->in, vector + (size_t)begin * dt_dtype_size(task->dtype),
                   (size_t)cut->count * dt_dtype_size(task->dtype));
        begin += cut->count;
    }
    free(vector);
}

static void free_item(member_t *member, int index)
{
    item_t *item = &member->items[index];
    for (int i = 0; i < item->num_pieces; i++) {
        free_buffer(member, item->cuts[i].in, item->cuts[i].in_library);
        free_buffer(member, item->cuts[i].out, item->cuts[i].out_library);
    }
    free(item->cuts);
    free(item->pieces);
}

static int check_cut(member_t *member, int index, int piece, const uint8_t *expected,
                     const uint8_t *original)
{
    const shm_task_t *task = &member->tasks[index];
    const cut_t *cut = &member->items[index].cuts[piece];
    const void *out = member->items[index].pieces[piece].out;
    size_t at = (size_t)cut->begin * dt_dtype_size(task->dtype);
    size_t bytes = (size_t)cut->count * dt_dtype_size(task->dtype);
    if (bytes > 0 && out && memcmp(out, expected + at, bytes) != 0)
        return complain(member, "wrong result", index);
    if (!guards_hold(cut->in, bytes) || !guards_hold(cut->out, bytes))
        return complain(member, "written outside a buffer", index);
    if (bytes > 0 && cut->in && out != cut->in && memcmp(cut->in, original + at, bytes) != 0)
        return complain(member, "an input was changed", index);
    return 0;
}

/* What a program does with its buffers once a task is done. */
static void scribble(member_t *member, int index)
{
    size_t element = dt_dtype_size(member->tasks[index].dtype);
    for (int i = 0; i < member->items[index].num_pieces; i++) {
        const cut_t *cut = &member->items[index].cuts[i];
        if (cut->in)
            memset(cut->in, SCRIBBLE_BYTE, (size_t)cut->count * element);
        if (cut->out)
            memset(cut->out, SCRIBBLE_BYTE, (size_t)cut->count * element);
    }
}

static int is_scribbled(const uint8_t *buffer, size_t bytes)
{
    size_t same = 0;
    while (buffer && same < bytes && buffer[same] == SCRIBBLE_BYTE)
        same++;
    return !buffer || same == bytes;
}

/* Nobody may use a buffer of a task that was done. */
static void check_rest(member_t *member, int index)
{
    size_t element = dt_dtype_size(member->tasks[index].dtype);
    for (int i = 0; i < member->items[index].num_pieces && member->result == 0; i++) {
        const cut_t *cut = &member->items[index].cuts[i];
        size_t bytes = (size_t)cut->count * element;
        if (!is_scribbled(cut->in, bytes) || !is_scribbled(cut->out, bytes) ||
            !guards_hold(cut->in, bytes) || !guards_hold(cut->out, bytes))
            complain(member, "written after it was done", index);
    }
}

static void check_item(member_t *member, int index)
{
    const shm_task_t *task = &member->tasks[index];
    uint8_t *expected = make_expected(member->world, task, index);
    uint8_t *original = make_vector(member->world, task, index, member->rank);
    for (int i = 0; i < member->items[index].num_pieces && member->result == 0; i++)
        check_cut(member, index, i, expected, original);
    free(expected);
    free(original);
}

/* ---- A rank ------------------------------------------------------------------------------ */

static void open_member(member_t *member)
{
    member->num_left = member->num_tasks;
    const shm_world_t *world = member->world;
    if (world->variant)
        world->variant->make_backend(world, member->rank, member->node, &member->backend);
    else if (dt_shm_create(member->node, &world->tuning, &member->backend) != DTRAIN_OK)
        abort();
    for (int index = 0; index < member->num_tasks; index++)
        make_item(member, index);
}

/* Buffers of tasks that are given up may be written to until the backend is destroyed, which takes
 * its memory along. */
static void give_up(member_t *member)
{
    for (int index = 0; index < member->num_started; index++) {
        if (member->items[index].task && member->items[index].status != DTRAIN_OK)
            member->backend->ops->release(member->backend, member->items[index].task);
    }
    member->backend->ops->destroy(member->backend, 0);
    member->backend = NULL;
}

static void close_member(member_t *member)
{
    if (member->num_left > 0)
        give_up(member);
    for (int index = 0; index < member->num_tasks; index++) {
        if (member->num_left == 0 && member->result == 0)
            check_rest(member, index);
    }
    for (int index = 0; index < member->num_tasks; index++)
        free_item(member, index);
    if (member->backend)
        member->backend->ops->destroy(member->backend, 1);
}

static int start_next(member_t *member)
{
    int index = member->num_started++;
    const shm_task_t *task = &member->tasks[index];
    item_t *item = &member->items[index];
    dt_collective_t collective = {
        .kind = task->kind == 0 ? DT_ALLREDUCE : task->kind,
        .sequence = (uint64_t)index,
        .reduction = reduction_of(member->world, task),
        .root = task->root,
        .pieces = item->pieces,
        .num_pieces = item->num_pieces,
        .count = task->count,
    };
    if (member->backend->ops->start(member->backend, &collective, &item->task) != DTRAIN_OK)
        return complain(member, "start failed", index);
    return 0;
}

static int progress_one(member_t *member, int index)
{
    item_t *item = &member->items[index];
    if (item->status != DTRAIN_IN_PROGRESS)
        return 0;
    item->status = member->backend->ops->progress(member->backend, item->task);
    if (item->status == DTRAIN_IN_PROGRESS)
        return 0;
    if (item->status != DTRAIN_OK)
        return complain(member, "progress failed", index);
    member->num_left--;
    member->backend->ops->release(member->backend, item->task);
    check_item(member, index);
    scribble(member, index);
    return member->result;
}

/* Starts or progresses what `choice` says, if that can be. */
static int act_once(member_t *member, uint64_t choice)
{
    int index = (int)(choice % (uint64_t)member->num_tasks);
    if (index == member->num_started)
        return start_next(member);
    return index < member->num_started ? progress_one(member, index) : 0;
}

/* Members lie behind each other. */
static int has_failed(const member_t *member)
{
    const member_t *first = member - member->rank;
    int failed = 0;
    for (int rank = 0; rank < member->world->size; rank++)
        failed |= first[rank].result != 0;
    return failed;
}

static void run_alone(member_t *member)
{
    uint64_t random = member->world->seed + (uint64_t)member->rank;
    open_member(member);
    while (member->num_left > 0 && !has_failed(member)) {
        for (int i = 0; i < 4 && member->result == 0; i++)
            act_once(member, test_random(&random));
        sched_yield();
    }
    close_member(member);
}

/* ---- Drivers ------------------------------------------------------------------------------ */

static void run_interleaved(member_t *members, int size, uint64_t seed)
{
    int left = size, failed = 0;
    int64_t calls = 0;
    for (int rank = 0; rank < size; rank++)
        open_member(&members[rank]);
    for (; left > 0 && !failed && calls < CALLS_MAX; calls++) {
        uint64_t choice = test_random(&seed);
        member_t *member = &members[(choice >> 32) % (uint64_t)size];
        if (member->num_left == 0)
            continue;
        failed = act_once(member, choice & 0xffffffff);
        left -= member->num_left == 0;
    }
    for (int rank = 0; rank < size; rank++) {
        if (calls == CALLS_MAX && members[rank].num_left > 0)
            complain(&members[rank], "stuck", 0);
    }
    for (int rank = 0; rank < size; rank++)
        close_member(&members[rank]);
}

static void *thread_main(void *context)
{
    run_alone(context);
    return NULL;
}

static void run_threads(member_t *members, int size)
{
    pthread_t threads[SHM_WORLD_MAX];
    for (int rank = 0; rank < size; rank++) {
        if (pthread_create(&threads[rank], NULL, thread_main, &members[rank]) != 0)
            abort();
    }
    for (int rank = 0; rank < size; rank++)
        pthread_join(threads[rank], NULL);
}

/* `members` is shared with the children, except for what they allocate. */
static void run_processes(member_t *members, int size)
{
    pid_t children[SHM_WORLD_MAX];
    for (int rank = 0; rank < size; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            for (int other = 0; other < size; other++) {
                if (other != rank)
                    dt_shm_node_free(members[other].node);
            }
            run_alone(&members[rank]);
            _exit(0);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        int status = 0;
        if (children[rank] < 0 || waitpid(children[rank], &status, 0) != children[rank] ||
            status != 0)
            complain(&members[rank], "its process failed", 0);
        dt_shm_node_free(members[rank].node);
    }
}

static void make_nodes(const shm_world_t *world, dt_shm_node_t **nodes)
{
    int64_t heap_bytes = world->heap_bytes > 0 ? world->heap_bytes : SHM_WORLD_HEAP;
    if (world->variant)
        world->variant->make_nodes(world, heap_bytes, nodes);
    else if (dt_shm_local_group(world->size, heap_bytes, nodes) != DTRAIN_OK)
        abort();
}

int shm_world_run(shm_world_t *world, const shm_task_t *tasks, int num_tasks)
{
    dt_shm_node_t *nodes[SHM_WORLD_MAX];
    size_t bytes = (size_t)world->size * sizeof(member_t);
    member_t *members =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (members == MAP_FAILED || world->size > SHM_WORLD_MAX || num_tasks > SHM_WORLD_TASKS_MAX)
        abort();
    make_nodes(world, nodes);
    for (int rank = 0; rank < world->size; rank++)
        members[rank] = (member_t){.world = world,
                                   .tasks = tasks,
                                   .num_tasks = num_tasks,
                                   .rank = rank,
                                   .node = nodes[rank]};
    if (world->driver == SHM_PROCESSES)
        run_processes(members, world->size);
    else if (world->driver == SHM_THREADS)
        run_threads(members, world->size);
    else
        run_interleaved(members, world->size, world->seed);
    int result = 0;
    world->why[0] = 0;
    for (int rank = world->size - 1; rank >= 0; rank--) {
        if (members[rank].result == 0)
            continue;
        result = -1;
        memcpy(world->why, members[rank].why, sizeof world->why);
    }
    munmap(members, bytes);
    return result;
}
