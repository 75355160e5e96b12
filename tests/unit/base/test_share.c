#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/share.h"

static void test_share_of_all_ranks_covers_everything_evenly_in_order(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 6, 7, 8, 1000, INT64_MAX - 1};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (int size = 1; size <= 9; size++) {
            int64_t covered = 0, before = INT64_MAX;
            for (int rank = 0; rank < size; rank++) {
                int64_t begin, end;
                dt_share(counts[c], rank, size, &begin, &end);
                assert_int_equal(begin, covered);
                assert_in_range(end - begin, counts[c] / size, counts[c] / size + 1);
                assert_true(end - begin <= before);
                before = end - begin;
                covered = end;
            }
            assert_int_equal(covered, counts[c]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share_of_all_ranks_covers_everything_evenly_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
