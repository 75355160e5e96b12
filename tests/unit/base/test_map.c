#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/map.h"
#include "base/memory.h"
#include "test_random.h"

#define NUM_KEYS 400
#define NUM_STEPS 40000

static int memory_is_out;

/* The names that the linker's --wrap wants. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_dt_calloc(size_t count, size_t bytes);
void *__wrap_dt_calloc(size_t count, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier) */

void *__wrap_dt_calloc(size_t count, size_t bytes)
{
    return memory_is_out ? NULL : __real_dt_calloc(count, bytes);
}

typedef struct entry {
    char key[16];
    size_t length;
    int is_in;
    int was_seen;
} entry_t;

static int add(dt_map_t *map, entry_t *entry)
{
    return dt_map_add(map, entry->key, entry->length, entry);
}

static void name_entry(entry_t *entry, int number)
{
    *entry = (entry_t){0};
    entry->length = (size_t)snprintf(entry->key, sizeof entry->key, "key.%d", number);
}

static void check_against_model(const dt_map_t *map, entry_t *entries)
{
    size_t count = 0;
    size_t walked = 0;
    for (int i = 0; i < NUM_KEYS; i++) {
        entries[i].was_seen = 0;
        count += (size_t)entries[i].is_in;
        assert_ptr_equal(dt_map_get(map, entries[i].key, entries[i].length),
                         entries[i].is_in ? &entries[i] : NULL);
    }
    assert_int_equal(map->count, count);
    size_t at = 0;
    for (entry_t *entry; (entry = dt_map_next(map, &at)) != NULL; walked++) {
        assert_true(entry->is_in);
        assert_false(entry->was_seen);
        entry->was_seen = 1;
    }
    assert_int_equal(walked, count);
}

/* A few keys in a table of few slots collide all the time; many make it grow. */
static void run_random_operations(int num_keys, uint64_t seed)
{
    static entry_t entries[NUM_KEYS];
    dt_map_t map = {0};
    for (int i = 0; i < NUM_KEYS; i++)
        name_entry(&entries[i], i);
    for (int step = 0; step < NUM_STEPS; step++) {
        entry_t *entry = &entries[test_random(&seed) % (uint64_t)num_keys];
        if (entry->is_in)
            assert_ptr_equal(dt_map_remove(&map, entry->key, entry->length), entry);
        else
            assert_int_equal(add(&map, entry), 0);
        entry->is_in = !entry->is_in;
        if (step % 500 == 0)
            check_against_model(&map, entries);
    }
    check_against_model(&map, entries);
    dt_map_free(&map);
}

static void test_map_random_operations_agree_with_a_model(void **state)
{
    (void)state;
    run_random_operations(NUM_KEYS, 1);
    run_random_operations(14, 2);
    run_random_operations(23, 3);
}

static void test_map_empty_has_nothing(void **state)
{
    (void)state;
    dt_map_t map = {0};
    size_t at = 0;
    assert_null(dt_map_get(&map, "a", 1));
    assert_null(dt_map_remove(&map, "a", 1));
    assert_null(dt_map_next(&map, &at));
    dt_map_free(&map);
}

static void test_map_keys_with_one_home_are_kept_apart(void **state)
{
    (void)state;
    static entry_t entries[6];
    dt_map_t map = {0};
    int found = 0;
    for (int number = 0; found < 6; number++) {
        name_entry(&entries[found], number);
        /* The last slot of the first table, so that the chain goes on at its start. */
        if (dt_hash(entries[found].key, entries[found].length) % 16 == 15)
            found++;
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(add(&map, &entries[i]), 0);
    assert_int_equal(map.capacity, 16);
    for (int gone = 0; gone < 6; gone++) {
        assert_ptr_equal(dt_map_remove(&map, entries[gone].key, entries[gone].length),
                         &entries[gone]);
        for (int i = 0; i < 6; i++)
            assert_ptr_equal(dt_map_get(&map, entries[i].key, entries[i].length),
                             i > gone ? &entries[i] : NULL);
    }
    dt_map_free(&map);
}

static void test_map_keys_are_bytes_not_strings(void **state)
{
    (void)state;
    dt_map_t map = {0};
    int values[4];
    assert_int_equal(dt_map_add(&map, "a\0b", 3, &values[0]), 0);
    assert_int_equal(dt_map_add(&map, "a\0c", 3, &values[1]), 0);
    assert_int_equal(dt_map_add(&map, "a", 1, &values[2]), 0);
    assert_int_equal(dt_map_add(&map, "", 0, &values[3]), 0);
    assert_ptr_equal(dt_map_get(&map, "a\0b", 3), &values[0]);
    assert_ptr_equal(dt_map_get(&map, "a\0c", 3), &values[1]);
    assert_ptr_equal(dt_map_get(&map, "a", 1), &values[2]);
    assert_ptr_equal(dt_map_get(&map, "", 0), &values[3]);
    assert_null(dt_map_get(&map, "a\0", 2));
    dt_map_free(&map);
}

static void test_map_without_memory_stays_as_it_was(void **state)
{
    (void)state;
    static entry_t entries[13];
    dt_map_t map = {0};
    for (int i = 0; i < 13; i++)
        name_entry(&entries[i], i);
    for (int i = 0; i < 12; i++)
        assert_int_equal(add(&map, &entries[i]), 0);
    memory_is_out = 1;
    int rc = add(&map, &entries[12]);
    memory_is_out = 0;
    assert_int_equal(rc, -1);
    assert_int_equal(map.count, 12);
    for (int i = 0; i < 12; i++)
        assert_ptr_equal(dt_map_get(&map, entries[i].key, entries[i].length), &entries[i]);
    assert_null(dt_map_get(&map, entries[12].key, entries[12].length));
    dt_map_free(&map);
}

static void test_hash_every_byte_and_the_length_count(void **state)
{
    (void)state;
    uint8_t bytes[40] = {0};
    for (size_t length = 0; length < sizeof bytes; length++) {
        uint64_t hash = dt_hash(bytes, length);
        assert_true(hash != dt_hash(bytes, length + 1));
        for (size_t i = 0; i < length; i++) {
            bytes[i] = 1;
            assert_true(hash != dt_hash(bytes, length));
            bytes[i] = 0;
        }
    }
}

static void test_hash_of_similar_names_spreads(void **state)
{
    (void)state;
    int used[1024] = {0};
    int longest = 0;
    for (int i = 0; i < 1024; i++) {
        char key[40];
        int length = snprintf(key, sizeof key, "layer.%d.attention.weight", i);
        int *bin = &used[dt_hash(key, (size_t)length) % 1024];
        *bin += 1;
        if (*bin > longest)
            longest = *bin;
    }
    assert_true(longest <= 10); /* 1024 balls in as many bins: 5 to 7 is usual */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_random_operations_agree_with_a_model),
        cmocka_unit_test(test_map_empty_has_nothing),
        cmocka_unit_test(test_map_keys_with_one_home_are_kept_apart),
        cmocka_unit_test(test_map_keys_are_bytes_not_strings),
        cmocka_unit_test(test_map_without_memory_stays_as_it_was),
        cmocka_unit_test(test_hash_every_byte_and_the_length_count),
        cmocka_unit_test(test_hash_of_similar_names_spreads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
