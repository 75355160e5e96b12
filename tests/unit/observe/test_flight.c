#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/flight.h"

typedef struct recorder {
    dt_flight_board_t *board;
    dt_flight_t flight;
    dt_flight_record_t records[DT_FLIGHT_RECORDS];
} recorder_t;

static recorder_t *open_recorder(void)
{
    recorder_t *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->board = aligned_alloc(64, sizeof *self->board);
    assert_non_null(self->board);
    memset(self->board, 0, sizeof *self->board);
    dt_flight_init(&self->flight, self->board);
    return self;
}

static void close_recorder(recorder_t *self)
{
    free(self->board);
    free(self);
}

static dt_flight_ref_t submit(recorder_t *self, const char *name, int64_t now_ns)
{
    dt_flight_operation_t operation = {
        .name = name, .length = strlen(name), .count = 7, .set = 3, .kind = 1, .dtype = 6};
    dt_flight_at(&self->flight, now_ns);
    return dt_flight_submit(&self->flight, &operation);
}

static void finish(recorder_t *self, dt_flight_ref_t ref, int64_t now_ns)
{
    dt_flight_at(&self->flight, now_ns);
    dt_flight_finish(&self->flight, ref, DTRAIN_OK);
}

static void test_flight_nothing_submitted_reads_as_empty(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    dt_flight_position_t position;
    assert_int_equal(dt_flight_read(self->board, self->records), 0);
    dt_flight_read_position(self->board, &position);
    for (int stage = 0; stage < DT_FLIGHT_STAGES; stage++) {
        assert_int_equal(position.counts[stage], 0);
        assert_int_equal(position.last[stage].number, 0);
    }
    close_recorder(self);
}

static void test_flight_operation_keeps_what_it_is_and_when_it_came_so_far(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    dt_flight_ref_t ref = submit(self, "grad.12", 100);
    dt_flight_at(&self->flight, 200);
    dt_flight_agree(&self->flight, ref, 41);
    dt_flight_at(&self->flight, 300);
    dt_flight_start(&self->flight, ref);
    dt_flight_at(&self->flight, 350);
    dt_flight_start(&self->flight, ref); /* of several collectives the first counts */
    dt_flight_at(&self->flight, 400);
    dt_flight_finish(&self->flight, ref, DTRAIN_ERR_TIMEOUT);

    assert_int_equal(dt_flight_read(self->board, self->records), 1);
    const dt_flight_record_t *record = &self->records[0];
    assert_string_equal(record->name, "grad.12");
    assert_int_equal(record->number, 1);
    assert_int_equal(record->count, 7);
    assert_int_equal(record->set, 3);
    assert_int_equal(record->place, 41);
    assert_int_equal(record->kind, 1);
    assert_int_equal(record->dtype, 6);
    assert_int_equal(record->status, DTRAIN_ERR_TIMEOUT);
    for (int stage = 0; stage < DT_FLIGHT_STAGES; stage++)
        assert_int_equal(record->times_ns[stage], 100 * (stage + 1));
    close_recorder(self);
}

static void test_flight_unfinished_has_no_status_and_no_times(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    submit(self, "w", 5);
    assert_int_equal(dt_flight_read(self->board, self->records), 1);
    assert_int_equal(self->records[0].status, DTRAIN_IN_PROGRESS);
    assert_int_equal(self->records[0].times_ns[DT_FLIGHT_AGREED], 0);
    assert_int_equal(self->records[0].times_ns[DT_FLIGHT_FINISHED], 0);
    close_recorder(self);
}

static void test_flight_position_names_the_last_of_each_stage(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    dt_flight_ref_t first = submit(self, "a", 10);
    dt_flight_ref_t second = submit(self, "b", 20);
    submit(self, "c", 30);
    dt_flight_at(&self->flight, 40);
    dt_flight_agree(&self->flight, second, 1);
    dt_flight_agree(&self->flight, first, 2);
    dt_flight_start(&self->flight, second);
    finish(self, second, 50);
    dt_flight_position_t position;
    dt_flight_read_position(self->board, &position);
    assert_int_equal(position.counts[DT_FLIGHT_SUBMITTED], 3);
    assert_int_equal(position.counts[DT_FLIGHT_AGREED], 2);
    assert_int_equal(position.counts[DT_FLIGHT_FINISHED], 1);
    assert_string_equal(position.last[DT_FLIGHT_SUBMITTED].name, "c");
    assert_string_equal(position.last[DT_FLIGHT_AGREED].name, "a");
    assert_string_equal(position.last[DT_FLIGHT_STARTED].name, "b");
    assert_string_equal(position.last[DT_FLIGHT_FINISHED].name, "b");
    assert_int_equal(position.times_ns[DT_FLIGHT_SUBMITTED], 30);
    assert_int_equal(position.times_ns[DT_FLIGHT_FINISHED], 50);
    close_recorder(self);
}

static void test_flight_well_finished_without_start_has_started_then(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    dt_flight_ref_t well = submit(self, "barrier", 10);
    dt_flight_ref_t refused = submit(self, "refused", 10);
    finish(self, well, 20);
    dt_flight_finish(&self->flight, refused, DTRAIN_ERR_MISMATCH);
    dt_flight_read(self->board, self->records);
    assert_int_equal(self->records[0].times_ns[DT_FLIGHT_STARTED], 20);
    assert_int_equal(self->records[1].times_ns[DT_FLIGHT_STARTED], 0);
    assert_int_equal(self->records[1].times_ns[DT_FLIGHT_FINISHED], 20);
    close_recorder(self);
}

static void test_flight_full_ring_keeps_the_newest(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    char name[32];
    for (int i = 1; i <= DT_FLIGHT_RECORDS + 10; i++) {
        snprintf(name, sizeof name, "w%d", i);
        finish(self, submit(self, name, i), i);
    }
    assert_int_equal(dt_flight_read(self->board, self->records), DT_FLIGHT_RECORDS);
    assert_string_equal(self->records[0].name, "w11");
    snprintf(name, sizeof name, "w%d", DT_FLIGHT_RECORDS + 10);
    assert_string_equal(self->records[DT_FLIGHT_RECORDS - 1].name, name);
    close_recorder(self);
}

static void test_flight_unfinished_outlives_a_full_ring(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    dt_flight_ref_t stuck = submit(self, "stuck", 1);
    for (int i = 2; i < 3 * DT_FLIGHT_RECORDS; i++)
        finish(self, submit(self, "w", i), i);
    assert_int_equal(dt_flight_read(self->board, self->records), DT_FLIGHT_RECORDS);
    assert_string_equal(self->records[0].name, "stuck");
    finish(self, stuck, 77);
    dt_flight_read(self->board, self->records);
    assert_int_equal(self->records[0].times_ns[DT_FLIGHT_FINISHED], 77);
    close_recorder(self);
}

static void test_flight_more_unfinished_than_records_goes_on(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    dt_flight_ref_t first = submit(self, "first", 1);
    for (int i = 2; i <= DT_FLIGHT_RECORDS + 1; i++)
        submit(self, "w", i);
    finish(self, first, 9999); /* its record is another's by now */
    dt_flight_position_t position;
    dt_flight_read_position(self->board, &position);
    assert_int_equal(position.counts[DT_FLIGHT_SUBMITTED], DT_FLIGHT_RECORDS + 1);
    assert_int_equal(position.counts[DT_FLIGHT_FINISHED], 1);
    assert_int_equal(position.last[DT_FLIGHT_FINISHED].number, 0);
    dt_flight_read(self->board, self->records);
    for (int i = 0; i < DT_FLIGHT_RECORDS; i++)
        assert_int_equal(self->records[i].times_ns[DT_FLIGHT_FINISHED], 0);
    close_recorder(self);
}

static void test_flight_long_name_keeps_its_end_in_whole_characters(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    char name[120];
    memset(name, 'x', sizeof name);
    strcpy(name + 80, ".layer.31.weight");
    submit(self, name, 1);
    /* Two bytes a character, so that the cut falls into one of them for one of two lengths. */
    for (int i = 0; i < 100; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    name[100] = '\0';
    submit(self, name, 2);
    name[99] = 'e';
    memcpy(name + 98, "e", 1);
    submit(self, name + 1, 3);
    dt_flight_read(self->board, self->records);
    const char *text = self->records[0].name;
    assert_int_equal(strlen(text), DT_FLIGHT_NAME_MAX - 1);
    assert_memory_equal(text, "...xx", 5);
    assert_string_equal(text + strlen(text) - 16, ".layer.31.weight");
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(self->records[i].name, "...", 3);
        assert_int_equal((unsigned char)self->records[i].name[3], 0xc3);
    }
    close_recorder(self);
}

static void test_flight_short_name_after_a_long_one_is_itself(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    for (int i = 0; i < DT_FLIGHT_RECORDS; i++)
        finish(self, submit(self, "a name that takes several words", 1), 1);
    submit(self, "eight888", 2);
    dt_flight_read(self->board, self->records);
    assert_string_equal(self->records[DT_FLIGHT_RECORDS - 1].name, "eight888");
    close_recorder(self);
}

/* ---- Reading while it is written ------------------------------------------------------------ */

static _Atomic int is_over;

static void *write_on(void *argument)
{
    recorder_t *self = argument;
    char name[32];
    for (int i = 1; !atomic_load(&is_over); i++) {
        snprintf(name, sizeof name, "%d-tensor-%d", i, i);
        finish(self, submit(self, name, i), i);
    }
    return NULL;
}

static void test_flight_read_while_written_is_never_torn(void **state)
{
    (void)state;
    recorder_t *self = open_recorder();
    pthread_t writer;
    atomic_store(&is_over, 0);
    assert_int_equal(pthread_create(&writer, NULL, write_on, self), 0);
    int torn = 0;
    for (int round = 0; round < 200; round++) {
        int count = dt_flight_read(self->board, self->records);
        for (int i = 0; i < count; i++) {
            const dt_flight_record_t *record = &self->records[i];
            char name[32];
            int number = (int)record->number;
            snprintf(name, sizeof name, "%d-tensor-%d", number, number);
            torn += strcmp(name, record->name) != 0 || record->times_ns[0] != number;
        }
    }
    atomic_store(&is_over, 1);
    pthread_join(writer, NULL);
    assert_int_equal(torn, 0);
    close_recorder(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flight_nothing_submitted_reads_as_empty),
        cmocka_unit_test(test_flight_operation_keeps_what_it_is_and_when_it_came_so_far),
        cmocka_unit_test(test_flight_unfinished_has_no_status_and_no_times),
        cmocka_unit_test(test_flight_position_names_the_last_of_each_stage),
        cmocka_unit_test(test_flight_well_finished_without_start_has_started_then),
        cmocka_unit_test(test_flight_full_ring_keeps_the_newest),
        cmocka_unit_test(test_flight_unfinished_outlives_a_full_ring),
        cmocka_unit_test(test_flight_more_unfinished_than_records_goes_on),
        cmocka_unit_test(test_flight_long_name_keeps_its_end_in_whole_characters),
        cmocka_unit_test(test_flight_short_name_after_a_long_one_is_itself),
        cmocka_unit_test(test_flight_read_while_written_is_never_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
