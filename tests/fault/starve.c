/*
 * starve.c FILE FIRST ROUNDS STRIDE - in round k of a whole run, from init to shutdown, allocation
 * FIRST + k STRIDE fails on one rank, in turn. Each round has to work, or to end with
 * OUT_OF_MEMORY, soon and on every rank that has an error. The file has a line for each that
 * failed. Exit status 1 and a text when a round was wrong.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

enum { NUM = 6, COUNT = 40000 };

static float buffers[NUM][COUNT];
static int num_wrong;
static char own[16]; /* how rules for this rank begin */

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int expect(const char *rule, const char *what, dtrain_status_t status)
{
    /* Where the starved rank could not even start its engine, it is gone for the others. */
    int is_victim = strncmp(rule, own, strlen(own)) == 0;
    int is_allowed =
        status == DTRAIN_ERR_OUT_OF_MEMORY || (status == DTRAIN_ERR_RANK_LOST && !is_victim);
    if (status != DTRAIN_OK && !is_allowed) {
        num_wrong++;
        fprintf(stderr, "FAILED: %s, rank %d: %s: %d, %s\n", rule, dtrain_rank(), what, (int)status,
                dtrain_last_error());
    }
    return status == DTRAIN_OK;
}

static dtrain_status_t submit(int i, dtrain_handle_t *handle)
{
    char name[16];
    int64_t shape = i % 2 ? COUNT : 100;
    snprintf(name, sizeof name, "t%d", i);
    const dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                                    .ndim = 1,
                                    .name = name,
                                    .in = buffers[i],
                                    .out = buffers[i],
                                    .shape = &shape,
                                    .dtype = DTRAIN_DTYPE_F32};
    return i % 3 == 2 ? dtrain_broadcast_async(&tensor, 0, NULL, handle)
                      : dtrain_allreduce_async(&tensor, NULL, handle);
}

/* A call that finds no memory has not been made: it may be made again, and has to, for the other
 * ranks wait for it. */
static void submit_all(const char *rule, dtrain_handle_t *handles)
{
    for (int i = 0; i < NUM; i++) {
        handles[i] = 0;
        if (expect(rule, "submit", submit(i, &handles[i])))
            continue;
        handles[i] = 0;
        if (!expect(rule, "submit again", submit(i, &handles[i])))
            handles[i] = 0;
    }
}

static void work(const char *rule)
{
    dtrain_handle_t handles[NUM];
    void *memory = NULL;
    expect(rule, "dtrain_mem_alloc", dtrain_mem_alloc(&memory, 100000, DTRAIN_DEVICE_CPU));
    for (int step = 0; step < 3; step++) {
        submit_all(rule, handles);
        for (int i = 0; i < NUM; i++) {
            if (handles[i] == 0)
                continue;
            expect(rule, "wait", dtrain_wait(handles[i]));
            if (dtrain_release(handles[i]) != DTRAIN_OK)
                num_wrong++;
        }
    }
    if (!expect(rule, "barrier", dtrain_barrier()))
        expect(rule, "barrier again", dtrain_barrier());
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int first = (int)strtol(argv[2], NULL, 10), rounds = (int)strtol(argv[3], NULL, 10);
    int stride = (int)strtol(argv[4], NULL, 10);
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    int ranks = size ? (int)strtol(size, NULL, 10) : 1;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    snprintf(own, sizeof own, "%.8s:", rank ? rank : "0");
    for (int round = 0; round < rounds; round++) {
        char rule[512];
        double start = seconds();
        snprintf(rule, sizeof rule, "%d:alloc:%d:fail:%s", round % ranks, first + round * stride,
                 argv[1]);
        setenv("DTRAIN_FAULT", rule, 1);
        if (expect(rule, "init", dtrain_init(NULL))) {
            work(rule);
            expect(rule, "shutdown", dtrain_shutdown());
        }
        if (dtrain_is_initialized() || seconds() - start > 5) {
            num_wrong++;
            fprintf(stderr, "FAILED: %s: %.1f s, initialised: %d\n", rule, seconds() - start,
                    dtrain_is_initialized());
        }
    }
    printf("%d rounds, %d wrong\n", rounds, num_wrong);
    return num_wrong > 0;
}
