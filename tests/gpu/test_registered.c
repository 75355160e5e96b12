/*
 * test_registered.c [LEVEL] - results are right whatever memory tensors lie in, and NCCL never sees
 * registered memory of some ranks only, which the stand-in takes for an error. LEVEL, with the
 * stand-in, is what NCCL is to have been told of: none, blocks or windows.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"

#define COUNT 1000

static int rank, size;
static int level = -1; /* 0 none, 1 blocks, 2 windows; -1: not looked at */

/* ---- Memory of either kind ------------------------------------------------------------------ */

typedef struct memory {
    float *values;
    int is_own; /* from dtrain_mem_alloc */
} memory_t;

static memory_t new_memory(int is_own, int64_t count)
{
    memory_t memory = {.is_own = is_own};
    size_t bytes = (size_t)count * sizeof *memory.values;
    if (is_own)
        memory.values = device_new(bytes);
    else
        CUDA_OK(cudaMalloc((void **)&memory.values, bytes));
    return memory;
}

static void free_memory(memory_t memory)
{
    if (memory.is_own)
        CHECK_OK(dtrain_mem_free(memory.values));
    else
        CUDA_OK(cudaFree(memory.values));
}

/* How many collectives NCCL has had with memory of a kind; 0 for the real one, which does not say.
 */
static int count_of(int kind)
{
    static int (*count)(int kind);
    void *nccl = count ? NULL : dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (nccl)
        *(void **)&count = dlsym(nccl, "standin_count_operations");
    return count && level >= 0 ? count(kind) : 0;
}

/* Of what was done since, at least one collective was of this kind, and none of another. */
typedef struct counts {
    int of[3];
} counts_t;

static counts_t count_now(void)
{
    return (counts_t){{count_of(0), count_of(1), count_of(2)}};
}

static void check_only(counts_t before, int kind)
{
    counts_t now = count_now();
    if (level < 0)
        return;
    for (int i = 0; i < 3; i++)
        CHECK((now.of[i] > before.of[i]) == (i == kind));
}

/* ---- Operations ----------------------------------------------------------------------------- */

typedef enum kind {
    ALLREDUCE,
    AVERAGE,
    REDUCE,
    BROADCAST,
    REDUCESCATTER,
    REDUCESCATTER_UNEVEN,
    ALLGATHER,
    ALLGATHER_UNEVEN,
    ALLTOALL,
    KINDS
} kind_t;

static dtrain_status_t start(kind_t kind, const dtrain_tensor_t *tensor, dtrain_handle_t *handle)
{
    dtrain_options_t options = {.struct_size = sizeof options};
    switch (kind) {
    case AVERAGE:
        options.op = DTRAIN_OP_AVERAGE;
        return dtrain_allreduce_async(tensor, &options, handle);
    case REDUCE:
        return dtrain_reduce_async(tensor, size - 1, &options, handle);
    case BROADCAST:
        return dtrain_broadcast_async(tensor, size - 1, &options, handle);
    case REDUCESCATTER:
    case REDUCESCATTER_UNEVEN:
        return dtrain_reducescatter_async(tensor, &options, handle);
    case ALLGATHER:
    case ALLGATHER_UNEVEN:
        return dtrain_allgather_async(tensor, &options, handle);
    case ALLTOALL:
        return dtrain_alltoall_async(tensor, NULL, 0, &options, handle);
    default:
        return dtrain_allreduce_async(tensor, &options, handle);
    }
}

/* Rows of one element. */
static int64_t rows_of(kind_t kind, int of_rank)
{
    switch (kind) {
    case ALLGATHER_UNEVEN:
        return 10 + of_rank;
    case ALLGATHER:
        return 10;
    case REDUCESCATTER_UNEVEN:
        return 4 * size + 1;
    case REDUCESCATTER:
    case ALLTOALL:
        return 4 * size;
    default:
        return COUNT;
    }
}

static float value_of(int of_rank, int64_t i)
{
    return (float)(1 + (i + 3 * of_rank) % 7);
}

static float sum_at(int64_t i)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += value_of(r, i);
    return sum;
}

/* Of `count` values that come from rank r's place `first`. */
static int is_from(const float *values, int r, int64_t first, int64_t count)
{
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += values[i] != value_of(r, first + i);
    return wrong == 0;
}

static int is_sum(const float *values, int64_t first, int64_t count, float divisor)
{
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += values[i] != sum_at(first + i) / divisor;
    return wrong == 0;
}

static void check_result(kind_t kind, const float *out)
{
    int64_t rows = rows_of(kind, rank), first = 0;
    switch (kind) {
    case REDUCE:
        CHECK(rank != size - 1 || is_sum(out, 0, rows, 1));
        break;
    case BROADCAST:
        CHECK(is_from(out, size - 1, 0, rows));
        break;
    case REDUCESCATTER:
    case REDUCESCATTER_UNEVEN:
        for (int r = 0; r < rank; r++)
            first += rows / size + (r < rows % size);
        CHECK(is_sum(out, first, rows / size + (rank < rows % size), 1));
        break;
    case ALLGATHER:
    case ALLGATHER_UNEVEN:
        for (int r = 0; r < size; r++) {
            CHECK(is_from(out + first, r, 0, rows_of(kind, r)));
            first += rows_of(kind, r);
        }
        break;
    case ALLTOALL:
        for (int r = 0; r < size; r++)
            CHECK(is_from(out + (ptrdiff_t)4 * r, r, 4L * rank, 4));
        break;
    default:
        CHECK(is_sum(out, 0, rows, kind == AVERAGE ? (float)size : 1));
        break;
    }
}

/* One operation, with the input and the output there. */
static void check_operation(kind_t kind, float *in, float *out)
{
    char name[32];
    float host[COUNT] = {0};
    int64_t rows = rows_of(kind, rank);
    dtrain_handle_t handle = 0;
    for (int64_t i = 0; i < rows; i++)
        host[i] = value_of(rank, i);
    device_write(in, host, (size_t)rows * sizeof *host);
    snprintf(name, sizeof name, "kind %d", (int)kind);
    dtrain_tensor_t tensor = device_tensor(name, in, out, &rows, DTRAIN_DTYPE_F32);
    tensor.out_bytes = sizeof host;
    if (CHECK_OK(start(kind, &tensor, &handle)))
        CHECK_OK(check_finish(handle));
    device_read(host, out, sizeof host);
    check_result(kind, host);
}

static int can_be_in_place(kind_t kind)
{
    return kind == ALLREDUCE || kind == AVERAGE || kind == REDUCE || kind == BROADCAST;
}

/* ---- Tests ---------------------------------------------------------------------------------- */

/* All ranks' memory is registered; then that of one is not; then all again. What was registered
 * before must not be brought where one rank has other memory. */
static void test_kinds(void)
{
    memory_t own_in = new_memory(1, COUNT), own_out = new_memory(1, COUNT);
    memory_t other_in = new_memory(0, COUNT), other_out = new_memory(0, COUNT);
    check_operation(ALLREDUCE, own_in.values, own_out.values); /* connects */
    for (int kind = 0; kind < KINDS; kind++) {
        for (int round = 0; round < 5; round++) {
            int is_odd = round % 2 && rank == round % size;
            counts_t before = count_now();
            check_operation((kind_t)kind, is_odd ? other_in.values : own_in.values,
                            is_odd ? other_out.values : own_out.values);
            if (kind != ALLTOALL)
                check_only(before, round % 2 == 0 && level > 0);
            if (can_be_in_place((kind_t)kind))
                check_operation((kind_t)kind, is_odd ? other_in.values : own_in.values,
                                is_odd ? other_in.values : own_in.values);
            /* One of the two alone. */
            check_operation((kind_t)kind, is_odd ? other_in.values : own_in.values, own_out.values);
            check_operation((kind_t)kind, own_in.values,
                            is_odd ? other_out.values : own_out.values);
        }
    }
    free_memory(own_in);
    free_memory(own_out);
    free_memory(other_in);
    free_memory(other_out);
}

/* An address comes again, as other memory. */
static void test_freed_and_allocated_anew(void)
{
    for (int round = 0; round < 12; round++) {
        int is_own = round % 3 != 2 || rank % 2 == 0;
        memory_t memory = new_memory(is_own, COUNT * (1 + round % 2));
        check_operation(ALLREDUCE, memory.values, memory.values);
        free_memory(memory);
    }
}

/* Tensors in one block, at places that differ by rank. */
static void test_places_in_a_block(void)
{
    memory_t memory = new_memory(1, (int64_t)COUNT * (size + 2));
    for (int round = 0; round < 3; round++) {
        float *at = memory.values + (ptrdiff_t)COUNT * rank;
        counts_t before = count_now();
        check_operation(ALLREDUCE, at, at + COUNT);
        check_only(before, level > 0);
    }
    free_memory(memory);
}

/* Communicators know memory each for itself; it is freed while both live, and after one is gone. */
static void test_process_sets(void)
{
    int ranks[2] = {0, size - 1};
    float value = 3;
    dtrain_pset_t pset;
    if (size < 2)
        return;
    memory_t kept = new_memory(1, COUNT);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(dtrain_pset_add(ranks, 2, &pset));
        memory_t memory = new_memory(round != 1 || rank > 0, COUNT);
        check_operation(ALLREDUCE, memory.values, memory.values);
        for (int i = 0; i < 4 && (rank == 0 || rank == size - 1); i++) {
            float *values = i % 2 ? kept.values : memory.values;
            int64_t one = 1;
            dtrain_handle_t handle = 0;
            dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
            dtrain_tensor_t tensor =
                device_tensor("in the set", values, values, &one, DTRAIN_DTYPE_F32);
            device_write(values, &value, sizeof value);
            if (CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle)))
                CHECK_OK(check_finish(handle));
            float sum = 0;
            device_read(&sum, values, sizeof sum);
            CHECK(sum == 2 * value);
        }
        if (round < 2)
            free_memory(memory);
        CHECK_OK(dtrain_barrier());
        CHECK_OK(dtrain_pset_remove(pset));
        if (round == 2)
            free_memory(memory);
    }
    free_memory(kept);
}

/* A rank that has joined stands in with memory that nobody has registered. */
static void test_join(void)
{
    memory_t memory = new_memory(1, COUNT);
    int last;
    check_operation(ALLREDUCE, memory.values, memory.values);
    if (rank != 0) {
        CHECK_OK(dtrain_join(&last));
        free_memory(memory);
        return;
    }
    float values[COUNT];
    int64_t count = COUNT;
    dtrain_handle_t handle = 0;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    device_write(memory.values, values, sizeof values);
    dtrain_tensor_t tensor =
        device_tensor("kind 0", memory.values, memory.values, &count, DTRAIN_DTYPE_F32);
    if (CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handle)))
        CHECK_OK(check_finish(handle));
    CHECK_OK(dtrain_join(&last));
    device_read(values, memory.values, sizeof values);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += values[i] != (float)i;
    CHECK(wrong == 0);
    free_memory(memory);
}

/* ---- Gradient sets -------------------------------------------------------------------------- */

#define PARAMS 3
#define SEVERAL 16384 /* bytes of a bucket: several a set */
#define ONE 1000000

/* `own`: the second gradient lies in this memory. Several buckets that are agreed on at once are
 * packed. */
static dtrain_gradset_t *new_set(const char *name, float *own, int64_t bucket_bytes)
{
    static const int64_t counts[PARAMS] = {COUNT, 7, 5000};
    static const char *const names[PARAMS] = {"a", "b", "c"};
    dtrain_param_t params[PARAMS];
    dtrain_gradset_t *set = NULL;
    for (int i = 0; i < PARAMS; i++)
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = &counts[i],
                                     .dtype = DTRAIN_DTYPE_F32,
                                     .gradient = i == 1 ? own : NULL};
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc,
                                  .name = name,
                                  .device = DTRAIN_DEVICE_CUDA,
                                  .op = DTRAIN_OP_SUM,
                                  .bucket_bytes = bucket_bytes};
    CHECK_OK(dtrain_gradset_create(&desc, params, PARAMS, &set));
    return set;
}

/* A few steps, in memory of the wanted kind. */
static void check_steps(dtrain_gradset_t *set, int kind)
{
    counts_t before = count_now();
    for (int step = 0; step < 3; step++) {
        for (int i = PARAMS - 1; i >= 0; i--) {
            float values[7];
            void *gradient = NULL;
            CHECK_OK(dtrain_gradset_buffer(set, i, &gradient));
            for (int e = 0; e < 7; e++)
                values[e] = value_of(rank, e + i + step);
            device_write(gradient, values, sizeof values);
            CHECK_OK(dtrain_gradset_ready(set, i, NULL));
        }
        CHECK_OK(dtrain_gradset_wait(set));
        for (int i = 0; i < PARAMS; i++) {
            float values[7];
            void *gradient = NULL;
            CHECK_OK(dtrain_gradset_buffer(set, i, &gradient));
            device_read(values, gradient, sizeof values);
            CHECK(is_sum(values, i + step, 7, 1));
        }
    }
    check_only(before, kind);
}

static void test_gradient_sets(void)
{
    memory_t own = new_memory(0, COUNT);
    dtrain_gradset_t *first = new_set("first", NULL, SEVERAL),
                     *second = new_set("second", own.values, SEVERAL);
    void *gradient = NULL;
    check_steps(first, level);
    check_steps(second, level);
    /* As any other tensor it is at a place that other ranks need not have. */
    CHECK_OK(dtrain_gradset_buffer(rank % 2 ? first : second, 0, &gradient));
    counts_t before = count_now();
    check_operation(ALLREDUCE, gradient, gradient);
    check_only(before, level == 1);
    check_steps(first, level);
    CHECK_OK(dtrain_gradset_destroy(first));
    check_steps(second, level);
    dtrain_gradset_t *third = new_set("third", NULL, SEVERAL);
    check_steps(third, level);
    /* Where ranks have not destroyed the same ones there is no new window, and all works. */
    if (rank % 2)
        CHECK_OK(dtrain_gradset_destroy(second));
    dtrain_gradset_t *fourth = new_set("fourth", NULL, ONE);
    check_steps(fourth, size > 1 && level == 2 ? 1 : level);
    if (rank % 2 == 0)
        CHECK_OK(dtrain_gradset_destroy(second));
    check_steps(third, level);
    dtrain_gradset_t *fifth = new_set("fifth", NULL, SEVERAL);
    check_steps(fifth, level);
    CHECK_OK(dtrain_gradset_destroy(fourth));
    CHECK_OK(dtrain_gradset_destroy(third));
    CHECK_OK(dtrain_gradset_destroy(fifth));
    free_memory(own);
}

/* A rank that has joined stands in for a gradient set's bucket with memory that is no window. */
static void test_gradient_set_and_join(void)
{
    dtrain_gradset_t *set = new_set("joined", NULL, ONE);
    int last, wrong = 0;
    check_steps(set, level);
    counts_t before = count_now();
    for (int i = 0; i < PARAMS && rank == 0; i++) {
        void *gradient = NULL;
        float values[7] = {1, 2, 3, 4, 5, 6, 7};
        CHECK_OK(dtrain_gradset_buffer(set, i, &gradient));
        device_write(gradient, values, sizeof values);
        CHECK_OK(dtrain_gradset_ready(set, i, NULL));
    }
    if (rank == 0)
        CHECK_OK(dtrain_gradset_wait(set));
    CHECK_OK(dtrain_join(&last));
    for (int i = 0; i < PARAMS && rank == 0; i++) {
        void *gradient = NULL;
        float values[7];
        CHECK_OK(dtrain_gradset_buffer(set, i, &gradient));
        device_read(values, gradient, sizeof values);
        for (int e = 0; e < 7; e++)
            wrong += values[e] != (float)(e + 1);
    }
    CHECK(wrong == 0);
    check_only(before, size > 1 ? 0 : level);
    CHECK_OK(dtrain_gradset_destroy(set));
}

/* ---- Threads -------------------------------------------------------------------------------- */

typedef struct worker {
    char name[16];
    int failures; /* checks are the main thread's */
} worker_t;

/* One thread frees what it has used while another one's operations go on. */
static void *run_worker(void *argument)
{
    worker_t *worker = argument;
    for (int round = 0; round < 40; round++) {
        int64_t count = 500;
        float values[500];
        void *memory = NULL;
        dtrain_handle_t handle = 0;
        for (int i = 0; i < 500; i++)
            values[i] = (float)(rank + i);
        worker->failures +=
            dtrain_mem_alloc(&memory, sizeof values, DTRAIN_DEVICE_CUDA) != DTRAIN_OK;
        device_write(memory, values, sizeof values);
        dtrain_tensor_t tensor =
            device_tensor(worker->name, memory, memory, &count, DTRAIN_DTYPE_F32);
        worker->failures += dtrain_allreduce_async(&tensor, NULL, &handle) != DTRAIN_OK ||
                            dtrain_wait(handle) != DTRAIN_OK || dtrain_release(handle) != DTRAIN_OK;
        device_read(values, memory, sizeof values);
        worker->failures += values[499] != (float)(size * 499 + size * (size - 1) / 2);
        worker->failures += dtrain_mem_free(memory) != DTRAIN_OK;
    }
    return NULL;
}

static void test_threads(void)
{
    worker_t workers[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, run_worker, &workers[i]) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK(workers[i].failures == 0);
    }
}

/* What is packed is so in the communicator's buffer, which is registered also when it has grown. */
static void test_packed(void)
{
    int64_t count = 4300000; /* as 64-bit integers more than it has at first */
    memory_t memory = new_memory(rank % 2, count);
    dtrain_handle_t handle = 0;
    uint8_t *host = malloc((size_t)count);
    for (int64_t i = 0; i < count; i++)
        host[i] = (uint8_t)(i % 100);
    device_write(memory.values, host, (size_t)count);
    dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_AVERAGE};
    dtrain_tensor_t tensor =
        device_tensor("long", memory.values, memory.values, &count, DTRAIN_DTYPE_U8);
    counts_t before = count_now();
    if (CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle)))
        CHECK_OK(check_finish(handle));
    check_only(before, level > 0);
    device_read(host, memory.values, (size_t)count);
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += host[i] != i % 100;
    CHECK(wrong == 0);
    free(host);
    free_memory(memory);
}

static int level_of(const char *name)
{
    static const char *const names[] = {"none", "blocks", "windows"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0)
            return i;
    }
    return -1;
}

int main(int argc, char **argv)
{
    memory_t left;
    if (argc > 1)
        level = level_of(argv[1]);
    check_begin("test_registered", 100);
    if (!CHECK_OK(check_init(20000)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    test_kinds();
    test_freed_and_allocated_anew();
    test_places_in_a_block();
    test_process_sets();
    test_join();
    test_gradient_sets();
    test_gradient_set_and_join();
    test_threads();
    if (size == 2)
        test_packed();
    left = new_memory(1, COUNT); /* registered, and not freed */
    check_operation(ALLREDUCE, left.values, left.values);
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
