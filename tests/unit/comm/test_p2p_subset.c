/* Some ranks of a transport as a transport of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/loopback/loopback.h"
#include "comm/p2p_subset.h"

#define SIZE 5
#define FIRST_TAG 1000

/* Ranks 1, 4 and 2 of five are ranks 0, 1 and 2. */
static const int members[] = {1, 4, 2};

typedef struct fixture {
    dt_loopback_t *loopback;
    dt_p2p_t *all[SIZE];
    dt_p2p_t *some[3];
} fixture_t;

static void open_subsets(fixture_t *f)
{
    f->loopback = dt_loopback_create(SIZE, 1);
    assert_non_null(f->loopback);
    for (int rank = 0; rank < SIZE; rank++)
        assert_int_equal(dt_loopback_p2p(f->loopback, rank, &f->all[rank]), DTRAIN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            dt_p2p_subset_create(f->all[members[i]], members, 3, FIRST_TAG, &f->some[i]),
            DTRAIN_OK);
}

static void close_subsets(fixture_t *f)
{
    for (int rank = 0; rank < SIZE; rank++)
        f->all[rank]->ops->destroy(f->all[rank], 1);
    for (int i = 0; i < 3; i++)
        f->some[i]->ops->destroy(f->some[i], 1);
    dt_loopback_free(f->loopback);
}

static int send_one(dt_p2p_t *from, int peer, int tag, const int *value, dt_p2p_request_t *request)
{
    *request = (dt_p2p_request_t){{0}};
    return from->ops->send(from, peer, tag, value, sizeof *value, request);
}

static int receive_one(dt_p2p_t *to, int peer, int tag)
{
    int value = -1;
    dt_p2p_request_t request = {{0}};
    assert_int_equal(to->ops->receive(to, peer, tag, &value, sizeof value, &request), DTRAIN_OK);
    assert_int_equal(to->ops->test(to, &request), DTRAIN_OK);
    return value;
}

static void test_p2p_subset_numbers_its_ranks_as_they_are_listed(void **state)
{
    fixture_t f;
    (void)state;
    open_subsets(&f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f.some[i]->rank, i);
        assert_int_equal(f.some[i]->size, 3);
    }
    close_subsets(&f);
}

static void test_p2p_subset_message_reaches_the_listed_rank(void **state)
{
    fixture_t f;
    (void)state;
    open_subsets(&f);
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            int value = 10 * from + to;
            dt_p2p_request_t request;
            if (from == to)
                continue;
            assert_int_equal(send_one(f.some[from], to, 7, &value, &request), DTRAIN_OK);
            assert_int_equal(f.some[from]->ops->test(f.some[from], &request), DTRAIN_IN_PROGRESS);
            assert_int_equal(receive_one(f.some[to], from, 7), value);
            assert_int_equal(f.some[from]->ops->test(f.some[from], &request), DTRAIN_OK);
        }
    }
    close_subsets(&f);
}

/* The same two ranks and the same tag, once in the subset and once in the parent. */
static void test_p2p_subset_messages_do_not_mix_with_the_parents(void **state)
{
    fixture_t f;
    int in_parent = 1, in_subset = 2;
    dt_p2p_request_t requests[2];
    (void)state;
    open_subsets(&f);
    assert_int_equal(send_one(f.all[1], 4, 7, &in_parent, &requests[0]), DTRAIN_OK);
    assert_int_equal(send_one(f.some[0], 1, 7, &in_subset, &requests[1]), DTRAIN_OK);
    assert_int_equal(receive_one(f.some[1], 0, 7), in_subset);
    assert_int_equal(receive_one(f.all[4], 1, 7), in_parent);
    assert_int_equal(f.all[1]->ops->test(f.all[1], &requests[0]), DTRAIN_OK);
    assert_int_equal(f.some[0]->ops->test(f.some[0], &requests[1]), DTRAIN_OK);
    close_subsets(&f);
}

static void test_p2p_subset_without_the_own_rank_is_not_made(void **state)
{
    fixture_t f;
    dt_p2p_t *subset = NULL;
    (void)state;
    open_subsets(&f);
    assert_int_equal(dt_p2p_subset_create(f.all[3], members, 3, FIRST_TAG, &subset),
                     DTRAIN_ERR_INTERNAL);
    assert_null(subset);
    close_subsets(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p2p_subset_numbers_its_ranks_as_they_are_listed),
        cmocka_unit_test(test_p2p_subset_message_reaches_the_listed_rank),
        cmocka_unit_test(test_p2p_subset_messages_do_not_mix_with_the_parents),
        cmocka_unit_test(test_p2p_subset_without_the_own_rank_is_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
