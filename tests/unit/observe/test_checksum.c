#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "observe/checksum.h"

#define BYTES 200

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void assert_all_differ(uint64_t *sums, size_t count)
{
    qsort(sums, count, sizeof *sums, by_value);
    for (size_t i = 1; i < count; i++)
        assert_true(sums[i] != sums[i - 1]);
}

static void test_checksum_of_equal_bytes_is_equal_wherever_they_lie(void **state)
{
    (void)state;
    uint8_t bytes[BYTES + 8], copy[BYTES + 8];
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 7);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(copy + shift, bytes, BYTES);
        for (size_t length = 0; length <= BYTES; length++)
            assert_true(dt_checksum(bytes, length) == dt_checksum(copy + shift, length));
    }
}

static void test_checksum_of_nothing_is_one_too(void **state)
{
    (void)state;
    assert_true(dt_checksum(NULL, 0) == dt_checksum("x", 0));
}

static void test_checksum_shows_each_flipped_bit(void **state)
{
    (void)state;
    static uint64_t sums[BYTES * 8 + 1];
    uint8_t bytes[BYTES] = {0};
    sums[BYTES * 8] = dt_checksum(bytes, BYTES);
    for (int bit = 0; bit < BYTES * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        sums[bit] = dt_checksum(bytes, BYTES);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_all_differ(sums, BYTES * 8 + 1);
}

static void test_checksum_shows_the_length_of_zeros(void **state)
{
    (void)state;
    uint64_t sums[BYTES + 1];
    uint8_t bytes[BYTES] = {0};
    for (size_t length = 0; length <= BYTES; length++)
        sums[length] = dt_checksum(bytes, length);
    assert_all_differ(sums, BYTES + 1);
}

/* What a sum of words would not see. */
static void test_checksum_shows_the_order_of_words(void **state)
{
    (void)state;
    uint64_t words[16], sums[16 * 15 / 2 + 1];
    size_t count = 0;
    for (size_t i = 0; i < 16; i++)
        words[i] = i + 1;
    sums[count++] = dt_checksum(words, sizeof words);
    for (size_t i = 0; i < 16; i++) {
        for (size_t j = i + 1; j < 16; j++) {
            uint64_t other[16];
            memcpy(other, words, sizeof other);
            other[i] = words[j];
            other[j] = words[i];
            sums[count++] = dt_checksum(other, sizeof other);
        }
    }
    assert_all_differ(sums, count);
}

/* A flipped bit flips about half of the sum's. */
static void test_checksum_bits_spread(void **state)
{
    (void)state;
    uint8_t bytes[64] = {0};
    uint64_t sum = dt_checksum(bytes, sizeof bytes);
    int least = 64, most = 0;
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int flipped = __builtin_popcountll(sum ^ dt_checksum(bytes, sizeof bytes));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        least = flipped < least ? flipped : least;
        most = flipped > most ? flipped : most;
    }
    assert_in_range(least, 10, 32);
    assert_in_range(most, 32, 54);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum_of_equal_bytes_is_equal_wherever_they_lie),
        cmocka_unit_test(test_checksum_of_nothing_is_one_too),
        cmocka_unit_test(test_checksum_shows_each_flipped_bit),
        cmocka_unit_test(test_checksum_shows_the_length_of_zeros),
        cmocka_unit_test(test_checksum_shows_the_order_of_words),
        cmocka_unit_test(test_checksum_bits_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
