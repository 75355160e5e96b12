#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "comm/loopback/loopback.h"

#define RANKS_MAX 8

/* A loopback whose ranks have all joined. */
typedef struct fixture {
    dt_loopback_t *loopback;
    int size;
    dt_world_t worlds[RANKS_MAX];
    dt_control_t *control[RANKS_MAX];
} fixture_t;

static void join_all(fixture_t *f, int size, int num_nodes)
{
    *f = (fixture_t){.size = size, .loopback = dt_loopback_create(size, num_nodes)};
    assert_non_null(f->loopback);
    for (int rank = 0; rank < size; rank++) {
        assert_int_equal(dt_loopback_join(f->loopback, rank, &f->worlds[rank]), DTRAIN_OK);
        f->control[rank] = f->worlds[rank].control;
    }
}

static void close_all(fixture_t *f)
{
    for (int rank = 0; rank < f->size; rank++)
        if (f->worlds[rank].backend)
            dt_world_close(&f->worlds[rank], 1);
    dt_loopback_free(f->loopback);
}

static dtrain_status_t say(dt_control_t *control, int peer, const char *text)
{
    return control->ops->send(control, peer, text, strlen(text));
}

static void assert_message(dt_control_t *control, int peer, const char *text)
{
    dt_control_message_t message;
    assert_int_equal(control->ops->receive(control, &message), DT_CONTROL_MESSAGE);
    assert_int_equal(message.peer, peer);
    assert_int_equal(message.length, strlen(text));
    assert_memory_equal(message.data, text, message.length);
}

static void assert_lost(dt_control_t *control, int peer)
{
    dt_control_message_t message;
    assert_int_equal(control->ops->receive(control, &message), DT_CONTROL_LOST);
    assert_int_equal(message.peer, peer);
}

static void assert_nothing(dt_control_t *control)
{
    dt_control_message_t message;
    assert_int_equal(control->ops->receive(control, &message), DT_CONTROL_NONE);
}

/* ---- Control: messages ------------------------------------------------------------------ */

static void test_control_messages_arrive_whole_and_in_order(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 3, 1);
    assert_int_equal(say(f.control[1], 0, "one"), DTRAIN_OK);
    assert_int_equal(say(f.control[2], 0, "two"), DTRAIN_OK);
    assert_int_equal(say(f.control[1], 0, ""), DTRAIN_OK);
    assert_int_equal(say(f.control[0], 1, "answer"), DTRAIN_OK);
    assert_message(f.control[0], 1, "one");
    assert_message(f.control[0], 2, "two");
    assert_message(f.control[0], 1, "");
    assert_nothing(f.control[0]);
    assert_message(f.control[1], 0, "answer");
    assert_nothing(f.control[1]);
    assert_nothing(f.control[2]);
    close_all(&f);
}

static void test_control_message_to_a_rank_that_joins_later_is_kept(void **state)
{
    (void)state;
    dt_world_t worlds[2];
    dt_loopback_t *loopback = dt_loopback_create(2, 1);
    assert_int_equal(dt_loopback_join(loopback, 1, &worlds[1]), DTRAIN_OK);
    assert_int_equal(say(worlds[1].control, 0, "early"), DTRAIN_OK);
    assert_int_equal(dt_loopback_join(loopback, 0, &worlds[0]), DTRAIN_OK);
    assert_message(worlds[0].control, 1, "early");
    dt_world_close(&worlds[0], 1);
    dt_world_close(&worlds[1], 1);
    dt_loopback_free(loopback);
}

/* ---- Control: wait ------------------------------------------------------------------------ */

/* A rank that waits until it has an event, or is told to stop. */
typedef struct waiter {
    dt_control_t *control;
    _Atomic int is_told;
    dt_control_event_t event;
    pthread_t thread;
} waiter_t;

static void *wait_for_event(void *context)
{
    waiter_t *waiter = context;
    dt_control_message_t message;
    while ((waiter->event = waiter->control->ops->receive(waiter->control, &message)) ==
               DT_CONTROL_NONE &&
           !atomic_load(&waiter->is_told))
        waiter->control->ops->wait(waiter->control, DT_NEVER);
    return NULL;
}

static void start_waiter(waiter_t *waiter, dt_control_t *control)
{
    *waiter = (waiter_t){.control = control};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_event, waiter), 0);
}

static void test_control_wait_ends_when_a_message_comes(void **state)
{
    fixture_t f;
    waiter_t waiter;
    (void)state;
    join_all(&f, 2, 1);
    start_waiter(&waiter, f.control[1]);
    assert_int_equal(say(f.control[0], 1, "go"), DTRAIN_OK);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.event, DT_CONTROL_MESSAGE);
    close_all(&f);
}

static void test_control_wait_ends_when_another_thread_wakes_it(void **state)
{
    fixture_t f;
    waiter_t waiter;
    (void)state;
    join_all(&f, 2, 1);
    start_waiter(&waiter, f.control[1]);
    atomic_store(&waiter.is_told, 1);
    f.control[1]->ops->wake(f.control[1]);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.event, DT_CONTROL_NONE);
    close_all(&f);
}

static void test_control_wait_ends_when_the_peer_is_lost(void **state)
{
    fixture_t f;
    waiter_t waiter;
    (void)state;
    join_all(&f, 3, 1);
    start_waiter(&waiter, f.control[0]);
    dt_loopback_kill(f.loopback, 2);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.event, DT_CONTROL_LOST);
    close_all(&f);
}

static void test_control_wake_before_wait_is_not_forgotten(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 2, 1);
    f.control[1]->ops->wake(f.control[1]);
    f.control[1]->ops->wait(f.control[1], DT_NEVER);
    close_all(&f);
}

static void test_control_wait_with_a_message_there_returns(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 2, 1);
    say(f.control[0], 1, "here");
    f.control[1]->ops->wait(f.control[1], DT_NEVER);
    f.control[1]->ops->wait(f.control[1], DT_NEVER);
    assert_message(f.control[1], 0, "here");
    close_all(&f);
}

static void test_control_wait_ends_after_its_timeout(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 2, 1);
    f.control[1]->ops->wait(f.control[1], 0);
    f.control[1]->ops->wait(f.control[1], DT_NS_PER_MS);
    assert_nothing(f.control[1]);
    close_all(&f);
}

/* ---- Control: loss -------------------------------------------------------------------------- */

static void test_control_rank_that_leaves_is_lost_after_its_last_message(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 3, 1);
    say(f.control[1], 0, "bye");
    dt_world_close(&f.worlds[1], 1);
    assert_message(f.control[0], 1, "bye");
    assert_lost(f.control[0], 1);
    assert_nothing(f.control[0]);
    assert_nothing(f.control[2]);
    assert_int_equal(say(f.control[0], 1, "anyone?"), DTRAIN_ERR_RANK_LOST);
    assert_int_equal(say(f.control[0], 2, "anyone?"), DTRAIN_OK);
    close_all(&f);
}

static void test_control_rank_0_that_leaves_is_lost_to_all(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 3, 1);
    dt_world_close(&f.worlds[0], 1);
    for (int rank = 1; rank < 3; rank++) {
        assert_lost(f.control[rank], 0);
        assert_nothing(f.control[rank]);
        assert_int_equal(say(f.control[rank], 0, "anyone?"), DTRAIN_ERR_RANK_LOST);
    }
    close_all(&f);
}

static void test_control_killed_rank_is_lost_once(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 3, 1);
    say(f.control[2], 0, "last words");
    dt_loopback_kill(f.loopback, 2);
    assert_int_equal(say(f.control[2], 0, "from beyond"), DTRAIN_ERR_RANK_LOST);
    assert_int_equal(say(f.control[0], 2, "anyone?"), DTRAIN_ERR_RANK_LOST);
    assert_message(f.control[0], 2, "last words");
    assert_lost(f.control[0], 2);
    assert_lost(f.control[2], 0);
    dt_world_close(&f.worlds[2], 0);
    assert_nothing(f.control[0]);
    assert_int_equal(say(f.control[1], 0, "still here"), DTRAIN_OK);
    assert_message(f.control[0], 1, "still here");
    close_all(&f);
}

static void test_control_killed_rank_0_is_lost_to_all(void **state)
{
    fixture_t f;
    (void)state;
    join_all(&f, 4, 2);
    dt_loopback_kill(f.loopback, 0);
    for (int rank = 1; rank < 4; rank++) {
        assert_lost(f.control[rank], 0);
        assert_lost(f.control[0], rank);
    }
    close_all(&f);
}

/* ---- World ------------------------------------------------------------------------------------
 */

static void test_loopback_join_fills_the_topology(void **state)
{
    static const int nodes[] = {0, 0, 0, 1, 1};
    static const int local_ranks[] = {0, 1, 2, 0, 1};
    fixture_t f;
    (void)state;
    join_all(&f, 5, 2);
    for (int rank = 0; rank < 5; rank++) {
        const dt_topology_t *topology = &f.worlds[rank].topology;
        assert_int_equal(topology->rank, rank);
        assert_int_equal(topology->size, 5);
        assert_int_equal(topology->num_nodes, 2);
        assert_int_equal(topology->is_homogeneous, 0);
        assert_int_equal(topology->local_rank, local_ranks[rank]);
        assert_int_equal(topology->local_size, nodes[rank] == 0 ? 3 : 2);
        assert_int_equal(topology->cross_rank, nodes[rank]);
        assert_string_equal(topology->peers[0].host, "node0");
        assert_string_equal(topology->peers[4].host, "node1");
    }
    close_all(&f);
}

static dtrain_status_t reduce_ones(dt_world_t *worlds, int size, float *results)
{
    const float one = 1;
    dt_task_t *tasks[RANKS_MAX];
    dt_piece_t pieces[RANKS_MAX];
    int num_left = size;
    for (int rank = 0; rank < size; rank++) {
        pieces[rank] = (dt_piece_t){&one, &results[rank], 1};
        dt_collective_t collective = {.kind = DT_ALLREDUCE, .num_pieces = 1, .count = 1};
        collective.reduction =
            (dt_reduction_t){DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, .divisor = 1, 1, 1};
        collective.pieces = &pieces[rank];
        dt_backend_t *backend = worlds[rank].backend;
        assert_int_equal(backend->ops->start(backend, &collective, &tasks[rank]), DTRAIN_OK);
    }
    while (num_left > 0) {
        num_left = 0;
        for (int rank = 0; rank < size; rank++) {
            dt_backend_t *backend = worlds[rank].backend;
            dtrain_status_t status = backend->ops->progress(backend, tasks[rank]);
            num_left += status == DTRAIN_IN_PROGRESS;
            if (status < 0)
                return status;
        }
    }
    for (int rank = 0; rank < size; rank++)
        worlds[rank].backend->ops->release(worlds[rank].backend, tasks[rank]);
    return DTRAIN_OK;
}

static void test_loopback_world_reduces_over_its_ranks(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        fixture_t f;
        float results[RANKS_MAX] = {0};
        join_all(&f, size, 1);
        assert_int_equal(f.control[0] == NULL, size == 1);
        assert_int_equal(reduce_ones(f.worlds, size, results), DTRAIN_OK);
        for (int rank = 0; rank < size; rank++)
            assert_true(results[rank] == (float)size);
        close_all(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_messages_arrive_whole_and_in_order),
        cmocka_unit_test(test_control_message_to_a_rank_that_joins_later_is_kept),
        cmocka_unit_test(test_control_wait_ends_when_a_message_comes),
        cmocka_unit_test(test_control_wait_ends_when_another_thread_wakes_it),
        cmocka_unit_test(test_control_wait_ends_when_the_peer_is_lost),
        cmocka_unit_test(test_control_wake_before_wait_is_not_forgotten),
        cmocka_unit_test(test_control_wait_with_a_message_there_returns),
        cmocka_unit_test(test_control_wait_ends_after_its_timeout),
        cmocka_unit_test(test_control_rank_that_leaves_is_lost_after_its_last_message),
        cmocka_unit_test(test_control_rank_0_that_leaves_is_lost_to_all),
        cmocka_unit_test(test_control_killed_rank_is_lost_once),
        cmocka_unit_test(test_control_killed_rank_0_is_lost_to_all),
        cmocka_unit_test(test_loopback_join_fills_the_topology),
        cmocka_unit_test(test_loopback_world_reduces_over_its_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
