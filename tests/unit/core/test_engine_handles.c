/* Callbacks, priorities, waiting for any, and many operations at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"

static const int sizes[] = {1, 2, 3};

static void on_all_sizes(engine_fn_t fn)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        engine_run(sizes[i], NULL, fn, NULL);
}

/* ---- Callbacks --------------------------------------------------------------------------------
 */

typedef struct noted {
    engine_rank_t *self;
    _Atomic int calls; /* [atomic] release: the others are written */
    dtrain_handle_t handle;
    dtrain_status_t status;
    int releases; /* it gives the handle back itself */
    float value;
} noted_t;

static void note(uint64_t handle, dtrain_status_t status, void *user)
{
    noted_t *noted = user;
    engine_rank_t *self = noted->self;
    int done = 0;
    noted->handle = handle;
    noted->status = status;
    ENGINE_OK(self, dt_runtime_poll(self->runtime, handle, &done));
    ENGINE_CHECK(self, done);
    ENGINE_STATUS(self, dt_runtime_wait(self->runtime, handle, -1), status);
    if (noted->releases)
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    atomic_fetch_add(&noted->calls, 1);
}

static void called_once(engine_rank_t *self)
{
    for (int round = 0; round < 20; round++) {
        noted_t noted = {.self = self, .value = 1, .releases = round % 2};
        int is_wrong = round % 3 == 2 && self->size > 1;
        engine_op_t op = {.name = "x",
                          .in = &noted.value,
                          .out = &noted.value,
                          .count = is_wrong && self->rank == 0 ? 0 : 1,
                          .callback = note,
                          .user = &noted};
        dtrain_status_t wanted = is_wrong ? DTRAIN_ERR_MISMATCH : DTRAIN_OK;
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        if (noted.releases) {
            /* What it was is not to be had any more, or was in time. */
            dtrain_status_t status = dt_runtime_wait(self->runtime, handle, -1);
            ENGINE_CHECK(self, status == DTRAIN_ERR_INVALID_HANDLE);
            while (atomic_load(&noted.calls) == 0)
                ENGINE_OK(self,
                          engine_do(self, &(engine_op_t){.name = "y", .kind = DT_KIND_BARRIER}));
        } else {
            ENGINE_STATUS(self, dt_runtime_wait(self->runtime, handle, -1), wanted);
            ENGINE_CHECK(self, atomic_load(&noted.calls) == 1);
            ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
        }
        engine_check_works(self, "z");
        ENGINE_CHECK(self, atomic_load(&noted.calls) == 1);
        ENGINE_CHECK(self, noted.handle == handle && noted.status == wanted);
    }
}

static void test_engine_callback_comes_once_and_before_wait_returns(void **state)
{
    (void)state;
    on_all_sizes(called_once);
}

/* Each callback submits the next operation. */
static void chain(uint64_t handle, dtrain_status_t status, void *user)
{
    noted_t *noted = user;
    engine_rank_t *self = noted->self;
    ENGINE_OK(self, status);
    ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    if (atomic_fetch_add(&noted->calls, 1) == 9)
        return;
    engine_op_t op = {.name = "x",
                      .in = &noted->value,
                      .out = &noted->value,
                      .count = 1,
                      .callback = chain,
                      .user = noted};
    dtrain_handle_t next;
    ENGINE_OK(self, engine_submit(self, &op, &next));
    ENGINE_STATUS(self, dt_runtime_wait(self->runtime, next, -1), DTRAIN_ERR_IN_CALLBACK);
    ENGINE_STATUS(self, dt_runtime_wait(self->runtime, next, 0), DTRAIN_ERR_IN_CALLBACK);
    int index = 5;
    ENGINE_STATUS(self, dt_runtime_wait_any(self->runtime, &next, 1, &index),
                  DTRAIN_ERR_IN_CALLBACK);
    ENGINE_CHECK(self, index == 5);
    ENGINE_STATUS(self, dt_runtime_shutdown(self->runtime), DTRAIN_ERR_IN_CALLBACK);
}

static void chained(engine_rank_t *self)
{
    noted_t noted = {.self = self, .value = 1};
    engine_op_t op = {.name = "x",
                      .in = &noted.value,
                      .out = &noted.value,
                      .count = 1,
                      .callback = chain,
                      .user = &noted};
    dtrain_handle_t handle;
    ENGINE_OK(self, engine_submit(self, &op, &handle));
    for (int i = 0; atomic_load(&noted.calls) < 10; i++)
        dt_runtime_wait(self->runtime, handle, 1); /* works for the library, or finds it stale */
    float wanted = 1;
    for (int i = 0; i < 10; i++)
        wanted *= (float)self->size;
    ENGINE_CHECK(self, noted.value == wanted);
}

static void test_engine_callback_may_submit_and_may_not_wait(void **state)
{
    (void)state;
    on_all_sizes(chained);
}

/* What is pending when a rank leaves ends with an error, in a callback too. */
static void ends(engine_rank_t *self)
{
    noted_t noted = {.self = self, .value = 1};
    engine_op_t op = {.name = "alone",
                      .in = &noted.value,
                      .out = &noted.value,
                      .count = 1,
                      .callback = note,
                      .user = &noted};
    dtrain_handle_t handle;
    if (self->rank == 0)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_OK(self, engine_shutdown(self));
    ENGINE_CHECK(self, atomic_load(&noted.calls) == (self->rank == 0));
    ENGINE_CHECK(self, self->rank != 0 || noted.status == DTRAIN_ERR_SHUT_DOWN);
    if (self->rank == 0)
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
}

static void test_engine_callback_of_what_never_came_to_be_has_been_called_at_shutdown(void **state)
{
    (void)state;
    engine_run(2, NULL, ends, NULL);
    engine_run(3, NULL, ends, NULL);
}

/* ---- Waiting for any ---------------------------------------------------------------------------
 */

#define HANDLES 6

static void any_of(engine_rank_t *self)
{
    float values[HANDLES];
    char names[HANDLES][16];
    dtrain_handle_t handles[HANDLES] = {0};
    int index = -1, seen[HANDLES] = {0};
    ENGINE_STATUS(self, dt_runtime_wait_any(self->runtime, handles, 0, &index),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < HANDLES; i++) {
        snprintf(names[i], sizeof names[i], "h%d", i);
        values[i] = 1;
        engine_op_t op = {
            .name = names[i], .in = &values[i], .out = &values[i], .count = i == 4 ? -1 : 1};
        handles[i] = 0;
        ENGINE_STATUS(self, engine_submit(self, &op, &handles[i]),
                      i == 4 ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK);
    }
    for (int n = 0; n < HANDLES - 1; n++) {
        ENGINE_OK(self, dt_runtime_wait_any(self->runtime, handles, HANDLES, &index));
        ENGINE_CHECK(self, index >= 0 && index != 4 && !seen[index]);
        seen[index] = 1;
        ENGINE_CHECK(self, values[index] == (float)self->size);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handles[index]));
        handles[index] = 0;
    }
    ENGINE_STATUS(self, dt_runtime_wait_any(self->runtime, handles, HANDLES, &index),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    handles[3] = 12345;
    ENGINE_STATUS(self, dt_runtime_wait_any(self->runtime, handles, HANDLES, &index),
                  DTRAIN_ERR_INVALID_HANDLE);
    ENGINE_CHECK(self, index == 3);
}

static void test_engine_wait_any_gives_each_once(void **state)
{
    (void)state;
    on_all_sizes(any_of);
}

/* One of two becomes complete on no rank before rank 0 has come back from its wait for any. */
static void first_of_two(engine_rank_t *self)
{
    float never = 0, soon = 1, back = 1;
    dtrain_handle_t handles[2];
    engine_op_t op = {.name = "never", .in = &never, .out = &never, .count = 1};
    if (self->rank == 0)
        ENGINE_OK(self, engine_submit(self, &op, &handles[0]));
    op = (engine_op_t){.name = "soon", .in = &soon, .out = &soon, .count = 1};
    ENGINE_OK(self, engine_submit(self, &op, &handles[1]));
    int index = 0;
    if (self->rank == 0) {
        ENGINE_OK(self, dt_runtime_wait_any(self->runtime, handles, 2, &index));
        ENGINE_CHECK(self, index == 1);
    }
    ENGINE_OK(self, engine_finish(self, handles[1]));
    op = (engine_op_t){.name = "back", .in = &back, .out = &back, .count = 1};
    ENGINE_OK(self, engine_do(self, &op));
    if (self->rank != 0) {
        op = (engine_op_t){.name = "never", .in = &never, .out = &never, .count = 1};
        ENGINE_OK(self, engine_do(self, &op));
    } else {
        ENGINE_OK(self, engine_finish(self, handles[0]));
    }
}

static void test_engine_wait_any_does_not_wait_for_the_others(void **state)
{
    (void)state;
    engine_run(2, NULL, first_of_two, NULL);
    engine_run(3, NULL, first_of_two, NULL);
}

/* ---- Priorities
 * ---------------------------------------------------------------------------------- */

#define RANKED 12

typedef struct order {
    int n;
    int which[RANKED];
} order_t;

typedef struct ranked {
    order_t *order;
    int i;
} ranked_t;

static void note_order(uint64_t handle, dtrain_status_t status, void *user)
{
    ranked_t *ranked = user;
    (void)handle;
    if (status == DTRAIN_OK)
        ranked->order->which[ranked->order->n++] = ranked->i;
}

typedef struct lot {
    engine_rank_t *self;
    order_t order;
    ranked_t ranked[RANKED];
    dtrain_handle_t handles[RANKED];
    char names[RANKED][16];
    float values[RANKED];
} lot_t;

/* Broadcasts, each of which travels by itself. Rank 0 gives low priorities: the highest counts. */
static void submit_lot(lot_t *lot)
{
    static const int priorities[RANKED] = {0, 3, -2, 7, 1, 7, 0, -5, 2, 9, 4, 0};
    engine_rank_t *self = lot->self;
    for (int i = 0; i < RANKED; i++) {
        snprintf(lot->names[i], sizeof lot->names[i], "p%d", i);
        lot->ranked[i] = (ranked_t){.order = &lot->order, .i = i};
        engine_op_t op = {.name = lot->names[i],
                          .kind = DT_KIND_BROADCAST,
                          .out = &lot->values[i],
                          .count = 1,
                          .priority = self->rank == 0 ? -100 : priorities[i],
                          .callback = note_order,
                          .user = &lot->ranked[i]};
        ENGINE_OK(self, engine_submit(self, &op, &lot->handles[i]));
    }
}

static void submit_in_callback(uint64_t handle, dtrain_status_t status, void *user)
{
    lot_t *lot = user;
    (void)handle;
    if (ENGINE_OK(lot->self, status))
        submit_lot(lot);
}

/* The last rank submits all within a callback, so that they are complete all at once. */
static void by_priority(engine_rank_t *self)
{
    static const int wanted[RANKED] = {9, 3, 5, 10, 1, 8, 4, 0, 6, 11, 2, 7};
    lot_t *lot = engine_buffer(self, sizeof *lot);
    for (int round = 0; round < 3; round++) {
        *lot = (lot_t){.self = self};
        int is_last = self->rank == self->size - 1;
        if (!is_last)
            submit_lot(lot);
        engine_op_t gate = {.name = "gate", .kind = DT_KIND_BARRIER};
        if (is_last)
            gate = (engine_op_t){.name = "gate",
                                 .kind = DT_KIND_BARRIER,
                                 .callback = submit_in_callback,
                                 .user = lot};
        ENGINE_OK(self, engine_do(self, &gate));
        for (int i = 0; i < RANKED; i++)
            ENGINE_OK(self, engine_finish(self, lot->handles[i]));
        ENGINE_CHECK(self, lot->order.n == RANKED);
        /* They begin in this order; a few are under way at once, and may pass each other then. */
        for (int at = 0; at < RANKED; at++) {
            int place = 0;
            while (wanted[place] != lot->order.which[at])
                place++;
            ENGINE_CHECK(self, place < at + DT_BUCKETS_RUNNING_MAX);
        }
    }
}

static void test_engine_priority_is_kept_in_the_same_order_on_all_ranks(void **state)
{
    (void)state;
    engine_run(2, NULL, by_priority, NULL);
    engine_run(3, NULL, by_priority, NULL);
}

/* ---- Many
 * ------------------------------------------------------------------------------------------ */

#define MANY 10000

/* The last rank submits in the reverse order, so that all are outstanding at once. */
static void many(engine_rank_t *self)
{
    float *values = engine_buffer(self, MANY * sizeof *values);
    dtrain_handle_t *handles = engine_buffer(self, MANY * sizeof *handles);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < MANY; k++) {
            int i = self->rank == self->size - 1 ? MANY - 1 - k : k;
            char name[16];
            snprintf(name, sizeof name, "m%d", i);
            values[i] = (float)i;
            engine_op_t op = {.name = name, .in = &values[i], .out = &values[i], .count = 1};
            if (i % 1000 == 7)
                op.kind = DT_KIND_ALLGATHER, op.out = NULL;
            ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
        }
        int wrong = 0;
        for (int i = 0; i < MANY; i++) {
            if (i % 2) {
                ENGINE_OK(self, dt_runtime_wait(self->runtime, handles[i], -1));
                ENGINE_OK(self, dt_runtime_release(self->runtime, handles[i]));
            } else {
                int index = -1;
                ENGINE_OK(self, dt_runtime_wait_any(self->runtime, &handles[i], 1, &index));
                ENGINE_OK(self, dt_runtime_release(self->runtime, handles[i]));
            }
            wrong += i % 1000 != 7 && values[i] != (float)i * (float)self->size;
        }
        ENGINE_CHECK(self, wrong == 0);
    }
}

static void test_engine_ten_thousand_operations_are_outstanding_at_once(void **state)
{
    (void)state;
    on_all_sizes(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_callback_comes_once_and_before_wait_returns),
        cmocka_unit_test(test_engine_callback_may_submit_and_may_not_wait),
        cmocka_unit_test(test_engine_callback_of_what_never_came_to_be_has_been_called_at_shutdown),
        cmocka_unit_test(test_engine_wait_any_gives_each_once),
        cmocka_unit_test(test_engine_wait_any_does_not_wait_for_the_others),
        cmocka_unit_test(test_engine_priority_is_kept_in_the_same_order_on_all_ranks),
        cmocka_unit_test(test_engine_ten_thousand_operations_are_outstanding_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
