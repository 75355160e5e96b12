#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "core/intake.h"
#include "core/wire.h"
#include "failing_memory.h"

static dt_operation_t of_kind(dt_kind_t kind)
{
    dt_operation_t operation;
    memset(&operation, 0, sizeof operation);
    operation.signature.kind = (uint8_t)kind;
    return operation;
}

static dt_operation_t refused(void)
{
    dt_operation_t operation = of_kind(DT_KIND_ALLREDUCE);
    operation.is_refused = 1;
    return operation;
}

static dtrain_status_t submit(dt_intake_t *intake, dt_operation_t *operation, const char *name)
{
    return dt_intake_submit(intake, operation, name, strlen(name));
}

static void finish(dt_intake_t *intake, dt_operation_t *operation)
{
    dt_intake_finish(intake, &operation, 1);
}

/* Takes what is queued; checks that it is these, NULL at the end. */
static void assert_taken(dt_intake_t *intake, dt_operation_t *first, dt_operation_t *second)
{
    dt_operation_list_t taken = {0};
    int count = dt_intake_take(intake, &taken);
    assert_int_equal(count, (first != NULL) + (second != NULL));
    assert_ptr_equal(taken.first, first);
    if (first)
        assert_ptr_equal(first->next, second);
}

/* ---- Queue --------------------------------------------------------------------------------------
 */

static void test_intake_gives_what_was_submitted_in_order(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t a = of_kind(DT_KIND_ALLREDUCE), b = of_kind(DT_KIND_BROADCAST), c = a;
    dt_intake_init(&intake);
    assert_taken(&intake, NULL, NULL);
    assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
    assert_int_equal(submit(&intake, &b, "b"), DTRAIN_OK);
    assert_int_equal(atomic_load(&intake.num_queued), 2);
    dt_operation_list_t taken = {0};
    dt_operation_append(&taken, &c);
    assert_int_equal(dt_intake_take(&intake, &taken), 2);
    assert_ptr_equal(taken.first, &c);
    assert_ptr_equal(c.next, &a);
    assert_ptr_equal(a.next, &b);
    assert_ptr_equal(taken.last, &b);
    assert_int_equal(atomic_load(&intake.num_queued), 0);
    assert_taken(&intake, NULL, NULL);
    assert_string_equal(a.name->text, "a");
    dt_intake_free(&intake);
}

static void test_intake_finds_what_is_in_flight(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t a = of_kind(DT_KIND_ALLREDUCE);
    dt_intake_init(&intake);
    assert_null(dt_intake_find(&intake, "a", 1));
    assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
    assert_ptr_equal(dt_intake_find(&intake, "a", 1), &a);
    assert_taken(&intake, &a, NULL);
    assert_ptr_equal(dt_intake_find(&intake, "a", 1), &a);
    finish(&intake, &a);
    assert_null(dt_intake_find(&intake, "a", 1));
    dt_intake_free(&intake);
}

/* ---- Names
 * ---------------------------------------------------------------------------------------- */

static void test_intake_refuses_a_name_in_flight(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t a = of_kind(DT_KIND_ALLREDUCE), again = of_kind(DT_KIND_BROADCAST);
    dt_intake_init(&intake);
    assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
    assert_int_equal(submit(&intake, &again, "a"), DTRAIN_ERR_DUPLICATE_NAME);
    assert_non_null(strstr(dt_last_error(), "broadcast 'a'"));
    assert_taken(&intake, &a, NULL);
    assert_int_equal(submit(&intake, &again, "a"), DTRAIN_ERR_DUPLICATE_NAME);
    finish(&intake, &a);
    assert_int_equal(submit(&intake, &again, "a"), DTRAIN_OK);
    assert_taken(&intake, &again, NULL);
    dt_intake_free(&intake);
}

static void test_intake_lets_barriers_wait_for_each_other(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t barriers[3];
    dt_intake_init(&intake);
    for (int i = 0; i < 3; i++) {
        barriers[i] = of_kind(DT_KIND_BARRIER);
        assert_int_equal(submit(&intake, &barriers[i], "barrier"), DTRAIN_OK);
    }
    for (int i = 0; i < 3; i++) {
        assert_taken(&intake, &barriers[i], NULL);
        assert_ptr_equal(dt_intake_find(&intake, "barrier", 7), &barriers[i]);
        finish(&intake, &barriers[i]);
    }
    assert_taken(&intake, NULL, NULL);
    dt_intake_free(&intake);
}

static void test_intake_holds_one_call_behind_a_refused_one(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t wrong = refused(), right = of_kind(DT_KIND_ALLREDUCE), again = right;
    dt_intake_init(&intake);
    assert_int_equal(submit(&intake, &wrong, "a"), DTRAIN_OK);
    assert_int_equal(submit(&intake, &right, "a"), DTRAIN_OK);
    assert_int_equal(submit(&intake, &again, "a"), DTRAIN_ERR_DUPLICATE_NAME);
    assert_taken(&intake, &wrong, NULL);
    finish(&intake, &wrong);
    assert_taken(&intake, &right, NULL);
    assert_int_equal(submit(&intake, &again, "a"), DTRAIN_ERR_DUPLICATE_NAME);
    dt_intake_free(&intake);
}

static void test_intake_holds_a_refused_call_behind_the_one_in_flight(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t right = of_kind(DT_KIND_ALLREDUCE), wrong = refused(), other = right;
    dt_intake_init(&intake);
    assert_int_equal(submit(&intake, &right, "a"), DTRAIN_OK);
    assert_int_equal(submit(&intake, &wrong, "a"), DTRAIN_OK);
    assert_int_equal(submit(&intake, &other, "b"), DTRAIN_OK);
    assert_taken(&intake, &right, &other);
    finish(&intake, &other);
    assert_taken(&intake, NULL, NULL);
    finish(&intake, &right);
    assert_taken(&intake, &wrong, NULL);
    dt_intake_free(&intake);
}

static void test_intake_gives_up_what_is_held(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t barriers[3];
    dt_operation_list_t held = {0};
    dt_intake_init(&intake);
    assert_int_equal(dt_intake_take_held(&intake, &held), 0);
    for (int i = 0; i < 3; i++) {
        barriers[i] = of_kind(DT_KIND_BARRIER);
        assert_int_equal(submit(&intake, &barriers[i], "barrier"), DTRAIN_OK);
    }
    assert_int_equal(dt_intake_take_held(&intake, &held), 2);
    assert_ptr_equal(held.first, &barriers[1]);
    assert_ptr_equal(held.last, &barriers[2]);
    finish(&intake, &barriers[1]); /* it never had the name */
    assert_ptr_equal(dt_intake_find(&intake, "barrier", 7), &barriers[0]);
    assert_taken(&intake, &barriers[0], NULL);
    finish(&intake, &barriers[0]);
    assert_taken(&intake, NULL, NULL);
    dt_intake_free(&intake);
}

static void test_intake_names_that_come_once_leave_nothing(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t a = of_kind(DT_KIND_ALLREDUCE);
    dt_intake_init(&intake);
    int before = -1;
    for (int i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "step.%d", i);
        assert_int_equal(submit(&intake, &a, name), DTRAIN_OK);
        assert_taken(&intake, &a, NULL);
        finish(&intake, &a);
        if (before < 0)
            before = memory_live();
    }
    assert_int_equal(memory_live(), before);
    dt_intake_free(&intake);
}

/* ---- Ids
 * ------------------------------------------------------------------------------------------- */

static void test_intake_knows_the_id_of_what_it_has_learned(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t a = of_kind(DT_KIND_ALLREDUCE), other = a, wrong = refused();
    other.signature.dtype = 3;
    dt_intake_init(&intake);
    assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
    assert_true(a.id == DT_ID_NONE);
    assert_taken(&intake, &a, NULL);
    assert_int_equal(dt_intake_learn(&intake, &a, 9), DTRAIN_OK);
    finish(&intake, &a);
    assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
    assert_int_equal(a.id, 9);
    assert_taken(&intake, &a, NULL);
    finish(&intake, &a);
    assert_int_equal(submit(&intake, &other, "a"), DTRAIN_OK);
    assert_true(other.id == DT_ID_NONE);
    assert_taken(&intake, &other, NULL);
    finish(&intake, &other);
    assert_int_equal(submit(&intake, &wrong, "a"), DTRAIN_OK);
    assert_true(wrong.id == DT_ID_NONE);
    dt_intake_free(&intake);
}

/* ---- Closed, and out of memory
 * ------------------------------------------------------------------------ */

static void test_intake_closed_takes_nothing_more_in(void **state)
{
    (void)state;
    dt_intake_t intake;
    dt_operation_t a = of_kind(DT_KIND_ALLREDUCE), b = a;
    dt_intake_init(&intake);
    assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
    dt_intake_close(&intake, DTRAIN_ERR_RANK_LOST, "rank 3 is lost");
    dt_intake_close(&intake, DTRAIN_ERR_SHUT_DOWN, "later");
    assert_int_equal(submit(&intake, &b, "b"), DTRAIN_ERR_RANK_LOST);
    assert_string_equal(dt_last_error(), "rank 3 is lost");
    assert_taken(&intake, &a, NULL);
    finish(&intake, &a);
    dt_intake_free(&intake);
}

static void test_intake_out_of_memory_leaves_it_usable(void **state)
{
    (void)state;
    int before = memory_live();
    for (int n = 1, failed = 1; failed; n++) {
        dt_intake_t intake;
        dt_operation_t a = of_kind(DT_KIND_ALLREDUCE);
        dt_intake_init(&intake);
        memory_fail_at(n);
        dtrain_status_t status = submit(&intake, &a, "a");
        failed = memory_has_failed();
        memory_fail_at(0);
        assert_int_equal(status, failed ? DTRAIN_ERR_OUT_OF_MEMORY : DTRAIN_OK);
        if (failed)
            assert_int_equal(submit(&intake, &a, "a"), DTRAIN_OK);
        assert_taken(&intake, &a, NULL);
        assert_int_equal(dt_intake_learn(&intake, &a, 0), DTRAIN_OK);
        memory_fail_at(1);
        assert_int_equal(dt_intake_learn(&intake, &a, 1), DTRAIN_ERR_OUT_OF_MEMORY);
        memory_fail_at(0);
        finish(&intake, &a);
        dt_intake_free(&intake);
        assert_int_equal(memory_live(), before);
    }
}

/* ---- Threads
 * -------------------------------------------------------------------------------------------- */

#define THREADS 4
#define EACH 300

typedef struct submitter {
    dt_intake_t *intake;
    int index, failures;
    dt_operation_t operations[EACH];
} submitter_t;

static void *submit_many(void *argument)
{
    submitter_t *submitter = argument;
    for (int i = 0; i < EACH; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.%d", submitter->index, i);
        submitter->operations[i] = of_kind(DT_KIND_ALLREDUCE);
        submitter->failures += submit(submitter->intake, &submitter->operations[i], name) != 0;
    }
    return NULL;
}

static void test_intake_takes_from_several_threads_all_there_is(void **state)
{
    (void)state;
    static submitter_t submitters[THREADS];
    pthread_t threads[THREADS];
    dt_intake_t intake;
    dt_operation_list_t taken = {0};
    dt_intake_init(&intake);
    for (int i = 0; i < THREADS; i++) {
        submitters[i].intake = &intake;
        submitters[i].index = i;
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, &submitters[i]), 0);
    }
    int count = 0;
    while (count < THREADS * EACH) {
        count += dt_intake_take(&intake, &taken);
        while (taken.first) {
            dt_operation_t *operation = taken.first;
            dt_operation_remove(&taken, operation);
            finish(&intake, operation);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(submitters[i].failures, 0);
    }
    assert_int_equal(atomic_load(&intake.num_queued), 0);
    dt_intake_free(&intake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_intake_gives_what_was_submitted_in_order),
        cmocka_unit_test(test_intake_finds_what_is_in_flight),
        cmocka_unit_test(test_intake_refuses_a_name_in_flight),
        cmocka_unit_test(test_intake_lets_barriers_wait_for_each_other),
        cmocka_unit_test(test_intake_holds_one_call_behind_a_refused_one),
        cmocka_unit_test(test_intake_holds_a_refused_call_behind_the_one_in_flight),
        cmocka_unit_test(test_intake_gives_up_what_is_held),
        cmocka_unit_test(test_intake_names_that_come_once_leave_nothing),
        cmocka_unit_test(test_intake_knows_the_id_of_what_it_has_learned),
        cmocka_unit_test(test_intake_closed_takes_nothing_more_in),
        cmocka_unit_test(test_intake_out_of_memory_leaves_it_usable),
        cmocka_unit_test(test_intake_takes_from_several_threads_all_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
