#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "comm/loopback/loopback.h"

#define RANKS 3

typedef struct fixture {
    dt_loopback_t *loopback;
    dt_p2p_t *p2p[RANKS];
} fixture_t;

static void open_all(fixture_t *f)
{
    f->loopback = dt_loopback_create(RANKS, 1);
    assert_non_null(f->loopback);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(dt_loopback_p2p(f->loopback, rank, &f->p2p[rank]), DTRAIN_OK);
}

static void leave(fixture_t *f, int rank)
{
    f->p2p[rank]->ops->destroy(f->p2p[rank], 0);
    f->p2p[rank] = NULL;
}

static void close_all(fixture_t *f)
{
    for (int rank = 0; rank < RANKS; rank++)
        if (f->p2p[rank])
            leave(f, rank);
    dt_loopback_free(f->loopback);
}

static dt_p2p_request_t send_int(fixture_t *f, int from, int to, int tag, const int *value)
{
    dt_p2p_request_t request;
    assert_int_equal(f->p2p[from]->ops->send(f->p2p[from], to, tag, value, sizeof *value, &request),
                     DTRAIN_OK);
    return request;
}

static dt_p2p_request_t receive_int(fixture_t *f, int at, int from, int tag, int *value)
{
    dt_p2p_request_t request;
    assert_int_equal(
        f->p2p[at]->ops->receive(f->p2p[at], from, tag, value, sizeof *value, &request), DTRAIN_OK);
    return request;
}

static dtrain_status_t test_of(fixture_t *f, int rank, dt_p2p_request_t *request)
{
    return f->p2p[rank]->ops->test(f->p2p[rank], request);
}

static void assert_done(fixture_t *f, int rank, dt_p2p_request_t *request)
{
    assert_int_equal(test_of(f, rank, request), DTRAIN_OK);
    assert_true(request->word[0] == 0 && request->word[1] == 0);
    assert_int_equal(test_of(f, rank, request), DTRAIN_OK);
}

static void test_p2p_send_that_comes_first_waits_for_its_receive(void **state)
{
    fixture_t f;
    int sent = 7;
    int received = 0;
    (void)state;
    open_all(&f);
    dt_p2p_request_t send = send_int(&f, 0, 1, 5, &sent);
    assert_int_equal(test_of(&f, 0, &send), DTRAIN_IN_PROGRESS);
    dt_p2p_request_t receive = receive_int(&f, 1, 0, 5, &received);
    assert_done(&f, 1, &receive);
    assert_done(&f, 0, &send);
    assert_int_equal(received, 7);
    close_all(&f);
}

static void test_p2p_receive_that_comes_first_waits_for_its_send(void **state)
{
    fixture_t f;
    int sent = 7;
    int received = 0;
    (void)state;
    open_all(&f);
    dt_p2p_request_t receive = receive_int(&f, 1, 0, 5, &received);
    assert_int_equal(test_of(&f, 1, &receive), DTRAIN_IN_PROGRESS);
    dt_p2p_request_t send = send_int(&f, 0, 1, 5, &sent);
    assert_done(&f, 0, &send);
    assert_done(&f, 1, &receive);
    assert_int_equal(received, 7);
    close_all(&f);
}

static void test_p2p_messages_of_one_peer_and_tag_match_in_order(void **state)
{
    fixture_t f;
    const int sent[4] = {10, 11, 12, 13};
    int received[4] = {0};
    dt_p2p_request_t sends[4], receives[4];
    (void)state;
    open_all(&f);
    for (int i = 0; i < 2; i++)
        sends[i] = send_int(&f, 0, 1, 1, &sent[i]);
    for (int i = 0; i < 4; i++)
        receives[i] = receive_int(&f, 1, 0, 1, &received[i]);
    for (int i = 2; i < 4; i++)
        sends[i] = send_int(&f, 0, 1, 1, &sent[i]);
    for (int i = 3; i >= 0; i--) {
        assert_done(&f, 0, &sends[i]);
        assert_done(&f, 1, &receives[i]);
        assert_int_equal(received[i], 10 + i);
    }
    close_all(&f);
}

static void test_p2p_messages_of_other_tags_and_peers_do_not_match(void **state)
{
    fixture_t f;
    const int sent[3] = {1, 2, 3};
    int received[3] = {0};
    (void)state;
    open_all(&f);
    dt_p2p_request_t sends[3] = {send_int(&f, 0, 2, 1, &sent[0]), send_int(&f, 0, 2, 2, &sent[1]),
                                 send_int(&f, 1, 2, 1, &sent[2])};
    dt_p2p_request_t receives[3] = {receive_int(&f, 2, 1, 1, &received[2]),
                                    receive_int(&f, 2, 0, 2, &received[1]),
                                    receive_int(&f, 2, 0, 1, &received[0])};
    for (int i = 0; i < 3; i++) {
        assert_done(&f, i == 2, &sends[i]);
        assert_done(&f, 2, &receives[i]);
        assert_int_equal(received[i], 1 + i);
    }
    close_all(&f);
}

static void test_p2p_lengths_that_differ_are_an_error_on_both_sides(void **state)
{
    fixture_t f;
    const char sent[3] = "ab";
    int received = 0;
    dt_p2p_request_t send;
    (void)state;
    open_all(&f);
    f.p2p[0]->ops->send(f.p2p[0], 1, 0, sent, sizeof sent, &send);
    dt_p2p_request_t receive = receive_int(&f, 1, 0, 0, &received);
    assert_int_equal(test_of(&f, 0, &send), DTRAIN_ERR_INTERNAL);
    assert_int_equal(test_of(&f, 1, &receive), DTRAIN_ERR_INTERNAL);
    assert_string_not_equal(dt_last_error(), "");
    assert_int_equal(received, 0);
    close_all(&f);
}

/* The buffers are freed before the peer acts: a sanitizer sees if it touches them. */
static void test_p2p_rank_that_leaves_takes_its_requests_along(void **state)
{
    fixture_t f;
    int mine = 4;
    int *theirs = malloc(2 * sizeof *theirs);
    (void)state;
    open_all(&f);
    theirs[0] = 5;
    receive_int(&f, 1, 0, 3, &theirs[1]);
    send_int(&f, 1, 0, 3, &theirs[0]);
    leave(&f, 1);
    free(theirs);
    dt_p2p_request_t send = send_int(&f, 0, 1, 3, &mine);
    dt_p2p_request_t receive = receive_int(&f, 0, 1, 3, &mine);
    assert_int_equal(test_of(&f, 0, &send), DTRAIN_IN_PROGRESS);
    assert_int_equal(test_of(&f, 0, &receive), DTRAIN_IN_PROGRESS);
    assert_int_equal(mine, 4);
    close_all(&f);
}

static void test_p2p_rank_that_leaves_does_not_undo_what_was_sent(void **state)
{
    fixture_t f;
    int sent = 9;
    int received = 0;
    (void)state;
    open_all(&f);
    dt_p2p_request_t receive = receive_int(&f, 1, 0, 3, &received);
    send_int(&f, 0, 1, 3, &sent);
    leave(&f, 0);
    assert_done(&f, 1, &receive);
    assert_int_equal(received, 9);
    close_all(&f);
}

static void test_p2p_messages_of_a_killed_rank_stop(void **state)
{
    fixture_t f;
    int sent = 1;
    int received[2] = {0};
    (void)state;
    open_all(&f);
    dt_p2p_request_t before = receive_int(&f, 1, 0, 3, &received[0]);
    dt_loopback_kill(f.loopback, 0);
    dt_p2p_request_t send = send_int(&f, 0, 1, 3, &sent);
    dt_p2p_request_t after = receive_int(&f, 1, 0, 3, &received[1]);
    assert_int_equal(test_of(&f, 0, &send), DTRAIN_IN_PROGRESS);
    assert_int_equal(test_of(&f, 1, &before), DTRAIN_IN_PROGRESS);
    assert_int_equal(test_of(&f, 1, &after), DTRAIN_IN_PROGRESS);
    close_all(&f);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define ROUNDS 300

typedef struct actor {
    dt_p2p_t *p2p;
    pthread_t thread;
    int num_wrong;
} actor_t;

static void finish(actor_t *actor, dt_p2p_request_t *request)
{
    dtrain_status_t status;
    while ((status = actor->p2p->ops->test(actor->p2p, request)) == DTRAIN_IN_PROGRESS)
        sched_yield();
    actor->num_wrong += status != DTRAIN_OK;
}

/* Every rank sends a number to every other and receives as many, ROUNDS times. */
static void *exchange(void *context)
{
    actor_t *actor = context;
    dt_p2p_t *p2p = actor->p2p;
    for (int round = 0; round < ROUNDS; round++) {
        int out[RANKS], in[RANKS];
        dt_p2p_request_t sends[RANKS] = {0}, receives[RANKS] = {0};
        for (int peer = 0; peer < RANKS; peer++) {
            out[peer] = round * 100 + p2p->rank * 10 + peer;
            if (peer == p2p->rank)
                continue;
            p2p->ops->send(p2p, peer, 0, &out[peer], sizeof out[peer], &sends[peer]);
            p2p->ops->receive(p2p, peer, 0, &in[peer], sizeof in[peer], &receives[peer]);
        }
        for (int peer = 0; peer < RANKS; peer++) {
            finish(actor, &sends[peer]);
            finish(actor, &receives[peer]);
            if (peer != p2p->rank)
                actor->num_wrong += in[peer] != round * 100 + peer * 10 + p2p->rank;
        }
    }
    return NULL;
}

static void test_p2p_ranks_on_threads_exchange_without_loss(void **state)
{
    fixture_t f;
    actor_t actors[RANKS];
    (void)state;
    open_all(&f);
    for (int rank = 0; rank < RANKS; rank++) {
        actors[rank] = (actor_t){.p2p = f.p2p[rank]};
        assert_int_equal(pthread_create(&actors[rank].thread, NULL, exchange, &actors[rank]), 0);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        pthread_join(actors[rank].thread, NULL);
        assert_int_equal(actors[rank].num_wrong, 0);
    }
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p2p_send_that_comes_first_waits_for_its_receive),
        cmocka_unit_test(test_p2p_receive_that_comes_first_waits_for_its_send),
        cmocka_unit_test(test_p2p_messages_of_one_peer_and_tag_match_in_order),
        cmocka_unit_test(test_p2p_messages_of_other_tags_and_peers_do_not_match),
        cmocka_unit_test(test_p2p_lengths_that_differ_are_an_error_on_both_sides),
        cmocka_unit_test(test_p2p_rank_that_leaves_takes_its_requests_along),
        cmocka_unit_test(test_p2p_rank_that_leaves_does_not_undo_what_was_sent),
        cmocka_unit_test(test_p2p_messages_of_a_killed_rank_stop),
        cmocka_unit_test(test_p2p_ranks_on_threads_exchange_without_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
