/* test_shm_mail.c - messages through a ring of shared memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/shm/shm_mail.h"

#define LONGEST (1u << 20)

typedef struct mail_world {
    dt_shm_ring_t *ring;
    dt_shm_writer_t writer;
    dt_shm_reader_t reader;
} mail_world_t;

static int set_up(void **state)
{
    mail_world_t *world = calloc(1, sizeof *world);
    world->ring = aligned_alloc(DT_SHM_MAIL_LINE, sizeof *world->ring);
    memset(world->ring, 0, sizeof *world->ring);
    world->writer.ring = world->reader.ring = world->ring;
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    mail_world_t *world = *state;
    dt_buffer_free(&world->writer.queue);
    dt_buffer_free(&world->reader.message);
    free(world->ring);
    free(world);
    return 0;
}

static void fill(uint8_t *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static void test_mail_empty_ring_has_no_message(void **state)
{
    mail_world_t *world = *state;
    const uint8_t *data;
    size_t length;
    assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &length), 0);
    assert_false(dt_shm_ring_has_news(world->ring));
}

static void test_mail_messages_come_whole_and_in_order_around_the_end(void **state)
{
    mail_world_t *world = *state;
    uint8_t sent[3000], *data = NULL;
    for (unsigned i = 0; i < 200; i++) {
        size_t length = 1 + i * 131 % sizeof sent, found;
        fill(sent, length, i);
        assert_int_equal(dt_shm_write(&world->writer, sent, length), 0);
        assert_int_equal(dt_shm_read(&world->reader, LONGEST, (const uint8_t **)&data, &found), 1);
        assert_int_equal(found, length);
        assert_memory_equal(data, sent, length);
    }
    assert_false(dt_shm_ring_has_news(world->ring));
}

static void test_mail_longer_than_the_ring_goes_through_in_parts(void **state)
{
    mail_world_t *world = *state;
    size_t length = 5 * DT_SHM_RING_BYTES + 17, found = 0;
    uint8_t *sent = malloc(length), after = 42;
    const uint8_t *data = NULL;
    fill(sent, length, 3);
    assert_int_equal(dt_shm_write(&world->writer, sent, length), 0);
    assert_int_equal(dt_shm_write(&world->writer, &after, 1), 0);
    int is_found = 0;
    for (int turn = 0; turn < 20 && !is_found; turn++) {
        is_found = dt_shm_read(&world->reader, LONGEST, &data, &found);
        assert_true(is_found >= 0);
        if (!is_found)
            dt_shm_flush(&world->writer);
    }
    assert_int_equal(found, length);
    assert_memory_equal(data, sent, length);
    assert_int_equal(dt_shm_flush(&world->writer), 0);
    assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &found), 1);
    assert_int_equal(found, 1);
    assert_int_equal(data[0], 42);
    free(sent);
}

/* A full ring ends after so many bytes of a message's length, for each number of them. */
static void test_mail_length_in_two_parts_is_one_length(void **state)
{
    mail_world_t *world = *state;
    static uint8_t filler[DT_SHM_RING_BYTES];
    const uint8_t *data;
    size_t length;
    for (size_t part = 0; part <= 4; part++) {
        size_t first = DT_SHM_RING_BYTES - 4 - part;
        assert_int_equal(dt_shm_write(&world->writer, filler, first), 0);
        assert_int_equal(dt_shm_write(&world->writer, "second", 7), 0);
        assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &length), 1);
        assert_int_equal(length, first);
        assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &length), 0);
        assert_int_equal(dt_shm_flush(&world->writer), 0);
        assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &length), 1);
        assert_int_equal(length, 7);
        assert_string_equal((const char *)data, "second");
    }
}

static void test_mail_that_is_none_is_refused(void **state)
{
    mail_world_t *world = *state;
    const uint8_t *data;
    size_t length;
    const uint32_t lengths[] = {0, LONGEST + 1};
    for (int i = 0; i < 2; i++) {
        memset(world->ring, 0, sizeof *world->ring);
        memcpy(world->ring->bytes, &lengths[i], sizeof lengths[i]);
        atomic_store(&world->ring->written, 16);
        world->reader.length = 0;
        assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &length), -1);
    }
    atomic_store(&world->ring->written, UINT64_C(1) << 40);
    assert_int_equal(dt_shm_read(&world->reader, LONGEST, &data, &length), -1);
}

#define THREAD_MESSAGES 3000

static void *write_all(void *argument)
{
    mail_world_t *world = argument;
    uint8_t bytes[5000];
    for (unsigned i = 0; i < THREAD_MESSAGES; i++) {
        size_t length = 1 + i * 977 % sizeof bytes;
        fill(bytes, length, i);
        dt_shm_write(&world->writer, bytes, length);
    }
    while (dt_shm_flush(&world->writer)) {
    }
    return NULL;
}

static void test_mail_between_threads_arrives_unharmed(void **state)
{
    mail_world_t *world = *state;
    pthread_t thread;
    uint8_t expected[5000];
    int wrong = 0;
    pthread_create(&thread, NULL, write_all, world);
    for (unsigned i = 0; i < THREAD_MESSAGES;) {
        const uint8_t *data;
        size_t found, length = 1 + i * 977 % sizeof expected;
        if (!dt_shm_read(&world->reader, LONGEST, &data, &found))
            continue;
        fill(expected, length, i++);
        wrong += found != length || memcmp(data, expected, length) != 0;
    }
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mail_empty_ring_has_no_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mail_messages_come_whole_and_in_order_around_the_end,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mail_longer_than_the_ring_goes_through_in_parts,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mail_length_in_two_parts_is_one_length, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_mail_that_is_none_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mail_between_threads_arrives_unharmed, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
