#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
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

/* A connection over TCP whose other end the test reads, or not; the kernel's acknowledgements stop
 * when both ends are told to drop what comes, as on a link that is cut. */
static void open_tcp_pair(dt_detect_link_t *link, int *peer, int64_t now_ns)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
    *peer = accept(listener, NULL, NULL);
    assert_true(*peer >= 0);
    close(listener);
    dt_detect_link_open(link, fd, 1, TIMEOUT_NS, now_ns);
}

static void cut(int fd)
{
    struct sock_filter drop = {.code = BPF_RET | BPF_K, .k = 0};
    const struct sock_fprog program = {.len = 1, .filter = &drop};
    int result = setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    if (result != 0 && errno == EPERM) {
        printf("skipped: this user may not tell a socket to drop what comes\n");
        skip();
    }
    assert_int_equal(result, 0);
}

/* Until the peer's kernel has acknowledged all. */
static void await_acknowledgement(const dt_detect_link_t *link)
{
    int left = 1;
    for (int i = 0; i < 10000 && left > 0; i++) {
        assert_int_equal(ioctl(link->fd, SIOCOUTQ, &left), 0);
        usleep(1000);
    }
    assert_int_equal(left, 0);
}

static void test_detect_link_that_is_cut_ends_after_its_timeout(void **state)
{
    (void)state;
    dt_detect_link_t link;
    int peer;
    open_tcp_pair(&link, &peer, 0);
    dt_detect_link_beat(&link, 0, 0);
    await_acknowledgement(&link);
    cut(peer);
    assert_int_equal(dt_detect_link_check(&link, TIMEOUT_NS, 10), 0);
    assert_true(link.mark_ns == DT_NEVER);
    dt_detect_link_beat(&link, 0, 10);
    dt_detect_link_beat(&link, 0, TIMEOUT_NS / 2); /* the first of them counts */
    assert_int_equal(dt_detect_link_check(&link, TIMEOUT_NS, 9 + TIMEOUT_NS), 0);
    assert_int_equal(dt_detect_link_check(&link, TIMEOUT_NS, 10 + TIMEOUT_NS), -1);
    assert_int_equal(link.error, ETIMEDOUT);
    dt_detect_link_close(&link);
    close(peer);
}

/* Its process may be stopped: that is for beats to tell. */
static void test_detect_link_whose_peer_reads_nothing_does_not_end(void **state)
{
    (void)state;
    dt_detect_link_t link;
    int64_t now_ns = 0;
    int peer;
    open_tcp_pair(&link, &peer, 0);
    for (int i = 0; i < 200; i++) {
        dt_detect_link_beat(&link, 0, now_ns);
        await_acknowledgement(&link);
        now_ns += TIMEOUT_NS;
        assert_int_equal(dt_detect_link_check(&link, TIMEOUT_NS, now_ns), 0);
    }
    dt_detect_link_close(&link);
    close(peer);
}

/* After a pause of this process, or its machine, acknowledgements are about to come. */
static void test_detect_link_looked_at_much_too_late_gets_another_chance(void **state)
{
    (void)state;
    dt_detect_link_t link;
    int64_t late_ns = 10 * TIMEOUT_NS;
    int peer;
    open_tcp_pair(&link, &peer, 0);
    cut(peer);
    dt_detect_link_beat(&link, 0, 0);
    assert_int_equal(dt_detect_link_check(&link, TIMEOUT_NS, late_ns), 0);
    assert_true(link.mark_ns + TIMEOUT_NS > late_ns);
    assert_true(link.mark_ns + TIMEOUT_NS < late_ns + TIMEOUT_NS / 2);
    assert_int_equal(dt_detect_link_check(&link, TIMEOUT_NS, link.mark_ns + TIMEOUT_NS), -1);
    dt_detect_link_close(&link);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect_link_to_a_peer_that_is_gone_queues_nothing),
        cmocka_unit_test(test_detect_link_that_is_full_queues_until_it_is_read),
        cmocka_unit_test(test_detect_link_that_is_cut_ends_after_its_timeout),
        cmocka_unit_test(test_detect_link_whose_peer_reads_nothing_does_not_end),
        cmocka_unit_test(test_detect_link_looked_at_much_too_late_gets_another_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
