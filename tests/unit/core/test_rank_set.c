#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/rank_set.h"

static void assert_described(int size, const int *ranks, int n, const char *in, const char *out)
{
    dt_rank_set_t set;
    char text[256];
    assert_int_equal(dt_rank_set_init(&set, size), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(dt_rank_set_add(&set, ranks[i]), 1);
    if (in)
        assert_string_equal(dt_rank_set_describe(&set, 0, text, sizeof text), in);
    if (out)
        assert_string_equal(dt_rank_set_describe(&set, 1, text, sizeof text), out);
    dt_rank_set_free(&set);
}

static void test_rank_set_counts_each_rank_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 63, 64, 65, 200};
    for (int i = 0; i < 5; i++) {
        int size = sizes[i];
        dt_rank_set_t set;
        assert_int_equal(dt_rank_set_init(&set, size), 0);
        for (int rank = 0; rank < size; rank++) {
            assert_int_equal(dt_rank_set_has(&set, rank), 0);
            assert_int_equal(dt_rank_set_add(&set, rank), 1);
            assert_int_equal(dt_rank_set_add(&set, rank), 0);
            assert_int_equal(dt_rank_set_has(&set, rank), 1);
            assert_int_equal(set.count, rank + 1);
        }
        dt_rank_set_remove(&set, size - 1);
        dt_rank_set_remove(&set, size - 1);
        assert_int_equal(dt_rank_set_has(&set, size - 1), 0);
        assert_int_equal(set.count, size - 1);
        assert_int_equal(dt_rank_set_add(&set, size - 1), 1);
        dt_rank_set_clear(&set);
        assert_int_equal(set.count, 0);
        for (int rank = 0; rank < size; rank++)
            assert_int_equal(dt_rank_set_has(&set, rank), 0);
        dt_rank_set_free(&set);
    }
}

static void test_rank_set_united_with_another_has_the_ranks_of_both(void **state)
{
    (void)state;
    dt_rank_set_t set, other;
    assert_int_equal(dt_rank_set_init(&set, 130), 0);
    assert_int_equal(dt_rank_set_init(&other, 130), 0);
    dt_rank_set_add(&set, 1);
    dt_rank_set_add(&set, 64);
    dt_rank_set_add(&other, 64);
    dt_rank_set_add(&other, 129);
    dt_rank_set_unite(&set, &other);
    assert_int_equal(set.count, 3);
    assert_true(dt_rank_set_has(&set, 1) && dt_rank_set_has(&set, 64) &&
                dt_rank_set_has(&set, 129));
    assert_int_equal(other.count, 2);
    dt_rank_set_free(&set);
    dt_rank_set_free(&other);
}

static void test_rank_set_describes_members_and_the_missing(void **state)
{
    (void)state;
    assert_described(3, (int[]){1}, 1, "rank 1", "ranks 0, 2");
    assert_described(2, (int[]){1}, 1, "rank 1", "rank 0");
    assert_described(8, (int[]){0, 1, 2, 5}, 4, "ranks 0-2, 5", "ranks 3-4, 6-7");
    assert_described(130, (int[]){63, 64, 129}, 3, "ranks 63-64, 129", "ranks 0-62, 65-128");
    assert_described(4, (int[]){3, 2, 1, 0}, 4, "ranks 0-3", NULL);
    assert_described(1000, NULL, 0, NULL, "ranks 0-999");
}

static void test_rank_set_description_is_cut_where_it_does_not_fit(void **state)
{
    (void)state;
    dt_rank_set_t set;
    assert_int_equal(dt_rank_set_init(&set, 4000), 0);
    for (int rank = 0; rank < 4000; rank += 2)
        dt_rank_set_add(&set, rank);
    for (size_t cap = 48; cap < 200; cap++) {
        char text[200];
        memset(text, 'x', sizeof text);
        const char *described = dt_rank_set_describe(&set, (int)cap % 2, text, cap);
        assert_ptr_equal(described, text);
        assert_true(strlen(text) < cap);
        assert_non_null(strstr(text, ", …"));
        assert_memory_equal(text, cap % 2 ? "ranks 1, 3" : "ranks 0, 2", 10);
        for (size_t i = cap; i < sizeof text; i++)
            assert_true(text[i] == 'x');
    }
    dt_rank_set_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_set_counts_each_rank_once),
        cmocka_unit_test(test_rank_set_united_with_another_has_the_ranks_of_both),
        cmocka_unit_test(test_rank_set_describes_members_and_the_missing),
        cmocka_unit_test(test_rank_set_description_is_cut_where_it_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
