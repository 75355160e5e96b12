/* Messages cut anywhere, over a pair of sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/control.h"
#include "comm/sock/sock_stream.h"

static void open_pair(dt_sock_stream_t *stream, int *raw)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    dt_sock_stream_open(stream, fds[0]);
    *raw = fds[1];
}

static void test_sock_stream_bytes_one_by_one_make_whole_messages(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0, 0, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c', 1, 0, 0, 0, 'd'};
    const size_t lengths[] = {0, 3, 1};
    dt_sock_stream_t stream;
    const uint8_t *data;
    size_t length;
    size_t taken = 0;
    int raw;
    open_pair(&stream, &raw);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(send(raw, bytes + i, 1, 0), 1);
        assert_int_equal(dt_sock_stream_fill(&stream), 1);
        assert_int_equal(dt_sock_stream_fill(&stream), 0);
        while (dt_sock_stream_take(&stream, &data, &length))
            assert_int_equal(length, lengths[taken++]);
    }
    assert_int_equal(taken, 3);
    assert_memory_equal(data, "d", 1);
    close(raw);
    dt_sock_stream_close(&stream);
}

static void test_sock_stream_of_many_messages_needs_one_fill(void **state)
{
    (void)state;
    const uint8_t message[] = {2, 0, 0, 0, 'o', 'k'};
    dt_sock_stream_t stream;
    const uint8_t *data;
    size_t length;
    int raw;
    int taken = 0;
    open_pair(&stream, &raw);
    for (int i = 0; i < 100; i++)
        assert_int_equal(send(raw, message, sizeof message, 0), (ssize_t)sizeof message);
    assert_int_equal(dt_sock_stream_fill(&stream), 1);
    while (dt_sock_stream_take(&stream, &data, &length))
        taken += length == 2 && memcmp(data, "ok", 2) == 0;
    assert_int_equal(taken, 100);
    close(raw);
    dt_sock_stream_close(&stream);
}

static void test_sock_stream_with_an_announced_length_takes_no_memory_for_it(void **state)
{
    (void)state;
    const uint8_t longest[] = {0, 0, 0, 4}; /* DT_CONTROL_MESSAGE_MAX */
    dt_sock_stream_t stream;
    const uint8_t *data;
    size_t length;
    int raw;
    open_pair(&stream, &raw);
    assert_int_equal(send(raw, longest, sizeof longest, 0), 4);
    assert_int_equal(dt_sock_stream_fill(&stream), 1);
    assert_int_equal(dt_sock_stream_take(&stream, &data, &length), 0);
    assert_int_equal(dt_sock_stream_fill(&stream), 0);
    assert_true(stream.in_capacity < (1u << 20));
    assert_int_equal(stream.end, DT_SOCK_OPEN);
    close(raw);
    assert_int_equal(dt_sock_stream_fill(&stream), 1);
    assert_int_equal(stream.end, DT_SOCK_CLOSED);
    dt_sock_stream_close(&stream);
}

static void test_sock_stream_that_is_full_queues_and_flushes(void **state)
{
    (void)state;
    static uint8_t bytes[100000];
    static uint8_t got[sizeof bytes + 4];
    dt_sock_stream_t stream;
    size_t total = 0;
    size_t received = 0;
    int raw;
    open_pair(&stream, &raw);
    for (int i = 0; i < 40; i++) {
        memset(bytes, i, sizeof bytes);
        assert_int_equal(dt_sock_stream_send(&stream, bytes, sizeof bytes), DTRAIN_OK);
        total += sizeof bytes + 4;
    }
    assert_true(dt_sock_stream_queued(&stream) > 0);
    for (int i = 0; received < total; i++) {
        for (size_t at = 0; at < sizeof got;) {
            ssize_t more = recv(raw, got + at, sizeof got - at, MSG_DONTWAIT);
            if (more > 0)
                at += (size_t)more;
            else
                dt_sock_stream_flush(&stream);
        }
        assert_int_equal(got[4], i);
        assert_int_equal(got[sizeof got - 1], i);
        received += sizeof got;
    }
    assert_int_equal(dt_sock_stream_queued(&stream), 0);
    close(raw);
    dt_sock_stream_close(&stream);
}

static void test_sock_stream_to_a_closed_peer_is_lost_without_a_signal(void **state)
{
    (void)state;
    dt_sock_stream_t stream;
    int raw;
    open_pair(&stream, &raw);
    close(raw);
    assert_int_equal(dt_sock_stream_send(&stream, "x", 1), DTRAIN_ERR_RANK_LOST);
    assert_int_equal(dt_sock_stream_send(&stream, "x", 1), DTRAIN_ERR_RANK_LOST);
    assert_int_equal(dt_sock_stream_queued(&stream), 0);
    dt_sock_stream_close(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sock_stream_bytes_one_by_one_make_whole_messages),
        cmocka_unit_test(test_sock_stream_of_many_messages_needs_one_fill),
        cmocka_unit_test(test_sock_stream_with_an_announced_length_takes_no_memory_for_it),
        cmocka_unit_test(test_sock_stream_that_is_full_queues_and_flushes),
        cmocka_unit_test(test_sock_stream_to_a_closed_peer_is_lost_without_a_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
