/* What goes wrong on one rank reaches all of them, and the next operation works. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "check.h"

static int rank, size;

/* ---- Mismatches --------------------------------------------------------------------------------
 */

typedef struct call {
    dtrain_dtype_t dtype;
    int ndim;
    int64_t shape[2];
    int is_broadcast, root;
    dtrain_options_t options;
} call_t;

static dtrain_status_t do_call(const char *name, const call_t *call)
{
    static double memory[16];
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = call->ndim,
                              .name = name,
                              .in = memory,
                              .out = memory,
                              .shape = call->shape,
                              .dtype = call->dtype};
    dtrain_options_t options = call->options;
    options.struct_size = sizeof options;
    dtrain_handle_t handle;
    dtrain_status_t status = call->is_broadcast
                                 ? dtrain_broadcast_async(&tensor, call->root, &options, &handle)
                                 : dtrain_allreduce_async(&tensor, &options, &handle);
    return status == DTRAIN_OK ? check_finish(handle) : status;
}

/* The last rank calls with `other`. */
static const struct {
    const char *name;
    call_t most, other;
    const char *what, *most_value, *other_value;
} mismatches[] = {
    {"operation",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}},
     {DTRAIN_DTYPE_F32, 1, {4}, 1, 0, {0}},
     "operations",
     "allreduce",
     "broadcast"},
    {"type",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}},
     {DTRAIN_DTYPE_F64, 1, {4}, 0, 0, {0}},
     "types",
     "float32",
     "float64"},
    {"shape",
     {DTRAIN_DTYPE_F32, 1, {3}, 0, 0, {0}},
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}},
     "shapes",
     "[3]",
     "[4]"},
    {"same count",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}},
     {DTRAIN_DTYPE_F32, 2, {2, 2}, 0, 0, {0}},
     "shapes",
     "[4]",
     "[2, 2]"},
    {"reduction",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}},
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {.op = DTRAIN_OP_MAX}},
     "reductions",
     "sum",
     "max"},
    {"prescale",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}},
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {.prescale = 0.25}},
     "prescales",
     ": 1",
     ": 0.25"},
    {"postscale",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {.postscale = 3}},
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {.postscale = 5}},
     "postscales",
     ": 3",
     ": 5"},
    {"root",
     {DTRAIN_DTYPE_F32, 1, {4}, 1, 0, {0}},
     {DTRAIN_DTYPE_F32, 1, {4}, 1, 1, {0}},
     "roots",
     ": 0",
     ": 1"},
};

static void check_mismatches(void)
{
    char last[32];
    snprintf(last, sizeof last, "rank %d: ", size - 1);
    for (size_t i = 0; i < 2 * sizeof mismatches / sizeof mismatches[0]; i++) {
        size_t m = i / 2;
        const call_t *call = rank == size - 1 ? &mismatches[m].other : &mismatches[m].most;
        CHECK_STATUS(do_call(mismatches[m].name, call), DTRAIN_ERR_MISMATCH);
        CHECK_ERROR_HAS(mismatches[m].name);
        CHECK_ERROR_HAS(mismatches[m].what);
        CHECK_ERROR_HAS(mismatches[m].most_value);
        CHECK_ERROR_HAS(mismatches[m].other_value);
        CHECK_ERROR_HAS(last);
        CHECK_ERROR_HAS(size == 2 ? "rank 0: " : "ranks 0");
        check_works(mismatches[m].name);
        check_works(mismatches[m].name);
    }
}

/* ---- Refused arguments and names
 * ------------------------------------------------------------------ */

static const struct {
    const char *name;
    call_t call; /* of the last rank */
    dtrain_status_t status;
    const char *text;
} refusals[] = {
    {"no type",
     {(dtrain_dtype_t)40, 1, {4}, 0, 0, {0}},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "40 is no element type"},
    {"no op",
     {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {.op = (dtrain_op_t)33}},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "33 is no reduction"},
    {"negative", {DTRAIN_DTYPE_F32, 1, {-4}, 0, 0, {0}}, DTRAIN_ERR_INVALID_ARGUMENT, "[-4]"},
    {"dimensions", {DTRAIN_DTYPE_F32, 17, {4}, 0, 0, {0}}, DTRAIN_ERR_INVALID_ARGUMENT, "17"},
    {"set", {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {.pset = 4}}, DTRAIN_ERR_INVALID_ARGUMENT, "set 4"},
    {"truth",
     {DTRAIN_DTYPE_BOOL, 1, {4}, 0, 0, {.op = DTRAIN_OP_AVERAGE}},
     DTRAIN_ERR_UNSUPPORTED,
     "bool"},
    {"root", {DTRAIN_DTYPE_F32, 1, {4}, 1, 99, {0}}, DTRAIN_ERR_INVALID_ARGUMENT, "root 99"},
};

static void check_refusals(void)
{
    static const call_t usual = {DTRAIN_DTYPE_F32, 1, {4}, 0, 0, {0}};
    char last[32];
    snprintf(last, sizeof last, "rank %d", size - 1);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const call_t *call = rank == size - 1 ? &refusals[i].call : &usual;
        CHECK_STATUS(do_call(refusals[i].name, call), refusals[i].status);
        CHECK_ERROR_HAS(refusals[i].name);
        CHECK_ERROR_HAS(refusals[i].text);
        if (rank != size - 1)
            CHECK_ERROR_HAS(last);
        check_works(refusals[i].name);
    }
}

static void check_duplicates(void)
{
    float values[2] = {1, 2}, other[2] = {9, 9};
    dtrain_handle_t handle = 0, none = 5;
    if (rank == 0) {
        CHECK_OK(check_submit("twice", values, 2, 0, &handle));
        CHECK_STATUS(check_submit("twice", other, 2, 0, &none), DTRAIN_ERR_DUPLICATE_NAME);
        CHECK_ERROR_HAS("'twice'");
        CHECK(none == 5);
    }
    CHECK_OK(dtrain_barrier());
    if (rank != 0)
        CHECK_OK(check_submit("twice", values, 2, 0, &handle));
    CHECK_OK(check_finish(handle));
    CHECK(values[0] == (float)size && values[1] == (float)(2 * size) && other[0] == 9);
    check_works("twice");
}

static void check_names(void)
{
    static const char *const names[] = {"g:1", "g:2", "a/b", "a", "gr\303\244d", "\345\261\244"};
    static char longest[DTRAIN_NAME_MAX + 2];
    memset(longest, 'n', DTRAIN_NAME_MAX);
    for (int i = 0; i < 6; i++)
        check_works(names[i]);
    check_works(longest);
    longest[DTRAIN_NAME_MAX] = 'n';
    float value = 0;
    dtrain_handle_t handle;
    CHECK_STATUS(check_submit(longest, &value, 1, 0, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(check_submit("", &value, 1, 0, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(check_submit("dtrain.x", &value, 1, 0, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
}

/* ---- Deadlines
 * -------------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Case 2: the last rank calls it x, the others x_1. */
static void check_deadlines(void)
{
    float values[3] = {0};
    dtrain_handle_t handle;
    int is_last = rank == size - 1;
    double start = seconds();
    CHECK_OK(check_submit(is_last ? "x" : "x_1", values, 3, 300, &handle));
    CHECK_STATUS(check_finish(handle), DTRAIN_ERR_TIMEOUT);
    CHECK(seconds() - start < 15);
    CHECK_ERROR_HAS(is_last ? "'x'" : "'x_1'");
    char missing[32];
    snprintf(missing, sizeof missing, "rank %d did not submit", size - 1);
    CHECK_ERROR_HAS(!is_last ? missing : size == 2 ? "rank 0 did not submit" : "ranks 0");
    CHECK_OK(dtrain_barrier());
    check_works("x");
    check_works("x_1");
    if (rank == 0)
        CHECK(check_log_has("'x_1'") && check_log_has("'x'"));
}

/* ---- A rank that leaves
 * -------------------------------------------------------------------------------- */

static void begin(void)
{
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.timeout_ms = 20000;
    config.stall_warning_ms = 100;
    CHECK_OK(dtrain_init(&config));
    rank = dtrain_rank();
    size = dtrain_size();
}

/* The last rank leaves early; the others' operations need it. */
static void check_early_shutdown(void)
{
    float values[3] = {0};
    dtrain_handle_t handle = 0;
    if (rank != size - 1)
        CHECK_OK(check_submit("pending", values, 3, 0, &handle));
    CHECK_OK(dtrain_barrier());
    if (rank != size - 1) {
        CHECK_STATUS(check_finish(handle), DTRAIN_ERR_SHUT_DOWN);
        CHECK_ERROR_HAS("has called dtrain_shutdown");
        CHECK_STATUS(dtrain_barrier(), DTRAIN_ERR_SHUT_DOWN);
    }
    CHECK_OK(dtrain_shutdown());
}

int main(void)
{
    check_begin("test_errors", 50);
    check_log_start();
    begin();
    if (!CHECK(size >= 2))
        return check_end();
    check_mismatches();
    check_refusals();
    check_duplicates();
    check_names();
    check_deadlines();
    CHECK_OK(dtrain_shutdown());
    begin();
    check_early_shutdown();
    begin();
    check_works("again");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
