/*
 * victim.c FILE STEPS [RANK] - a loop of mixed operations, in which a rank may go down
 * (DTRAIN_FAULT). The rank RANK takes 16 MiB more memory at each step.
 *
 * Every rank that lives adds a line of JSON to the file before it leaves: when it had its first
 * error, which, where, and how it left. Exit status: 0 without an error, 3 with one that was
 * reported as it should be, 1 otherwise: a wrong result, or an operation that did not fail with the
 * world.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

enum { SMALL = 8, LARGE = 4, NUM = SMALL + LARGE, SMALL_COUNT = 500, LARGE_COUNT = 200000 };

typedef struct outcome {
    int rank;
    const char *where;      /* "init", "loop" or "shutdown": of the first error */
    dtrain_status_t status; /* the first error; OK: none */
    int64_t ns;             /* when it came, by CLOCK_MONOTONIC */
    char text[1024];
    dtrain_status_t left; /* dtrain_shutdown's */
    int64_t left_ns;
    int step, num_wrong;
    const char *wrong; /* the first thing that was wrong */
} outcome_t;

static float buffers[NUM][LARGE_COUNT]; /* those of the library are elsewhere */
static void *volatile leaked;           /* so that the compiler leaves it */

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void wrong(outcome_t *outcome, const char *what)
{
    if (outcome->num_wrong++ == 0)
        outcome->wrong = what;
}

/* After the first error every operation has to fail with the same. */
static void note(outcome_t *outcome, const char *where, dtrain_status_t status)
{
    if (outcome->status != DTRAIN_OK && status != outcome->status)
        wrong(outcome, status == DTRAIN_OK ? "an operation worked after the world had ended"
                                           : "two operations failed differently");
    if (outcome->status != DTRAIN_OK || status == DTRAIN_OK)
        return;
    outcome->ns = now_ns();
    outcome->status = status;
    outcome->where = where;
    snprintf(outcome->text, sizeof outcome->text, "%s", dtrain_last_error());
}

static int64_t count_of(int i)
{
    return i < SMALL ? SMALL_COUNT + i : LARGE_COUNT - i;
}

/* Broadcasts and allreduces in turn; what they should give is the same on all ranks. */
static int is_broadcast(int i)
{
    return i % 4 == 3;
}

static float input_of(int i, int step, int rank)
{
    return (float)(rank + 1 + i + step);
}

static float wanted_of(int i, int step, int size)
{
    if (is_broadcast(i))
        return input_of(i, step, step % size);
    return (float)(size * (size + 1) / 2 + size * (i + step));
}

static void submit(outcome_t *outcome, float *data, int i, int step, dtrain_handle_t *handle)
{
    char name[32];
    int64_t shape = count_of(i);
    snprintf(name, sizeof name, "tensor.%d", i);
    for (int64_t k = 0; k < shape; k++)
        data[k] = input_of(i, step, outcome->rank);
    const dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                                    .ndim = 1,
                                    .name = name,
                                    .in = data,
                                    .out = data,
                                    .shape = &shape,
                                    .dtype = DTRAIN_DTYPE_F32};
    dtrain_status_t status =
        is_broadcast(i) ? dtrain_broadcast_async(&tensor, step % dtrain_size(), NULL, handle)
                        : dtrain_allreduce_async(&tensor, NULL, handle);
    if (status != DTRAIN_OK)
        *handle = 0;
    note(outcome, "loop", status);
}

static void check(outcome_t *outcome, const float *data, int i, int step)
{
    float value = wanted_of(i, step, dtrain_size());
    for (int64_t k = 0; k < count_of(i); k++) {
        if (data[k] != value) {
            wrong(outcome, "a result");
            return;
        }
    }
}

static void run_step(outcome_t *outcome, float *const *data, int step)
{
    dtrain_handle_t handles[NUM];
    float value = 1;
    for (int i = 0; i < NUM; i++)
        submit(outcome, data[i], i, step, &handles[i]);
    for (int i = 0; i < NUM; i++) {
        if (handles[i] == 0)
            continue;
        dtrain_status_t status = dtrain_wait(handles[i]);
        /* What was complete when the world ended may still be told of. */
        if (status != DTRAIN_OK || outcome->status == DTRAIN_OK)
            note(outcome, "loop", status);
        if (status == DTRAIN_OK)
            check(outcome, data[i], i, step);
        if (dtrain_release(handles[i]) != DTRAIN_OK)
            wrong(outcome, "a handle could not be released");
    }
    note(outcome, "loop",
         dtrain_allreduce("blocking", &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM));
    if (step % 3 == 0)
        note(outcome, "loop", dtrain_barrier());
}

/* Half of the buffers are the library's, which are reduced where they lie. */
static int allocate(outcome_t *outcome, float **data)
{
    for (int i = 0; i < NUM; i++) {
        void *memory = buffers[i];
        size_t bytes = sizeof buffers[i];
        if (i % 2 && dtrain_mem_alloc(&memory, bytes, DTRAIN_DEVICE_CPU) != DTRAIN_OK) {
            wrong(outcome, "dtrain_mem_alloc");
            return -1;
        }
        data[i] = memory;
    }
    return 0;
}

/* As a program with a leak; what is touched, is there. */
static void leak(outcome_t *outcome)
{
    enum { BYTES = 16 << 20 };
    void *memory = malloc(BYTES);
    if (memory)
        memset(memory, outcome->step + 1, BYTES);
    else
        wrong(outcome, "malloc");
    leaked = memory;
}

static void run(outcome_t *outcome, int steps, int leaking_rank)
{
    float *data[NUM];
    note(outcome, "init", dtrain_init(NULL));
    if (outcome->status != DTRAIN_OK)
        return;
    outcome->rank = dtrain_rank();
    if (allocate(outcome, data))
        return;
    for (int step = 0; step < steps && outcome->status == DTRAIN_OK; step++) {
        outcome->step = step;
        if (outcome->rank == leaking_rank)
            leak(outcome);
        run_step(outcome, data, step);
    }
    if (outcome->status != DTRAIN_OK)
        note(outcome, "loop", dtrain_barrier());
    outcome->left = dtrain_shutdown();
    note(outcome, "shutdown", outcome->left);
    if (dtrain_is_initialized())
        wrong(outcome, "it is initialised after dtrain_shutdown");
}

static int report(const outcome_t *outcome, const char *path)
{
    char line[2048];
    char text[1024];
    snprintf(text, sizeof text, "%s", outcome->text);
    for (char *at = text; *at; at++) {
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            *at = '\'';
    }
    int length =
        snprintf(line, sizeof line,
                 "{\"rank\": %d, \"pid\": %d, \"where\": \"%s\", \"status\": %d, "
                 "\"ns\": %" PRId64 ", \"step\": %d, \"left\": %d, \"left_ns\": %" PRId64
                 ", \"wrong\": \"%s\", \"text\": \"%s\"}\n",
                 outcome->rank, (int)getpid(), outcome->where, outcome->status, outcome->ns,
                 outcome->step, outcome->left, outcome->left_ns, outcome->wrong, text);
    int file = open(path, O_WRONLY | O_APPEND);
    if (file < 0 || length >= (int)sizeof line)
        return -1;
    ssize_t written = write(file, line, (size_t)length);
    close(file);
    return written == length ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4)
        return 2;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank)
        rank = getenv("PMI_RANK");
    outcome_t outcome = {.rank = rank ? (int)strtol(rank, NULL, 10) : 0, .where = "", .wrong = ""};
    /* MPICH's launcher sends it to survivors, where it is told to leave them alive. */
    signal(SIGUSR1, SIG_IGN);
    run(&outcome, (int)strtol(argv[2], NULL, 10), argc > 3 ? (int)strtol(argv[3], NULL, 10) : -1);
    outcome.left_ns = now_ns();
    int is_told = report(&outcome, argv[1]) == 0;
    /* A launcher that is on its way out may read it no more. */
    signal(SIGPIPE, SIG_IGN);
    if (outcome.status != DTRAIN_OK)
        fprintf(stderr, "rank %d: %s\n", outcome.rank, outcome.text);
    if (!is_told || outcome.num_wrong > 0)
        return 1;
    return outcome.status == DTRAIN_OK ? 0 : 3;
}
