#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "core/executor.h"
#include "failing_memory.h"

/* ---- A backend that does what the test says
 * ------------------------------------------------------ */

#define TASKS_MAX 64

struct dt_task {
    dt_collective_t collective;
    int is_released;
};

/* "Reduces" by adding one to each int32, all at once when the test lets a task finish. */
typedef struct fake {
    dt_backend_t base;
    dt_backend_ops_t ops;
    struct dt_task tasks[TASKS_MAX];
    int num_started, num_running;
    int may_finish; /* tasks with a lower number do */
    int fail_start, fail_progress;
} fake_t;

static dtrain_status_t fake_start(dt_backend_t *backend, const dt_collective_t *collective,
                                  dt_task_t **task)
{
    fake_t *fake = (fake_t *)backend;
    if (fake->fail_start)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "start failed");
    *task = &fake->tasks[fake->num_started++];
    (*task)->collective = *collective;
    fake->num_running++;
    return DTRAIN_OK;
}

static void finish(const dt_collective_t *collective)
{
    for (int p = 0; p < collective->num_pieces; p++) {
        const int32_t *in = collective->pieces[p].in;
        int32_t *out = collective->pieces[p].out;
        for (int64_t i = 0; i < collective->pieces[p].count; i++)
            out[i] = in[i] + 1;
    }
}

static dtrain_status_t fake_progress(dt_backend_t *backend, dt_task_t *task)
{
    fake_t *fake = (fake_t *)backend;
    if (fake->fail_progress)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "progress failed");
    if (task - fake->tasks >= fake->may_finish)
        return DTRAIN_IN_PROGRESS;
    finish(&task->collective);
    return DTRAIN_OK;
}

static void fake_release(dt_backend_t *backend, dt_task_t *task)
{
    ((fake_t *)backend)->num_running--;
    task->is_released++;
}

/* ---- The test's world
 * ------------------------------------------------------------------------------ */

#define OPERATIONS_MAX 64
#define COUNT_MAX 64

typedef struct bench {
    fake_t fake;
    dt_executor_t executor;
    dt_operation_t operations[OPERATIONS_MAX];
    int32_t in[OPERATIONS_MAX][COUNT_MAX], out[OPERATIONS_MAX][COUNT_MAX];
    dt_operation_t *agreed[OPERATIONS_MAX];
    dt_operation_t *done[OPERATIONS_MAX]; /* in this order */
    int num, num_done;
} bench_t;

static void note_done(void *context, dt_operation_t *const *operations, int n)
{
    bench_t *bench = context;
    for (int i = 0; i < n; i++)
        bench->done[bench->num_done++] = operations[i];
}

static void note_failed(void *context, dt_operation_t *operation, dtrain_status_t status,
                        const char *text)
{
    (void)context;
    (void)operation;
    fail_msg("an operation failed with %d: %s", (int)status, text);
}

static void open_bench(bench_t *bench, int64_t threshold, int64_t limit, int takes_pieces)
{
    memset(bench, 0, sizeof *bench);
    bench->fake.ops = (dt_backend_ops_t){
        .name = "fake", .start = fake_start, .progress = fake_progress, .release = fake_release};
    bench->fake.base.ops = &bench->fake.ops;
    bench->fake.base.takes_pieces = takes_pieces;
    bench->fake.may_finish = TASKS_MAX;
    dt_plan_policy_t policy = {.threshold = threshold, .tensor_limit = limit};
    dt_executor_init(&bench->executor, &bench->fake.base, (dt_ranks_t){.rank = 0, .size = 4},
                     &policy, NULL, note_done, note_failed, bench);
}

static void close_bench(bench_t *bench)
{
    dt_executor_free(&bench->executor);
    assert_int_equal(bench->fake.num_running, 0);
    for (int i = 0; i < bench->fake.num_started; i++)
        assert_int_equal(bench->fake.tasks[i].is_released, 1);
}

/* An operation more on the list of those agreed on. */
static dt_operation_t *put(bench_t *bench, int64_t count)
{
    int i = bench->num++;
    dt_operation_t *operation = &bench->operations[i];
    operation->signature = (dt_signature_t){.kind = DT_KIND_ALLREDUCE,
                                            .dtype = DTRAIN_DTYPE_I32,
                                            .ndim = 1,
                                            .prescale = 1,
                                            .postscale = 1,
                                            .shape = {count}};
    operation->in = bench->in[i];
    operation->out = bench->out[i];
    operation->count = count;
    operation->bytes = count * 4;
    operation->divisor = 4;
    for (int k = 0; k < count; k++)
        bench->in[i][k] = 100 * i + k;
    bench->agreed[i] = operation;
    return operation;
}

/* Gives the executor what was put since the last call. */
static void add_all(bench_t *bench, int first)
{
    assert_int_equal(dt_executor_add(&bench->executor, &bench->agreed[first], bench->num - first),
                     DTRAIN_OK);
}

static int progress(bench_t *bench)
{
    int moved = 0;
    assert_int_equal(dt_executor_progress(&bench->executor, &moved), DTRAIN_OK);
    return moved;
}

static void run_all(bench_t *bench)
{
    while (progress(bench)) {
    }
    assert_true(dt_executor_is_idle(&bench->executor));
    assert_int_equal(bench->num_done, bench->num);
}

static void assert_results(const bench_t *bench)
{
    for (int i = 0; i < bench->num; i++) {
        for (int k = 0; k < COUNT_MAX; k++)
            assert_int_equal(bench->out[i][k],
                             k < bench->operations[i].count ? 100 * i + k + 1 : 0);
    }
}

/* ---- Tests
 * -------------------------------------------------------------------------------------------- */

static void test_executor_packs_small_tensors_into_one_collective(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 1000, 1000, 0);
    for (int i = 0; i < 5; i++)
        put(bench, 3 + i);
    add_all(bench, 0);
    assert_false(dt_executor_is_idle(&bench->executor));
    run_all(bench);
    assert_int_equal(bench->fake.num_started, 1);
    const dt_collective_t *collective = &bench->fake.tasks[0].collective;
    assert_int_equal(collective->kind, DT_ALLREDUCE);
    assert_int_equal(collective->num_pieces, 1);
    assert_int_equal(collective->count, 25);
    assert_int_equal(collective->sequence, 0);
    assert_results(bench);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(bench->done[i], &bench->operations[i]);
    close_bench(bench);
    free(bench);
}

static void test_executor_leaves_single_tensors_where_they_are(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 1000, 40, 0);
    put(bench, 30); /* above the limit */
    put(bench, 5);  /* alone in its bucket */
    add_all(bench, 0);
    run_all(bench);
    assert_int_equal(bench->fake.num_started, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(bench->fake.tasks[i].collective.sequence, i);
    assert_results(bench);
    assert_null(bench->executor.pool.buffers[0].data);
    close_bench(bench);
    free(bench);
}

static void test_executor_gives_pieces_to_a_backend_that_takes_them(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 1000, 40, 1); /* the limit is about copying: it does not count here */
    put(bench, 30);
    put(bench, 0);
    put(bench, 5);
    add_all(bench, 0);
    run_all(bench);
    assert_int_equal(bench->fake.num_started, 1);
    assert_int_equal(bench->fake.tasks[0].collective.num_pieces, 3);
    assert_int_equal(bench->fake.tasks[0].collective.count, 35);
    assert_null(bench->executor.pool.buffers[0].data);
    assert_results(bench);
    close_bench(bench);
    free(bench);
}

static void test_executor_passes_on_what_is_to_be_computed(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 0, 0, 0);
    dt_operation_t *average = put(bench, 3), *scaled = put(bench, 3), *broadcast = put(bench, 3);
    average->signature.op = DTRAIN_OP_AVERAGE;
    scaled->signature.op = DTRAIN_OP_MAX;
    scaled->signature.prescale = 0.5;
    scaled->signature.postscale = 3;
    broadcast->signature.kind = DT_KIND_BROADCAST;
    broadcast->root = 2;
    add_all(bench, 0);
    run_all(bench);
    const dt_collective_t *a = &bench->fake.tasks[0].collective;
    const dt_collective_t *s = &bench->fake.tasks[1].collective;
    const dt_collective_t *b = &bench->fake.tasks[2].collective;
    assert_int_equal(a->reduction.op, DTRAIN_OP_AVERAGE);
    assert_int_equal(a->reduction.divisor, 4);
    assert_true(a->reduction.prescale == 1 && a->reduction.postscale == 1);
    assert_int_equal(s->reduction.op, DTRAIN_OP_MAX);
    assert_int_equal(s->reduction.divisor, 1);
    assert_true(s->reduction.prescale == 0.5 && s->reduction.postscale == 3);
    assert_int_equal(b->kind, DT_BROADCAST);
    assert_int_equal(b->root, 2);
    assert_int_equal(b->reduction.dtype, DTRAIN_DTYPE_I32);
    close_bench(bench);
    free(bench);
}

static void test_executor_empty_tensors_need_no_collective(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    for (int takes_pieces = 0; takes_pieces < 2; takes_pieces++) {
        open_bench(bench, 1000, 1000, takes_pieces);
        for (int i = 0; i < 3; i++) {
            dt_operation_t *operation = put(bench, 0);
            operation->in = operation->out = NULL;
        }
        put(bench, 0)->signature.kind = DT_KIND_BROADCAST;
        add_all(bench, 0);
        run_all(bench);
        assert_int_equal(bench->fake.num_started, 0);
        put(bench, 2);
        add_all(bench, 4);
        run_all(bench);
        assert_int_equal(bench->fake.tasks[0].collective.sequence, 0);
        close_bench(bench);
    }
    free(bench);
}

static void test_executor_runs_a_few_buckets_at_once(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 0, 0, 0);
    for (int i = 0; i < 10; i++)
        put(bench, 4);
    bench->fake.may_finish = 0;
    add_all(bench, 0);
    assert_int_equal(progress(bench), 1);
    assert_int_equal(bench->fake.num_running, DT_BUCKETS_RUNNING_MAX);
    assert_int_equal(progress(bench), 0);
    assert_false(dt_executor_is_idle(&bench->executor));
    bench->fake.may_finish = 2;
    assert_int_equal(progress(bench), 1);
    assert_int_equal(bench->num_done, 2);
    bench->fake.may_finish = TASKS_MAX;
    run_all(bench);
    for (int i = 0; i < 10; i++)
        assert_int_equal(bench->fake.tasks[i].collective.sequence, i);
    assert_results(bench);
    close_bench(bench);
    free(bench);
}

static void test_executor_waits_for_a_fusion_buffer(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 40, 40, 0);
    for (int i = 0; i < 12; i++)
        put(bench, 5); /* two fill a bucket */
    bench->fake.may_finish = 0;
    add_all(bench, 0);
    progress(bench);
    progress(bench);
    assert_int_equal(bench->fake.num_running, DT_FUSION_BUFFERS);
    bench->fake.may_finish = 1;
    progress(bench);
    progress(bench);
    assert_int_equal(bench->fake.num_started, DT_FUSION_BUFFERS + 1);
    bench->fake.may_finish = TASKS_MAX;
    run_all(bench);
    assert_int_equal(bench->fake.num_started, 6);
    assert_results(bench);
    close_bench(bench);
    free(bench);
}

static void test_executor_takes_more_while_it_is_running(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 1000, 1000, 0);
    bench->fake.may_finish = 0;
    for (int round = 0; round < 6; round++) {
        int first = bench->num;
        for (int i = 0; i < 8; i++)
            put(bench, 1 + (i + round) % 7);
        add_all(bench, first);
        progress(bench);
        bench->fake.may_finish = round;
    }
    bench->fake.may_finish = TASKS_MAX;
    run_all(bench);
    assert_results(bench);
    close_bench(bench);
    free(bench);
}

static void test_executor_passes_backend_errors_on(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    int moved;
    for (int at_start = 0; at_start < 2; at_start++) {
        open_bench(bench, 1000, 1000, 0);
        put(bench, 3);
        put(bench, 3);
        bench->fake.fail_start = at_start;
        bench->fake.fail_progress = !at_start;
        add_all(bench, 0);
        assert_int_equal(dt_executor_progress(&bench->executor, &moved), DTRAIN_ERR_COMMUNICATION);
        assert_string_equal(dt_last_error(), at_start ? "start failed" : "progress failed");
        assert_int_equal(bench->num_done, 0);
        close_bench(bench);
    }
    free(bench);
}

static void test_executor_abandon_gives_all_tasks_up(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    open_bench(bench, 40, 40, 0);
    for (int i = 0; i < 20; i++)
        put(bench, 5);
    bench->fake.may_finish = 0;
    add_all(bench, 0);
    progress(bench);
    dt_executor_abandon(&bench->executor);
    assert_true(dt_executor_is_idle(&bench->executor));
    assert_int_equal(bench->fake.num_running, 0);
    assert_int_equal(bench->num_done, 0);
    assert_int_equal(progress(bench), 0);
    close_bench(bench);
    free(bench);
}

static void test_executor_out_of_memory_is_an_error_and_no_leak(void **state)
{
    (void)state;
    bench_t *bench = calloc(1, sizeof *bench);
    int before = memory_live();
    for (int n = 1, failed = 1; failed; n++) {
        int moved;
        open_bench(bench, 40, 40, 0);
        for (int i = 0; i < 20; i++)
            put(bench, 5);
        memory_fail_at(n);
        dtrain_status_t status = dt_executor_add(&bench->executor, bench->agreed, bench->num);
        if (status == DTRAIN_OK)
            status = dt_executor_progress(&bench->executor, &moved);
        failed = memory_has_failed();
        memory_fail_at(0);
        assert_int_equal(status, failed ? DTRAIN_ERR_OUT_OF_MEMORY : DTRAIN_OK);
        close_bench(bench);
        assert_int_equal(memory_live(), before);
    }
    free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executor_packs_small_tensors_into_one_collective),
        cmocka_unit_test(test_executor_leaves_single_tensors_where_they_are),
        cmocka_unit_test(test_executor_gives_pieces_to_a_backend_that_takes_them),
        cmocka_unit_test(test_executor_passes_on_what_is_to_be_computed),
        cmocka_unit_test(test_executor_empty_tensors_need_no_collective),
        cmocka_unit_test(test_executor_runs_a_few_buckets_at_once),
        cmocka_unit_test(test_executor_waits_for_a_fusion_buffer),
        cmocka_unit_test(test_executor_takes_more_while_it_is_running),
        cmocka_unit_test(test_executor_passes_backend_errors_on),
        cmocka_unit_test(test_executor_abandon_gives_all_tasks_up),
        cmocka_unit_test(test_executor_out_of_memory_is_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
