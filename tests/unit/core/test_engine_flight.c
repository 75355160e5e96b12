#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/recording.h"
#include "engine_world.h"

/* What a rank has recorded, in the order of submission. */
static int read_records(engine_rank_t *self, dt_flight_record_t **records)
{
    *records = engine_buffer(self, DT_FLIGHT_RECORDS * sizeof **records);
    return dt_flight_read(self->runtime->flight.board, *records);
}

static const dt_flight_record_t *find(const dt_flight_record_t *records, int count,
                                      const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(records[i].name, name) == 0)
            return &records[i];
    }
    return NULL;
}

static void reduce(engine_rank_t *self, const char *name, dtrain_pset_t pset,
                   dtrain_status_t wanted)
{
    float *values = engine_buffer(self, 4 * sizeof *values);
    engine_op_t op = {.name = name, .in = values, .out = values, .count = 4, .pset = pset};
    if (wanted == DTRAIN_ERR_MISMATCH && self->rank == 1)
        op.count = 3;
    ENGINE_STATUS(self, engine_do(self, &op), wanted);
}

static void run_some(engine_rank_t *self)
{
    static const int both[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, both, 2, &pset));
    for (int step = 0; step < 3; step++)
        reduce(self, "w", DTRAIN_PSET_WORLD, DTRAIN_OK);
    if (self->rank < 2)
        reduce(self, "of two", pset, DTRAIN_OK);
    reduce(self, "shapes", DTRAIN_PSET_WORLD, DTRAIN_ERR_MISMATCH);
    reduce(self, "last", DTRAIN_PSET_WORLD, DTRAIN_OK);

    dt_flight_record_t *records;
    int count = read_records(self, &records);
    ENGINE_CHECK(self, count == (self->rank < 2 ? 7 : 6));
    for (int i = 0; i < count; i++) {
        ENGINE_CHECK(self, records[i].times_ns[DT_FLIGHT_SUBMITTED] > 0);
        ENGINE_CHECK(self, records[i].times_ns[DT_FLIGHT_FINISHED] >=
                               records[i].times_ns[DT_FLIGHT_SUBMITTED]);
    }
    const dt_flight_record_t *last = find(records, count, "last");
    const dt_flight_record_t *shapes = find(records, count, "shapes");
    const dt_flight_record_t *of_two = find(records, count, "of two");
    if (!ENGINE_CHECK(self, last && shapes && (of_two || self->rank > 1)))
        return;
    /* The change of sets, three times w, and this one: the same place on all ranks. */
    ENGINE_CHECK(self, last->place == 5);
    ENGINE_CHECK(self, last->status == DTRAIN_OK && last->count == 4);
    ENGINE_CHECK(self, last->kind == DT_KIND_ALLREDUCE && last->dtype == DTRAIN_DTYPE_F32);
    ENGINE_CHECK(self, last->times_ns[DT_FLIGHT_STARTED] >= last->times_ns[DT_FLIGHT_AGREED]);
    ENGINE_CHECK(self, shapes->status == DTRAIN_ERR_MISMATCH && shapes->place == 0);
    if (of_two)
        ENGINE_CHECK(self, of_two->place == 1 && of_two->set == pset);

    dt_flight_position_t position;
    dt_flight_read_position(self->runtime->flight.board, &position);
    ENGINE_CHECK(self, position.counts[DT_FLIGHT_SUBMITTED] == (uint64_t)count);
    ENGINE_CHECK(self, position.counts[DT_FLIGHT_FINISHED] == (uint64_t)count);
    ENGINE_CHECK(self, position.counts[DT_FLIGHT_AGREED] == (uint64_t)count - 1);
    ENGINE_TEXT(self, position.last[DT_FLIGHT_FINISHED].name, "last");
}

static void test_engine_flight_ranks_record_the_same_places(void **state)
{
    (void)state;
    engine_run(3, NULL, run_some, NULL);
}

static void run_alone(engine_rank_t *self)
{
    engine_check_works(self, "alone");
    dt_flight_record_t *records;
    ENGINE_CHECK(self, read_records(self, &records) == 1);
    ENGINE_CHECK(self, records[0].status == DTRAIN_OK);
}

static void test_engine_flight_world_of_one_records_too(void **state)
{
    (void)state;
    engine_run(1, NULL, run_alone, NULL);
}

/* One rank submits, the other does not: what it says of itself is where it stands. */
static void leave_one_waiting(engine_rank_t *self)
{
    engine_check_works(self, "before");
    dt_flight_position_t position;
    float *values = engine_buffer(self, 4 * sizeof *values);
    engine_op_t op = {.name = "alone", .in = values, .out = values, .count = 4};
    dtrain_handle_t handle = 0;
    if (self->rank == 0) {
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        do {
            dt_flight_read_position(self->runtime->flight.board, &position);
        } while (strcmp(position.last[DT_FLIGHT_SUBMITTED].name, "alone") != 0);
        ENGINE_CHECK(self, position.counts[DT_FLIGHT_SUBMITTED] == 2);
        ENGINE_TEXT(self, position.last[DT_FLIGHT_AGREED].name, "before");
    }
    engine_meet(self);
    if (self->rank == 0)
        ENGINE_OK(self, engine_finish(self, handle));
    else
        ENGINE_OK(self, engine_do(self, &op));
}

static void test_engine_flight_waiting_operation_is_submitted_only(void **state)
{
    (void)state;
    engine_run(2, NULL, leave_one_waiting, NULL);
}

/* What the others of the node read of a rank that hangs, or has died. */
static void be_described(engine_rank_t *self)
{
    char text[256];
    float *values = engine_buffer(self, 4 * sizeof *values);
    engine_op_t op = {.name = "alone", .in = values, .out = values, .count = 4};
    dtrain_handle_t handle = 0;
    dt_recording_describe(self->runtime, 1 - self->rank, text, sizeof text);
    ENGINE_CHECK(self, text[0] == '\0');
    engine_meet(self);
    engine_check_works(self, "before");
    engine_meet(self);
    if (self->rank == 0) {
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    } else {
        do {
            dt_recording_describe(self->runtime, 0, text, sizeof text);
        } while (strstr(text, "outside of all operations, and had finished allreduce 'before'"));
        ENGINE_TEXT(self, text,
                    "waiting for other ranks in allreduce 'alone' (its operation 2; 1 "
                    "unfinished), and had finished allreduce 'before' ");
        ENGINE_OK(self, engine_do(self, &op));
    }
    if (self->rank == 0)
        ENGINE_OK(self, engine_finish(self, handle));
}

static void test_engine_flight_rank_is_described_by_others_of_its_node(void **state)
{
    (void)state;
    engine_run(2, NULL, be_described, NULL);
}

/* A rank that has joined counts what the others agree on, and records nothing of it. */
static void join_early(engine_rank_t *self)
{
    int last_rank;
    if (self->rank == 0) {
        reduce(self, "u", DTRAIN_PSET_WORLD, DTRAIN_OK);
        reduce(self, "v", DTRAIN_PSET_WORLD, DTRAIN_OK);
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last_rank));
    engine_check_works(self, "after");
    dt_flight_record_t *records;
    int count = read_records(self, &records);
    const dt_flight_record_t *after = find(records, count, "after");
    ENGINE_CHECK(self, count == (self->rank == 0 ? 4 : 2));
    ENGINE_CHECK(self, after && after->place == 4);
}

static void test_engine_flight_joined_rank_keeps_count(void **state)
{
    (void)state;
    engine_run(2, NULL, join_early, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_flight_ranks_record_the_same_places),
        cmocka_unit_test(test_engine_flight_world_of_one_records_too),
        cmocka_unit_test(test_engine_flight_waiting_operation_is_submitted_only),
        cmocka_unit_test(test_engine_flight_rank_is_described_by_others_of_its_node),
        cmocka_unit_test(test_engine_flight_joined_rank_keeps_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
