#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/detect/detect_link.h"

#define TIMEOUT_NS INT64_C(1000000000)

static const dt_detect_message_t leaving = {.type = DT_DETECT_LEAVING};

static void open_pair(dt_detect_link_t *link, int *peer)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    dt_detect_link_open(link, fds[0], 1, TIMEOUT_NS, 0);
    *peer = fds[1];
}

/* What is queued for it would hold up whoever leaves. */
static void test_detect_link_to_a_peer_that_is_gone_queues_nothing(void **state)
{
    (void)state;
    dt_detect_link_t link;
    dt_detect_message_t message;
    int peer;
    open_pair(&link, &peer);
    close(peer);
    dt_detect_link_send(&link, &leaving);
    assert_int_equal(link.out.length, 0);
    assert_int_equal(dt_detect_link_receive(&link, 2, &message), -1);
    dt_detect_link_close(&link);
}

static void test_detect_link_that_is_full_queues_until_it_is_read(void **state)
{
    (void)state;
    dt_detect_link_t link;
    uint8_t bytes[4096];
    int peer;
    open_pair(&link, &peer);
    for (int i = 0; i < 1000000 && link.out.length == 0; i++)
        dt_detect_link_send(&link, &leaving);
    assert_true(link.out.length > 0);
    while (recv(peer, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    dt_detect_link_flush(&link);
    assert_int_equal(link.out.length, 0);
    dt_detect_link_close(&link);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect_link_to_a_peer_that_is_gone_queues_nothing),
        cmocka_unit_test(test_detect_link_that_is_full_queues_until_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
