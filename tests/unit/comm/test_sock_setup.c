/* Who is let in while a world is set up, and what everyone is told when it fails. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/sock/sock_handshake.h"
#include "comm/sock/sock_net.h"
#include "sock_world.h"

/* A connection to the Unix listener, made by hand. */
static int dial(const dt_sock_address_t *address)
{
    struct sockaddr_un name;
    socklen_t length = dt_sock_unix_address(&name, address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, length), 0);
    return fd;
}

static int dial_tcp(const dt_sock_address_t *address)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons(address->tcp_port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return fd;
}

static void say(int fd, const void *bytes, size_t length)
{
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

static void open_listener(int between_nodes, dt_sock_address_t *address,
                          dt_sock_listener_t **listener)
{
    assert_int_equal(dt_sock_listen(between_nodes, "", address, listener), DTRAIN_OK);
}

/* Shorter than the time that a silent guest is given. */
static int64_t soon(void)
{
    return dt_now_ns() + 3 * DT_NS_PER_S;
}

static void test_sock_accept_with_strangers_lets_only_ranks_in(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    sock_rank_t ranks[3];
    uint8_t hello[DT_SOCK_HELLO_BYTES];
    uint8_t garbage[4096];
    int fds[6];
    memset(garbage, 0xA5, sizeof garbage);
    open_listener(1, &address, &listener);

    fds[0] = dial(&address); /* says nothing */
    fds[1] = dial_tcp(&address);
    fds[2] = dial(&address);
    say(fds[2], garbage, sizeof garbage);
    fds[3] = dial(&address); /* half a hello */
    dt_sock_write_hello(hello, address.secret, 1);
    say(fds[3], hello, sizeof hello / 2);
    fds[4] = dial_tcp(&address); /* the right rank, the wrong secret */
    hello[DT_SOCK_HELLO_BYTES - 1] ^= 1;
    say(fds[4], hello, sizeof hello);
    fds[5] = dial(&address); /* the right secret, no rank of this world */
    dt_sock_write_hello(hello, address.secret, 4);
    say(fds[5], hello, sizeof hello);

    for (int i = 0; i < 3; i++)
        sock_start(&ranks[i], &address, i + 1, i != 1, NULL);
    assert_int_equal(dt_sock_accept(listener, 4, soon(), sock_idle, &control), DTRAIN_OK);
    for (int i = 0; i < 6; i++) {
        uint8_t byte;
        assert_true(recv(fds[i], &byte, 1, 0) <= 0);
        close(fds[i]);
    }
    sock_join(ranks, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ranks[i].status, DTRAIN_OK);
    control->ops->destroy(control);
}

static void test_sock_accept_of_a_rank_twice_closes_the_second(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    sock_rank_t rank;
    uint8_t hello[DT_SOCK_HELLO_BYTES];
    uint8_t answer[DT_SOCK_ANSWER_BYTES];
    open_listener(0, &address, &listener);
    int first = dial(&address);
    int second = dial(&address);
    dt_sock_write_hello(hello, address.secret, 1);
    say(first, hello, sizeof hello);
    say(second, hello, sizeof hello);
    sock_start(&rank, &address, 2, 1, NULL);
    assert_int_equal(dt_sock_accept(listener, 3, soon(), sock_idle, &control), DTRAIN_OK);
    assert_int_equal(recv(first, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_true(dt_sock_check_answer(answer, address.secret));
    assert_true(recv(second, answer, sizeof answer, 0) <= 0);
    control->ops->destroy(control);
    sock_join(&rank, 1);
    close(first);
    close(second);
}

static void test_sock_accept_without_a_rank_tells_everyone_which(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    sock_rank_t ranks[2];
    open_listener(0, &address, &listener);
    sock_start(&ranks[0], &address, 1, 1, NULL);
    sock_start(&ranks[1], &address, 3, 1, NULL);
    int64_t deadline = dt_now_ns() + 300 * DT_NS_PER_MS;
    assert_int_equal(dt_sock_accept(listener, 5, deadline, sock_idle, &control),
                     DTRAIN_ERR_TIMEOUT);
    assert_non_null(strstr(dt_last_error(), "ranks 2, 4 "));
    assert_null(control);
    sock_join(ranks, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, DTRAIN_ERR_TIMEOUT);
        assert_non_null(strstr(ranks[i].error, "ranks 2, 4 "));
    }
}

static void test_sock_accept_of_a_rank_that_leaves_fails_at_once(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    sock_rank_t rank;
    open_listener(0, &address, &listener);
    /* Rank 1 does not wait for long; rank 2 never comes. */
    rank = (sock_rank_t){.address = address,
                         .rank = 1,
                         .same_node = 1,
                         .deadline_ns = dt_now_ns() + 200 * DT_NS_PER_MS};
    pthread_create(&rank.thread, NULL, sock_rank_main, &rank);
    assert_int_equal(
        dt_sock_accept(listener, 3, dt_now_ns() + SOCK_PATIENCE_NS, sock_idle, &control),
        DTRAIN_ERR_COMMUNICATION);
    assert_non_null(strstr(dt_last_error(), "rank 1"));
    sock_join(&rank, 1);
    assert_int_equal(rank.status, DTRAIN_ERR_TIMEOUT);
}

static dtrain_status_t give_up_on_third_call(void *context)
{
    int *calls = context;
    return ++*calls < 3 ? DTRAIN_OK : dt_fail(DTRAIN_ERR_CONFIG, "a rank told that it fails");
}

static void test_sock_accept_that_is_told_to_stop_tells_everyone_why(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    int calls = 0;
    open_listener(0, &address, &listener);
    int fd = dial(&address); /* rank 1 is here already, by hand; rank 2 never comes */
    uint8_t hello[DT_SOCK_HELLO_BYTES];
    uint8_t heard[DT_SOCK_ANSWER_BYTES + DT_SOCK_VERDICT_MAX];
    dt_sock_write_hello(hello, address.secret, 1);
    say(fd, hello, sizeof hello);
    dt_sock_meanwhile_t meanwhile = {give_up_on_third_call, &calls};
    assert_int_equal(
        dt_sock_accept(listener, 3, dt_now_ns() + SOCK_PATIENCE_NS, meanwhile, &control),
        DTRAIN_ERR_CONFIG);
    ssize_t length = recv(fd, heard, sizeof heard, MSG_WAITALL);
    assert_true(length > DT_SOCK_ANSWER_BYTES + 8);
    size_t at = DT_SOCK_ANSWER_BYTES + 4; /* behind the answer and the message's length */
    assert_int_equal(dt_sock_read_verdict(heard + at, (size_t)length - at), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "a rank told that it fails");
    close(fd);
}

static void test_sock_connect_to_a_stranger_is_refused(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    sock_rank_t rank;
    open_listener(0, &address, &listener);
    dt_sock_listener_free(listener);
    /* Somebody else takes the name and answers every hello in the same way. */
    struct sockaddr_un name;
    socklen_t length = dt_sock_unix_address(&name, &address);
    int stranger = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(stranger, (struct sockaddr *)&name, length), 0);
    assert_int_equal(listen(stranger, 8), 0);
    rank = (sock_rank_t){.address = address,
                         .rank = 1,
                         .same_node = 1,
                         .deadline_ns = dt_now_ns() + 300 * DT_NS_PER_MS};
    pthread_create(&rank.thread, NULL, sock_rank_main, &rank);
    int fd = accept(stranger, NULL, NULL);
    uint8_t bytes[DT_SOCK_HELLO_BYTES];
    assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    say(fd, bytes, DT_SOCK_ANSWER_BYTES);
    assert_true(recv(fd, bytes, 1, 0) <= 0);
    close(fd);
    close(stranger);
    sock_join(&rank, 1);
    assert_int_equal(rank.status, DTRAIN_ERR_COMMUNICATION);
    assert_non_null(strstr(rank.error, "Unix socket @dtrain-"));
}

static void test_sock_connect_without_unix_socket_uses_tcp(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    sock_rank_t rank;
    open_listener(1, &address, &listener);
    assert_true(address.tcp_port != 0 && address.num_addresses > 0);
    memset(address.unix_name, 'x', sizeof address.unix_name); /* not even terminated */
    sock_start(&rank, &address, 1, 1, NULL);
    assert_int_equal(dt_sock_accept(listener, 2, soon(), sock_idle, &control), DTRAIN_OK);
    sock_join(&rank, 1);
    assert_int_equal(rank.status, DTRAIN_OK);
    control->ops->destroy(control);
}

/* Rank 0 has given up already, and the bootstrap learns of the same reason. */
static void test_sock_connect_that_is_told_to_stop_tries_no_more(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    int calls = 0;
    open_listener(0, &address, &listener);
    dt_sock_listener_free(listener);
    dt_sock_meanwhile_t meanwhile = {give_up_on_third_call, &calls};
    assert_int_equal(dt_sock_connect(&address, 1, 1, DT_NEVER, meanwhile, &control),
                     DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "a rank told that it fails");
}

static void test_sock_connect_with_nowhere_to_go_fails(void **state)
{
    (void)state;
    dt_sock_address_t address = {0};
    dt_control_t *control = NULL;
    assert_int_equal(dt_sock_connect(&address, 1, 0, soon(), sock_idle, &control),
                     DTRAIN_ERR_COMMUNICATION);
}

static void test_sock_peer_that_sends_garbage_is_lost_and_others_go_on(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    dt_control_message_t message;
    uint8_t hello[DT_SOCK_HELLO_BYTES];
    const uint8_t good[6] = {2, 0, 0, 0, 'o', 'k'};
    const uint8_t too_long[4] = {1, 0, 0, 4}; /* 64 MiB and one byte */
    int fds[2];
    open_listener(0, &address, &listener);
    for (int i = 0; i < 2; i++) {
        fds[i] = dial(&address);
        dt_sock_write_hello(hello, address.secret, i + 1);
        say(fds[i], hello, sizeof hello);
    }
    assert_int_equal(dt_sock_accept(listener, 3, soon(), sock_idle, &control), DTRAIN_OK);
    say(fds[0], good, sizeof good);
    say(fds[0], too_long, sizeof too_long);
    say(fds[0], good, sizeof good);
    assert_int_equal(sock_next(control, &message), DT_CONTROL_MESSAGE);
    assert_int_equal(message.peer, 1);
    assert_memory_equal(message.data, "ok", 2);
    assert_int_equal(sock_next(control, &message), DT_CONTROL_LOST);
    assert_int_equal(message.peer, 1);
    say(fds[1], good, sizeof good);
    assert_int_equal(sock_next(control, &message), DT_CONTROL_MESSAGE);
    assert_int_equal(message.peer, 2);
    control->ops->destroy(control);
    close(fds[0]);
    close(fds[1]);
}

static void test_sock_interface_that_is_unknown_is_named_with_those_there_are(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    assert_int_equal(dt_sock_listen(1, "nonesuch7", &address, &listener), DTRAIN_ERR_CONFIG);
    assert_non_null(strstr(dt_last_error(), "nonesuch7"));
    assert_non_null(strstr(dt_last_error(), "lo"));
    assert_null(listener);
}

static void test_sock_interface_that_is_named_is_the_only_one(void **state)
{
    (void)state;
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    const uint8_t loopback[4] = {127, 0, 0, 1};
    assert_int_equal(dt_sock_listen(1, "lo", &address, &listener), DTRAIN_OK);
    assert_int_equal(address.num_addresses, 1);
    assert_memory_equal(address.ipv4[0], loopback, 4);
    dt_sock_listener_free(listener);
}

static void test_sock_hub_of_many_ranks_raises_the_limit_of_descriptors(void **state)
{
    (void)state;
    struct rlimit before;
    struct rlimit after;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit low = {.rlim_cur = 256, .rlim_max = before.rlim_max};
    if (before.rlim_max < 2000)
        skip();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    dt_sock_reserve_descriptors(1000);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_true(after.rlim_cur >= 1000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void test_sock_verdict_of_any_bytes_is_an_error_or_ok(void **state)
{
    (void)state;
    uint8_t verdict[DT_SOCK_VERDICT_MAX];
    size_t length = dt_sock_write_verdict(verdict, DTRAIN_ERR_CONFIG, "what is wrong");
    assert_int_equal(dt_sock_read_verdict(verdict, length), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "what is wrong");
    length = dt_sock_write_verdict(verdict, DTRAIN_OK, "");
    assert_int_equal(dt_sock_read_verdict(verdict, length), DTRAIN_OK);
    assert_int_equal(dt_sock_read_verdict(verdict, 3), DTRAIN_ERR_COMMUNICATION);
    memset(verdict, 1, sizeof verdict);
    assert_int_equal(dt_sock_read_verdict(verdict, sizeof verdict), DTRAIN_ERR_COMMUNICATION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sock_accept_with_strangers_lets_only_ranks_in),
        cmocka_unit_test(test_sock_accept_of_a_rank_twice_closes_the_second),
        cmocka_unit_test(test_sock_accept_without_a_rank_tells_everyone_which),
        cmocka_unit_test(test_sock_accept_of_a_rank_that_leaves_fails_at_once),
        cmocka_unit_test(test_sock_accept_that_is_told_to_stop_tells_everyone_why),
        cmocka_unit_test(test_sock_connect_to_a_stranger_is_refused),
        cmocka_unit_test(test_sock_connect_without_unix_socket_uses_tcp),
        cmocka_unit_test(test_sock_connect_that_is_told_to_stop_tries_no_more),
        cmocka_unit_test(test_sock_connect_with_nowhere_to_go_fails),
        cmocka_unit_test(test_sock_peer_that_sends_garbage_is_lost_and_others_go_on),
        cmocka_unit_test(test_sock_interface_that_is_unknown_is_named_with_those_there_are),
        cmocka_unit_test(test_sock_interface_that_is_named_is_the_only_one),
        cmocka_unit_test(test_sock_hub_of_many_ranks_raises_the_limit_of_descriptors),
        cmocka_unit_test(test_sock_verdict_of_any_bytes_is_an_error_or_ok),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
