#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32.h"

/* The check value of this CRC's definition. */
static void test_crc32_of_the_check_string_is_the_known_sum(void **state)
{
    (void)state;
    dt_crc32_t crc32;
    dt_crc32_init(&crc32);
    assert_int_equal(dt_crc32_update(&crc32, 0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(dt_crc32_update(&crc32, 0, NULL, 0), 0);
}

/* Bit by bit, as the definition has it. */
static uint32_t reference(const uint8_t *bytes, size_t length)
{
    uint32_t sum = 0xffffffffu;
    for (size_t i = 0; i < 8 * length; i++) {
        uint32_t bit = (sum ^ (uint32_t)bytes[i / 8] >> i % 8) & 1;
        sum = sum >> 1 ^ (bit ? 0xedb88320u : 0);
    }
    return ~sum;
}

static void test_crc32_in_any_two_pieces_is_that_of_the_whole(void **state)
{
    (void)state;
    dt_crc32_t crc32;
    dt_crc32_init(&crc32);
    uint8_t bytes[67];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i * 37 + 11);
    uint32_t whole = reference(bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t sum = dt_crc32_update(&crc32, 0, bytes, cut);
        assert_int_equal(sum, reference(bytes, cut));
        sum = dt_crc32_update(&crc32, sum, bytes + cut, sizeof bytes - cut);
        assert_int_equal(sum, whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32_of_the_check_string_is_the_known_sum),
        cmocka_unit_test(test_crc32_in_any_two_pieces_is_that_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
