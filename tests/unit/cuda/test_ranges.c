/* The table by which memory of a device is found, beside one that looks at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "comm/nccl/nccl_ranges.h"

#define ROOM 4096
#define ROUNDS 3000

static char memory[ROOM];
static int16_t owner[ROOM]; /* the byte's range; 0: none */

static void assert_alike(const dt_nccl_ranges_t *ranges)
{
    for (int at = 0; at < ROOM; at++) {
        const dt_nccl_range_t *found = dt_nccl_ranges_find(ranges, memory + at);
        assert_int_equal(found ? found->flags : 0, owner[at]);
    }
}

/* At a free place, of random length up to the next range. */
static void add_one(dt_nccl_ranges_t *ranges, int number)
{
    int begin = rand() % ROOM, most = 1 + rand() % 200, bytes = 0;
    while (bytes < most && begin + bytes < ROOM && owner[begin + bytes] == 0)
        owner[begin + bytes++] = (int16_t)number;
    if (bytes == 0)
        return;
    dt_nccl_range_t range = {.begin = memory + begin, .bytes = (size_t)bytes, .flags = number};
    assert_int_equal(dt_nccl_ranges_add(ranges, range), 0);
}

static void remove_one(dt_nccl_ranges_t *ranges)
{
    int at = rand() % ROOM;
    dt_nccl_range_t *found = dt_nccl_ranges_find(ranges, memory + at);
    if (!found)
        return;
    for (size_t i = 0; i < found->bytes; i++)
        owner[found->begin - memory + (ptrdiff_t)i] = 0;
    dt_nccl_ranges_remove(ranges, found);
}

static void test_ranges_find_what_was_added_and_not_removed(void **state)
{
    dt_nccl_ranges_t ranges = {0};
    (void)state;
    srand(7);
    assert_alike(&ranges);
    for (int round = 1; round <= ROUNDS; round++) {
        if (rand() % 5 < 3)
            add_one(&ranges, round);
        else
            remove_one(&ranges);
        if (round % 50 == 0)
            assert_alike(&ranges);
    }
    assert_true(ranges.count > 10);
    dt_nccl_ranges_free(&ranges);
    assert_int_equal(ranges.count, 0);
}

static void test_ranges_address_outside_all_is_in_none(void **state)
{
    dt_nccl_ranges_t ranges = {0};
    (void)state;
    dt_nccl_range_t range = {.begin = memory + 10, .bytes = 5};
    assert_null(dt_nccl_ranges_find(&ranges, memory));
    assert_int_equal(dt_nccl_ranges_add(&ranges, range), 0);
    assert_null(dt_nccl_ranges_find(&ranges, memory + 9));
    assert_non_null(dt_nccl_ranges_find(&ranges, memory + 10));
    assert_non_null(dt_nccl_ranges_find(&ranges, memory + 14));
    assert_null(dt_nccl_ranges_find(&ranges, memory + 15));
    assert_null(dt_nccl_ranges_find(&ranges, NULL));
    dt_nccl_ranges_free(&ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_find_what_was_added_and_not_removed),
        cmocka_unit_test(test_ranges_address_outside_all_is_in_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
