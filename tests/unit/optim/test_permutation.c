#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "optim/sampler.h"

static void test_permutation_of_any_count_reaches_every_number_once(void **state)
{
    (void)state;
    static unsigned char seen[70000];
    static const int64_t counts[] = {1, 2, 3, 10, 255, 256, 257, 1000, 4096, 65537, 70000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            dt_permutation_t permutation = dt_permutation_make(counts[c], seed, (int64_t)seed);
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < counts[c]; i++) {
                int64_t at = dt_permutation_at(&permutation, i);
                assert_true(at >= 0 && at < counts[c]);
                assert_int_equal(seen[at], 0);
                seen[at] = 1;
            }
        }
    }
}

static void test_permutation_of_the_greatest_count_stays_inside_and_apart(void **state)
{
    (void)state;
    const int64_t count = INT64_C(1) << 62;
    dt_permutation_t permutation = dt_permutation_make(count, 1, 2);
    int64_t before = -1;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t at = dt_permutation_at(&permutation, count - 1 - i);
        assert_true(at >= 0 && at < count && at != before);
        before = at;
    }
}

/* Chi-squared of where one index goes over many seeds or epochs. With `count` - 1 degrees of
 * freedom, that is 11, a value above 40 comes about once in 25,000. */
static double spread(int64_t index, int by_epoch)
{
    enum { COUNT = 12, DRAWS = 12000 };
    int hits[COUNT] = {0};
    for (int draw = 0; draw < DRAWS; draw++) {
        dt_permutation_t permutation =
            dt_permutation_make(COUNT, by_epoch ? 7 : (uint64_t)draw, by_epoch ? draw : 7);
        hits[dt_permutation_at(&permutation, index)]++;
    }
    double sum = 0, expected = (double)DRAWS / COUNT;
    for (int i = 0; i < COUNT; i++)
        sum += (hits[i] - expected) * (hits[i] - expected) / expected;
    return sum;
}

static void test_permutation_of_few_numbers_sends_each_everywhere_alike(void **state)
{
    (void)state;
    for (int64_t index = 0; index < 12; index++) {
        assert_true(spread(index, 0) < 40);
        assert_true(spread(index, 1) < 40);
    }
}

/* The order of neighbours: of the 6 orders of 3 numbers each comes about as often. */
static void test_permutation_of_three_numbers_has_every_order_alike(void **state)
{
    (void)state;
    enum { DRAWS = 12000 };
    int hits[9] = {0};
    for (int draw = 0; draw < DRAWS; draw++) {
        dt_permutation_t permutation = dt_permutation_make(3, (uint64_t)draw, 0);
        int64_t first = dt_permutation_at(&permutation, 0);
        int64_t second = dt_permutation_at(&permutation, 1);
        hits[3 * first + second]++;
    }
    for (int i = 0; i < 9; i++)
        if (i % 4 != 0) /* first and second differ */
            assert_in_range(hits[i], DRAWS / 6 - 200, DRAWS / 6 + 200);
}

static void test_permutation_of_another_seed_or_epoch_is_another_one(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    dt_permutation_t base = dt_permutation_make(COUNT, 1, 1);
    dt_permutation_t seed = dt_permutation_make(COUNT, 2, 1);
    dt_permutation_t epoch = dt_permutation_make(COUNT, 1, 2);
    int same_seed = 0, same_epoch = 0, fixed = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t at = dt_permutation_at(&base, i);
        fixed += at == i;
        same_seed += at == dt_permutation_at(&seed, i);
        same_epoch += at == dt_permutation_at(&epoch, i);
    }
    /* One is expected in each. */
    assert_true(fixed < 10);
    assert_true(same_seed < 10);
    assert_true(same_epoch < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation_of_any_count_reaches_every_number_once),
        cmocka_unit_test(test_permutation_of_the_greatest_count_stays_inside_and_apart),
        cmocka_unit_test(test_permutation_of_few_numbers_sends_each_everywhere_alike),
        cmocka_unit_test(test_permutation_of_three_numbers_has_every_order_alike),
        cmocka_unit_test(test_permutation_of_another_seed_or_epoch_is_another_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
