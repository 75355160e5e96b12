#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/algo/schedule.h"

#define RANKS_MAX 70

static const int64_t counts[] = {
    0,
    1,
    2,
    15,
    16,
    17,
    31,
    33,
    100,
    1000,
    4096,
    65537,
    100003,
    1 << 20,
    INT64_C(1) << 31,
    (INT64_C(1) << 31) + 1,
    (INT64_C(1) << 40) + 12345,
    INT64_C(1) << 62,
    INT64_MAX,
};
#define NUM_COUNTS (int)(sizeof counts / sizeof counts[0])

/* ---- Shares and segments --------------------------------------------------------------- */

static void check_shares(int64_t count, int n)
{
    int64_t at = 0;
    int64_t longest = dt_schedule_share(count, n, 0).hi;
    for (int rank = 0; rank < n; rank++) {
        dt_span_t share = dt_schedule_share(count, n, rank);
        assert_true(share.lo == at);
        assert_true(share.hi >= share.lo);
        assert_true(share.lo == count || share.lo % DT_SCHEDULE_GRAIN == 0);
        assert_true(share.hi - share.lo <= longest);
        at = share.hi;
        if (rank < n - 1 && share.hi < count)
            assert_true(longest - (share.hi - share.lo) <= DT_SCHEDULE_GRAIN);
    }
    assert_true(at == count);
}

static void test_schedule_shares_cover_every_element_once(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_COUNTS; i++)
        for (int n = 1; n <= RANKS_MAX; n++)
            check_shares(counts[i], n);
    for (int64_t count = 0; count < 700; count++)
        for (int n = 1; n <= 20; n++)
            check_shares(count, n);
}

static void test_schedule_few_elements_leave_shares_empty(void **state)
{
    (void)state;
    dt_span_t first = dt_schedule_share(17, 8, 0);
    dt_span_t second = dt_schedule_share(17, 8, 1);
    dt_span_t third = dt_schedule_share(17, 8, 2);
    assert_true(first.lo == 0 && first.hi == 16);
    assert_true(second.lo == 16 && second.hi == 17);
    assert_true(third.lo == third.hi);
}

static void check_cuts(dt_span_t span, int64_t segment, int64_t limit)
{
    int64_t num_segments = dt_schedule_num_segments(span.hi - span.lo, segment);
    int64_t at = span.lo;
    /* Of a great many, the first and the last ones. */
    for (int64_t k = 0; k < num_segments; k++) {
        if (k == 500 && num_segments > 1000) {
            k = num_segments - 500;
            at = span.lo + k * segment;
        }
        dt_span_t cut = dt_schedule_cut(span, segment, k);
        assert_true(cut.lo == at && cut.hi > cut.lo && cut.hi <= span.hi);
        assert_true(cut.hi - cut.lo <= limit);
        at = cut.hi;
    }
    assert_true(at == span.hi);
    for (int64_t k = num_segments; k < num_segments + 3; k++) {
        dt_span_t cut = dt_schedule_cut(span, segment, k);
        assert_true(cut.lo == cut.hi);
    }
}

static void test_schedule_segments_cover_every_share_once(void **state)
{
    static const int64_t segment_bytes[] = {1, 64, 1000, 4096, 256 << 10, 1 << 30};
    (void)state;
    for (int i = 0; i < NUM_COUNTS; i++) {
        for (int n = 1; n <= RANKS_MAX; n += 3) {
            for (int b = 0; b < 6; b++) {
                int64_t segment = dt_schedule_segment(counts[i], n, 4, segment_bytes[b]);
                int64_t limit = segment_bytes[b] / 4;
                if (limit < DT_SCHEDULE_GRAIN)
                    limit = DT_SCHEDULE_GRAIN;
                assert_true(segment > 0 && segment % DT_SCHEDULE_GRAIN == 0);
                for (int rank = 0; rank < n; rank += 5)
                    check_cuts(dt_schedule_share(counts[i], n, rank), segment, limit);
            }
        }
    }
}

static void test_schedule_segments_of_the_longest_share_are_even(void **state)
{
    (void)state;
    /* 4 KiB at most, 4,100 bytes to cut: not 4,096 and 4, but two halves. */
    int64_t segment = dt_schedule_segment(1025, 1, 4, 4096);
    assert_true(segment == 528);
    assert_true(dt_schedule_num_segments(1025, segment) == 2);
}

static void test_schedule_indices_beyond_32_bits_do_not_wrap(void **state)
{
    (void)state;
    int64_t count = INT64_C(1) << 40;
    dt_span_t share = dt_schedule_share(count, 4, 3);
    assert_true(share.lo == 3 * (INT64_C(1) << 38) && share.hi == count);
    int64_t segment = dt_schedule_segment(count, 4, 4, 256 << 10);
    int64_t num_segments = dt_schedule_num_segments(share.hi - share.lo, segment);
    assert_true(segment == 65536 && num_segments == INT64_C(1) << 22);
    dt_span_t last = dt_schedule_cut(share, segment, num_segments - 1);
    assert_true(last.lo == count - 65536 && last.hi == count);
}

/* ---- Peers ------------------------------------------------------------------------------ */

static void test_schedule_every_step_is_a_permutation(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS_MAX; n++) {
        for (int step = 0; step <= n; step++) {
            uint8_t is_hit[RANKS_MAX] = {0};
            for (int rank = 0; rank < n; rank++) {
                int to = dt_schedule_ahead(rank, n, step);
                assert_in_range(to, 0, n - 1);
                assert_false(is_hit[to]);
                is_hit[to] = 1;
                /* Who is sent to receives from the sender in the same step. */
                assert_int_equal(dt_schedule_behind(to, n, step), rank);
                assert_int_equal(to == rank, step % n == 0);
            }
        }
    }
}

static void test_schedule_every_pair_meets_once_in_the_exchange(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS_MAX; n++) {
        for (int rank = 0; rank < n; rank++) {
            uint8_t is_hit[RANKS_MAX] = {0};
            for (int step = 1; step < n; step++)
                is_hit[dt_schedule_ahead(rank, n, step)]++;
            for (int peer = 0; peer < n; peer++)
                assert_int_equal(is_hit[peer], peer != rank);
        }
    }
}

static void test_schedule_gather_receives_what_the_rank_before_sends(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS_MAX; n++) {
        for (int rank = 0; rank < n; rank++) {
            uint8_t has[RANKS_MAX] = {0};
            has[rank] = 1;
            for (int step = 0; step < n - 1; step++) {
                int before = dt_schedule_behind(rank, n, 1);
                int sent = dt_schedule_behind(before, n, step);
                assert_int_equal(dt_schedule_behind(rank, n, step + 1), sent);
                assert_false(has[sent]);
                has[sent] = 1;
            }
            for (int owner = 0; owner < n; owner++)
                assert_true(has[owner]);
        }
    }
}

static void test_schedule_ranks_near_the_limit_of_int_do_not_wrap(void **state)
{
    (void)state;
    int n = INT32_MAX;
    assert_int_equal(dt_schedule_ahead(n - 1, n, n - 1), n - 2);
    assert_int_equal(dt_schedule_behind(0, n, n - 1), 1);
    assert_int_equal(dt_schedule_ahead(dt_schedule_behind(5, n, n - 3), n, n - 3), 5);
}

/* ---- Broadcast ---------------------------------------------------------------------------- */

static void check_tree(int n, int root)
{
    int parent_of[RANKS_MAX] = {0};
    int num_children_in_all = 0;
    for (int rank = 0; rank < n; rank++)
        parent_of[rank] = -2;
    for (int rank = 0; rank < n; rank++) {
        int children[DT_SCHEDULE_CHILDREN_MAX];
        int num_children = dt_schedule_tree_children(rank, n, root, children);
        for (int i = 0; i < num_children; i++) {
            assert_in_range(children[i], 0, n - 1);
            assert_int_equal(parent_of[children[i]], -2);
            parent_of[children[i]] = rank;
        }
        num_children_in_all += num_children;
    }
    assert_int_equal(num_children_in_all, n - 1);
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(dt_schedule_tree_parent(rank, n, root),
                         rank == root ? -1 : parent_of[rank]);
        int depth = 0;
        for (int at = rank; at != root; at = parent_of[at])
            depth++;
        assert_true(depth == 0 || 1 << depth <= 2 * n);
    }
}

static void test_schedule_tree_reaches_every_rank_once(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS_MAX; n++)
        for (int root = 0; root < n; root++)
            check_tree(n, root);
}

static void test_schedule_chain_visits_every_rank_once(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS_MAX; n++) {
        for (int root = 0; root < n; root++) {
            int num_visited = 1;
            int rank = root;
            assert_int_equal(dt_schedule_chain_before(root, n, root), -1);
            while (dt_schedule_chain_after(rank, n, root) >= 0) {
                int next = dt_schedule_chain_after(rank, n, root);
                assert_int_equal(dt_schedule_chain_before(next, n, root), rank);
                rank = next;
                num_visited++;
            }
            assert_int_equal(num_visited, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule_shares_cover_every_element_once),
        cmocka_unit_test(test_schedule_few_elements_leave_shares_empty),
        cmocka_unit_test(test_schedule_segments_cover_every_share_once),
        cmocka_unit_test(test_schedule_segments_of_the_longest_share_are_even),
        cmocka_unit_test(test_schedule_indices_beyond_32_bits_do_not_wrap),
        cmocka_unit_test(test_schedule_every_step_is_a_permutation),
        cmocka_unit_test(test_schedule_every_pair_meets_once_in_the_exchange),
        cmocka_unit_test(test_schedule_gather_receives_what_the_rank_before_sends),
        cmocka_unit_test(test_schedule_ranks_near_the_limit_of_int_do_not_wrap),
        cmocka_unit_test(test_schedule_tree_reaches_every_rank_once),
        cmocka_unit_test(test_schedule_chain_visits_every_rank_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
