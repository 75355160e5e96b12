/* What never comes together ends in time, with a text that says who is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "engine_world.h"

/* A deadline that is to pass; and one that is to pass once all ranks have submitted. */
#define SHORT_MS 60
#define LONGER_MS 500

/* Rank 0 has 2 s to answer, but does so at once. */
#define SOON_NS (DT_NS_PER_S * 3 / 2)

/* An allreduce that ends with TIMEOUT; the text is this thread's last error. Returns how long it
 * took. */
static int64_t expect_timeout(engine_rank_t *self, const char *name, int timeout_ms)
{
    float memory[4] = {0};
    int64_t start_ns = dt_now_ns();
    engine_op_t op = {
        .name = name, .in = memory, .out = memory, .count = 4, .timeout_ms = timeout_ms};
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_TIMEOUT);
    ENGINE_TEXT(self, dt_last_error(), name);
    return dt_now_ns() - start_ns;
}

/* ---- One rank, or all, wait in vain ---------------------------------------------------------- */

static void one_rank_waits(engine_rank_t *self)
{
    int lonely = *(int *)self->argument;
    int64_t least_ns = DT_NEVER; /* a busy machine may stand still for a second now and then */
    for (int round = 0; round < 4; round++) {
        if (self->rank == lonely) {
            int64_t took_ns = expect_timeout(self, "lonely", SHORT_MS);
            least_ns = took_ns < least_ns ? took_ns : least_ns;
            ENGINE_TEXT(self, dt_last_error(), lonely == 0 ? "rank 1 did not" : "rank 0 did not");
        }
        engine_meet(self);
        engine_check_works(self, "lonely");
    }
    if (self->rank == lonely)
        ENGINE_CHECK(self, least_ns < SHORT_MS * DT_NS_PER_MS + SOON_NS);
}

static void test_engine_deadline_on_one_rank_names_the_missing(void **state)
{
    (void)state;
    for (int lonely = 0; lonely < 2; lonely++)
        engine_run(2, NULL, one_rank_waits, &lonely);
}

/* Case 2: one asks for x_1, the other for x. */
static void names_differ(engine_rank_t *self)
{
    expect_timeout(self, self->rank == 0 ? "x_1" : "x", SHORT_MS);
    ENGINE_TEXT(self, dt_last_error(), self->rank == 0 ? "rank 1 did not" : "rank 0 did not");
    engine_meet(self);
    engine_check_works(self, "x");
    engine_check_works(self, "x_1");
}

static void test_engine_different_names_end_on_both_ranks(void **state)
{
    (void)state;
    engine_run(2, NULL, names_differ, NULL);
}

/* The deadline of one rank ends the operation of all that take part in it. */
static void deadlines_differ(engine_rank_t *self)
{
    if (self->rank != 1) {
        expect_timeout(self, "y", self->rank == 2 ? SHORT_MS : 20000);
        ENGINE_TEXT(self, dt_last_error(), "given up by rank 2");
        ENGINE_TEXT(self, dt_last_error(), "rank 1 did not submit it");
    }
    engine_meet(self);
    engine_check_works(self, "y");
}

static void test_engine_shortest_deadline_ends_it_for_all(void **state)
{
    (void)state;
    engine_run(3, NULL, deadlines_differ, NULL);
}

/* Who comes after the others have given up waits for a new round of the name. */
static void one_rank_is_late(engine_rank_t *self)
{
    if (self->rank == 0)
        expect_timeout(self, "late", SHORT_MS);
    engine_meet(self);
    if (self->rank == 1)
        expect_timeout(self, "late", SHORT_MS);
    engine_meet(self);
    engine_check_works(self, "late");
    if (self->rank == 1)
        expect_timeout(self, "late", SHORT_MS); /* with an id, or on its way to one */
    engine_meet(self);
    engine_check_works(self, "late");
}

static void test_engine_late_rank_waits_for_the_next_round(void **state)
{
    (void)state;
    engine_run(2, NULL, one_rank_is_late, NULL);
}

static void many_wait(engine_rank_t *self)
{
    enum { NUM = 50 };
    float memory[NUM] = {0};
    dtrain_handle_t handles[NUM];
    for (int i = 0; self->rank != 1 && i < NUM; i++) {
        char name[32];
        snprintf(name, sizeof name, "many.%d", i);
        engine_op_t op = {.name = name,
                          .in = &memory[i],
                          .out = &memory[i],
                          .count = 1,
                          .timeout_ms = SHORT_MS + i % 7};
        ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
    }
    for (int i = 0; self->rank != 1 && i < NUM; i++)
        ENGINE_STATUS(self, engine_finish(self, handles[i]), DTRAIN_ERR_TIMEOUT);
    engine_meet(self);
    engine_check_works(self, "many.3");
}

static void test_engine_many_deadlines_pass_at_once(void **state)
{
    (void)state;
    engine_run(3, NULL, many_wait, NULL);
}

static void barrier_waits(engine_rank_t *self)
{
    engine_op_t op = {.kind = DT_KIND_BARRIER, .timeout_ms = SHORT_MS};
    dtrain_handle_t handles[3];
    if (self->rank == 1) {
        for (int i = 0; i < 3; i++)
            ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
        for (int i = 0; i < 3; i++) {
            ENGINE_STATUS(self, engine_finish(self, handles[i]), DTRAIN_ERR_TIMEOUT);
            ENGINE_TEXT(self, dt_last_error(), "barrier");
        }
    }
    engine_meet(self);
    op.timeout_ms = 0;
    ENGINE_OK(self, engine_do(self, &op));
}

static void test_engine_barriers_in_flight_have_deadlines(void **state)
{
    (void)state;
    engine_run(2, NULL, barrier_waits, NULL);
}

/* ---- Which deadline -----------------------------------------------------------------------------
 */

static void configured_deadline(engine_rank_t *self)
{
    float value = 1;
    engine_op_t patient = {
        .name = "patient", .in = &value, .out = &value, .count = 1, .timeout_ms = -1};
    dtrain_handle_t handle = 0;
    if (self->rank == 0) {
        ENGINE_OK(self, engine_submit(self, &patient, &handle));
        expect_timeout(self, "hasty", 0);
        expect_timeout(self, "hasty", 0);
        int done;
        ENGINE_OK(self, dt_runtime_poll(self->runtime, handle, &done));
        ENGINE_CHECK(self, !done);
    }
    engine_meet(self);
    if (self->rank == 1)
        ENGINE_OK(self, engine_submit(self, &patient, &handle));
    ENGINE_OK(self, engine_finish(self, handle));
    ENGINE_CHECK(self, value == 2);
}

static void test_engine_deadline_is_the_configured_one_or_none(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    config.timeout_ns = SHORT_MS * DT_NS_PER_MS;
    engine_run(2, &config, configured_deadline, NULL);
}

static void wait_for_ends(engine_rank_t *self)
{
    float value = 1;
    engine_op_t op = {.name = "w", .in = &value, .out = &value, .count = 1};
    dtrain_handle_t handle;
    if (self->rank == 0) {
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_STATUS(self, dt_runtime_wait(self->runtime, handle, 0), DTRAIN_IN_PROGRESS);
        ENGINE_STATUS(self, dt_runtime_wait(self->runtime, handle, SHORT_MS), DTRAIN_IN_PROGRESS);
        ENGINE_STATUS(self, dt_runtime_release(self->runtime, handle), DTRAIN_IN_PROGRESS);
    }
    engine_meet(self);
    if (self->rank == 1)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, 20000));
    ENGINE_CHECK(self, value == 2);
    ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
}

static void test_engine_wait_for_leaves_the_operation_in_flight(void **state)
{
    (void)state;
    engine_run(2, NULL, wait_for_ends, NULL);
}

/* ---- Warnings -----------------------------------------------------------------------------------
 */

static void stall(engine_rank_t *self)
{
    float memory[6] = {0};
    static const int64_t shape[2] = {2, 3};
    engine_op_t op = {.name = "grad", .in = memory, .out = memory, .shape = shape, .ndim = 2};
    dtrain_handle_t handle = 0;
    if (self->rank == 2)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    /* The others compute, and look at the log; nobody calls the library. */
    ENGINE_CHECK(self, engine_log_wait(self, "allreduce 'grad' float32 [2, 3] waits"));
    ENGINE_CHECK(self, engine_log_wait(self, "for ranks 0-1 (of 3); submitted by rank 2"));
    if (self->rank != 2)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_OK(self, engine_finish(self, handle));
}

static void test_engine_stall_is_warned_of_with_the_missing_ranks(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    config.stall_warning_ns = SHORT_MS * DT_NS_PER_MS;
    engine_run(3, &config, stall, NULL);
}

/* The stalled operation reaches rank 0 while that is busy with others in a wait of its own. */
static void stall_behind_others(engine_rank_t *self)
{
    float value = 1;
    engine_op_t op = {.name = "stalled", .in = &value, .out = &value, .count = 1};
    dtrain_handle_t handle = 0;
    for (int i = 0; i < 20; i++) {
        engine_check_works(self, "busy");
        if (i == 18 && self->rank == 1)
            ENGINE_OK(self, engine_submit(self, &op, &handle));
    }
    ENGINE_CHECK(self, engine_log_wait(self, "'stalled'"));
    if (self->rank == 0)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_OK(self, engine_finish(self, handle));
}

static void test_engine_stall_is_warned_of_when_rank_0_has_nothing_pending(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    config.stall_warning_ns = SHORT_MS * DT_NS_PER_MS;
    for (int i = 0; i < 5; i++)
        engine_run(2, &config, stall_behind_others, NULL);
}

/* ---- Data that gets stuck
 * ------------------------------------------------------------------------ */

/* A backend that moves nothing any more once it is told to. */
typedef struct stuck_backend {
    dt_backend_t base;
    dt_backend_ops_t ops;
    dt_backend_t *inner;
    dtrain_status_t status; /* what progress says instead */
} stuck_backend_t;

static dtrain_status_t stuck_start(dt_backend_t *backend, const dt_collective_t *collective,
                                   dt_task_t **task)
{
    dt_backend_t *inner = ((stuck_backend_t *)backend)->inner;
    return inner->ops->start(inner, collective, task);
}

static dtrain_status_t stuck_progress(dt_backend_t *backend, dt_task_t *task)
{
    stuck_backend_t *stuck = (stuck_backend_t *)backend;
    (void)task;
    if (stuck->status != DTRAIN_IN_PROGRESS)
        return dt_fail(stuck->status, "the cable is cut");
    return DTRAIN_IN_PROGRESS;
}

static void stuck_release(dt_backend_t *backend, dt_task_t *task)
{
    dt_backend_t *inner = ((stuck_backend_t *)backend)->inner;
    inner->ops->release(inner, task);
}

static void stuck_destroy(dt_backend_t *backend, int clean)
{
    dt_backend_t *inner = ((stuck_backend_t *)backend)->inner;
    inner->ops->destroy(inner, clean);
}

/* Rank 1's backend gets stuck, or fails. */
static void put_stuck_backend(engine_rank_t *self, dt_world_t *world)
{
    if (self->rank != 1)
        return;
    stuck_backend_t *stuck = engine_buffer(self, sizeof *stuck);
    stuck->ops = *world->backend->ops;
    stuck->ops.linger = NULL;
    stuck->ops.start = stuck_start;
    stuck->ops.progress = stuck_progress;
    stuck->ops.release = stuck_release;
    stuck->ops.destroy = stuck_destroy;
    stuck->base = *world->backend;
    stuck->base.ops = &stuck->ops;
    stuck->inner = world->backend;
    stuck->status = *(dtrain_status_t *)self->argument;
    world->backend = &stuck->base;
}

static void data_gets_stuck(engine_rank_t *self)
{
    float *values = engine_buffer(self, 4096);
    engine_op_t op = {
        .name = "stuck", .in = values, .out = values, .count = 1000, .timeout_ms = LONGER_MS};
    engine_op_t next = {.name = "next", .in = values, .out = values, .count = 1000};
    int is_stuck = *(dtrain_status_t *)self->argument == DTRAIN_IN_PROGRESS;
    self->end = is_stuck ? DTRAIN_ERR_TIMEOUT : DTRAIN_ERR_COMMUNICATION;
    engine_meet(self);
    ENGINE_STATUS(self, engine_do(self, &op), self->end);
    ENGINE_TEXT(self, dt_last_error(), is_stuck ? "'stuck'" : "rank 1: the cable is cut");
    ENGINE_STATUS(self, engine_do(self, &next), self->end);
    ENGINE_TEXT(self, dt_last_error(), is_stuck ? "'stuck'" : "rank 1: the cable is cut");
}

static void test_engine_data_that_does_not_move_ends_the_world_in_time(void **state)
{
    (void)state;
    dtrain_status_t status = DTRAIN_IN_PROGRESS;
    engine_run_prepared(3, NULL, put_stuck_backend, data_gets_stuck, &status);
}

static void test_engine_backend_error_ends_the_world_on_all_ranks(void **state)
{
    (void)state;
    dtrain_status_t status = DTRAIN_ERR_COMMUNICATION;
    engine_run_prepared(3, NULL, put_stuck_backend, data_gets_stuck, &status);
}

/* Rank 0 says so, and where all ranks are. */
static void data_stalls(engine_rank_t *self)
{
    float *values = engine_buffer(self, 4096);
    engine_op_t op = {.name = "stuck", .in = values, .out = values, .count = 1000};
    dtrain_handle_t handle;
    self->end = DTRAIN_ERR_ABORTED;
    ENGINE_OK(self, engine_submit(self, &op, &handle));
    if (self->rank == 0) {
        ENGINE_CHECK(self, engine_log_wait(self, "allreduce 'stuck': all ranks have submitted it, "
                                                 "and nothing has come further on rank 0 for "));
        for (int rank = 0; rank < self->size; rank++) {
            char line[128];
            snprintf(line, sizeof line, "rank %d on host node0 (pid %d): last submitted allreduce",
                     rank, (int)getpid());
            ENGINE_CHECK(self, engine_log_wait(self, line));
        }
        ENGINE_OK(self, dt_runtime_abort(self->runtime, 1, NULL));
    }
    ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_ABORTED);
}

static void test_engine_data_that_does_not_move_is_warned_of(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    dtrain_status_t status = DTRAIN_IN_PROGRESS;
    config.stall_warning_ns = SHORT_MS * DT_NS_PER_MS;
    engine_run_prepared(3, &config, put_stuck_backend, data_stalls, &status);
}

/* All ranks are on their way out when the data gets stuck. */
static void leave_with_stuck_data(engine_rank_t *self)
{
    float *values = engine_buffer(self, 4096);
    int is_stuck = *(dtrain_status_t *)self->argument == DTRAIN_IN_PROGRESS;
    engine_op_t op = {.name = "stuck",
                      .in = values,
                      .out = values,
                      .count = 1000,
                      .timeout_ms = is_stuck ? LONGER_MS : 0};
    dtrain_handle_t handle;
    ENGINE_OK(self, engine_submit(self, &op, &handle));
    dtrain_status_t wanted = is_stuck ? DTRAIN_ERR_TIMEOUT : DTRAIN_ERR_COMMUNICATION;
    dtrain_status_t end = engine_shutdown(self);
    ENGINE_CHECK(self, end == wanted || end == DTRAIN_OK || end == DTRAIN_ERR_RANK_LOST);
    dtrain_status_t status = engine_finish(self, handle);
    if (self->rank == 1)
        ENGINE_CHECK(self, status == wanted);
}

static void test_engine_data_that_gets_stuck_during_shutdown_ends_it_in_time(void **state)
{
    (void)state;
    dtrain_status_t status = DTRAIN_IN_PROGRESS;
    engine_run_prepared(3, NULL, put_stuck_backend, leave_with_stuck_data, &status);
    status = DTRAIN_ERR_COMMUNICATION;
    engine_run_prepared(3, NULL, put_stuck_backend, leave_with_stuck_data, &status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_deadline_on_one_rank_names_the_missing),
        cmocka_unit_test(test_engine_different_names_end_on_both_ranks),
        cmocka_unit_test(test_engine_shortest_deadline_ends_it_for_all),
        cmocka_unit_test(test_engine_late_rank_waits_for_the_next_round),
        cmocka_unit_test(test_engine_many_deadlines_pass_at_once),
        cmocka_unit_test(test_engine_barriers_in_flight_have_deadlines),
        cmocka_unit_test(test_engine_deadline_is_the_configured_one_or_none),
        cmocka_unit_test(test_engine_wait_for_leaves_the_operation_in_flight),
        cmocka_unit_test(test_engine_stall_is_warned_of_with_the_missing_ranks),
        cmocka_unit_test(test_engine_stall_is_warned_of_when_rank_0_has_nothing_pending),
        cmocka_unit_test(test_engine_data_that_does_not_move_is_warned_of),
        cmocka_unit_test(test_engine_data_that_does_not_move_ends_the_world_in_time),
        cmocka_unit_test(test_engine_backend_error_ends_the_world_on_all_ranks),
        cmocka_unit_test(test_engine_data_that_gets_stuck_during_shutdown_ends_it_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
