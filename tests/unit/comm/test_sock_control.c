/* Messages, sleep and loss over connections that are set up. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sock_world.h"

#define MESSAGES 60
#define WAKES 300
#define LONGEST ((size_t)2 << 20)
#define SHORT 100 /* added to a key: messages that fit into a socket's buffer */

/* A message's length and content follow from who sends it and how many it sent before. */
static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t x = a * 0x9E3779B9u ^ (b + 1u) * 0x85EBCA6Bu;
    x ^= x >> 15;
    x *= 0xC2B2AE35u;
    return x ^ x >> 13;
}

static size_t message_length(int key, int sequence)
{
    uint32_t x = mix((uint32_t)key, (uint32_t)sequence);
    return x % 16 == 0 && key < SHORT ? x % LONGEST : x % 300;
}

/* [const] after main has filled it. A message is a part of it that begins where its key says. */
static uint8_t pattern[LONGEST + 1024];

static const uint8_t *message_data(int key, int sequence)
{
    return pattern + mix((uint32_t)key, (uint32_t)sequence) % 1024;
}

static int is_message(const dt_control_message_t *message, int key, int sequence)
{
    return message->length == message_length(key, sequence) &&
           memcmp(message->data, message_data(key, sequence), message->length) == 0;
}

static dtrain_status_t send_numbered(dt_control_t *control, int to, int key, int sequence)
{
    return control->ops->send(control, to, message_data(key, sequence),
                              message_length(key, sequence));
}

static atomic_int bad;

/* Sends as rank, and counts what does not arrive as rank 0 sends it. */
static void talk(dt_control_t *control, int rank)
{
    for (int i = 0; i < MESSAGES; i++) {
        dt_control_message_t message;
        bad += send_numbered(control, 0, rank, i) != DTRAIN_OK;
        bad += sock_next(control, &message) != DT_CONTROL_MESSAGE || message.peer != 0 ||
               !is_message(&message, -rank, i);
    }
    /* Rank 0 leaves first; until then nothing more comes. */
    dt_control_message_t message;
    bad += sock_next(control, &message) != DT_CONTROL_LOST || message.peer != 0;
}

static dt_control_t *open_world(int size, int same_node, sock_rank_t *ranks,
                                void (*run)(dt_control_t *, int))
{
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    assert_int_equal(dt_sock_listen(!same_node, "", &address, &listener), DTRAIN_OK);
    for (int rank = 1; rank < size; rank++)
        sock_start(&ranks[rank - 1], &address, rank, same_node, run);
    assert_int_equal(
        dt_sock_accept(listener, size, dt_now_ns() + SOCK_PATIENCE_NS, sock_idle, &control),
        DTRAIN_OK);
    return control;
}

static void exchange(int size, int same_node)
{
    sock_rank_t ranks[SOCK_RANKS_MAX];
    int received[SOCK_RANKS_MAX] = {0};
    bad = 0;
    dt_control_t *control = open_world(size, same_node, ranks, talk);
    for (int i = 0; i < MESSAGES; i++) {
        for (int rank = 1; rank < size; rank++)
            assert_int_equal(send_numbered(control, rank, -rank, i), DTRAIN_OK);
    }
    for (int i = 0; i < MESSAGES * (size - 1); i++) {
        dt_control_message_t message;
        assert_int_equal(sock_next(control, &message), DT_CONTROL_MESSAGE);
        assert_in_range(message.peer, 1, size - 1);
        assert_true(is_message(&message, message.peer, received[message.peer]++));
    }
    control->ops->destroy(control);
    sock_join(ranks, size - 1);
    assert_int_equal(bad, 0);
}

static void test_sock_two_ranks_exchange_in_order(void **state)
{
    (void)state;
    exchange(2, 1);
}

static void test_sock_eight_ranks_exchange_in_order(void **state)
{
    (void)state;
    exchange(8, 1);
}

static void test_sock_ranks_over_tcp_exchange_in_order(void **state)
{
    (void)state;
    exchange(4, 0);
    exchange(8, 0);
}

static void say_and_leave(dt_control_t *control, int rank)
{
    for (int i = 0; i < MESSAGES; i++)
        bad += send_numbered(control, 0, SHORT + rank, i) != DTRAIN_OK;
}

/* Every message of ranks that left arrives, then their loss, once. */
static void hear_and_lose(int size, int same_node)
{
    sock_rank_t ranks[SOCK_RANKS_MAX];
    int received[SOCK_RANKS_MAX] = {0};
    int lost[SOCK_RANKS_MAX] = {0};
    bad = 0;
    dt_control_t *control = open_world(size, same_node, ranks, say_and_leave);
    for (int events = (MESSAGES + 1) * (size - 1); events > 0; events--) {
        dt_control_message_t message;
        dt_control_event_t event = sock_next(control, &message);
        assert_int_not_equal(event, DT_CONTROL_NONE);
        assert_int_equal(lost[message.peer], 0);
        if (event == DT_CONTROL_LOST) {
            assert_int_equal(received[message.peer], MESSAGES);
            lost[message.peer] = 1;
        } else {
            assert_true(is_message(&message, SHORT + message.peer, received[message.peer]++));
        }
    }
    sock_join(ranks, size - 1);
    assert_int_equal(bad, 0);
    assert_int_equal(control->ops->send(control, 1, "x", 1), DTRAIN_ERR_RANK_LOST);
    control->ops->destroy(control);
}

static void test_sock_rank_that_leaves_is_lost_after_its_messages(void **state)
{
    (void)state;
    hear_and_lose(2, 1);
    hear_and_lose(8, 1);
    hear_and_lose(3, 0);
}

static void wait_for_loss(dt_control_t *control, int rank)
{
    dt_control_message_t message;
    (void)rank;
    bad += sock_next(control, &message) != DT_CONTROL_LOST;
}

static void test_sock_lost_peer_lets_wait_sleep(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size += 6) {
        sock_rank_t ranks[SOCK_RANKS_MAX];
        dt_control_message_t message;
        dt_control_t *control = open_world(size, 1, ranks, NULL);
        sock_join(ranks, size - 1);
        for (int lost = 0; lost < size - 1;)
            lost += sock_next(control, &message) == DT_CONTROL_LOST;
        int64_t deadline = dt_now_ns() + 50 * DT_NS_PER_MS;
        int waits = 0;
        for (; dt_now_ns() < deadline; waits++) {
            control->ops->wait(control, deadline - dt_now_ns());
            assert_int_equal(control->ops->receive(control, &message), DT_CONTROL_NONE);
        }
        assert_in_range(waits, 1, 5);
        control->ops->destroy(control);
    }
}

static void test_sock_wait_times_out(void **state)
{
    (void)state;
    sock_rank_t rank;
    bad = 0;
    dt_control_t *control = open_world(2, 1, &rank, wait_for_loss);
    dt_control_message_t message;
    for (int i = 0; i < 20; i++) {
        control->ops->wait(control, DT_NS_PER_MS / 2);
        assert_int_equal(control->ops->receive(control, &message), DT_CONTROL_NONE);
    }
    control->ops->destroy(control);
    sock_join(&rank, 1);
    assert_int_equal(bad, 0);
}

static dt_control_t *shared_control;
static atomic_int rounds, rounds_seen;

/* Wakes only when the round before was seen: a wake that got lost would stop both. */
static void *wake_often(void *argument)
{
    (void)argument;
    for (int i = 1; i <= WAKES; i++) {
        rounds = i;
        shared_control->ops->wake(shared_control);
        while (rounds_seen < i)
            sched_yield();
    }
    return NULL;
}

static void test_sock_wake_from_another_thread_is_never_lost(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size += 6) {
        sock_rank_t ranks[SOCK_RANKS_MAX];
        pthread_t waker;
        bad = rounds = rounds_seen = 0;
        shared_control = open_world(size, 1, ranks, wait_for_loss);
        pthread_create(&waker, NULL, wake_often, NULL);
        while (rounds_seen < WAKES) {
            shared_control->ops->wait(shared_control, DT_NEVER);
            rounds_seen = atomic_load(&rounds);
        }
        pthread_join(waker, NULL);
        shared_control->ops->destroy(shared_control);
        sock_join(ranks, size - 1);
        assert_int_equal(bad, 0);
    }
}

static void wake_in_handler(int number)
{
    (void)number;
    shared_control->ops->wake(shared_control);
}

static void test_sock_wake_before_wait_and_in_a_signal_handler_returns(void **state)
{
    (void)state;
    sock_rank_t rank;
    shared_control = open_world(2, 1, &rank, wait_for_loss);
    shared_control->ops->wake(shared_control);
    shared_control->ops->wait(shared_control, DT_NEVER);
    struct sigaction action = {.sa_handler = wake_in_handler, .sa_flags = SA_RESTART};
    struct sigaction old;
    sigaction(SIGUSR1, &action, &old);
    raise(SIGUSR1);
    shared_control->ops->wait(shared_control, DT_NEVER);
    sigaction(SIGUSR1, &old, NULL);
    shared_control->ops->destroy(shared_control);
    sock_join(&rank, 1);
}

/* What rank 1 of test_sock_reader_that_is_late… sees: everything, however late it reads. */
static void read_late(dt_control_t *control, int rank)
{
    dt_control_message_t message;
    control->ops->wait(control, 100 * DT_NS_PER_MS);
    for (int i = 0; i < 8; i++)
        bad += sock_next(control, &message) != DT_CONTROL_MESSAGE || message.length != LONGEST ||
               memcmp(message.data, pattern + i, LONGEST) != 0;
    bad += control->ops->send(control, 0, &rank, sizeof rank) != DTRAIN_OK;
}

static void test_sock_reader_that_is_late_gets_all_that_was_queued(void **state)
{
    (void)state;
    for (int same_node = 0; same_node < 2; same_node++) {
        sock_rank_t rank;
        dt_control_message_t message;
        bad = 0;
        dt_control_t *control = open_world(2, same_node, &rank, read_late);
        for (int i = 0; i < 8; i++)
            assert_int_equal(control->ops->send(control, 1, pattern + i, LONGEST), DTRAIN_OK);
        assert_int_equal(sock_next(control, &message), DT_CONTROL_MESSAGE);
        assert_int_equal(sock_next(control, &message), DT_CONTROL_LOST);
        control->ops->destroy(control);
        sock_join(&rank, 1);
        assert_int_equal(bad, 0);
    }
}

static void test_sock_messages_to_nobody_and_too_long_are_refused(void **state)
{
    (void)state;
    sock_rank_t rank;
    dt_control_t *control = open_world(2, 1, &rank, wait_for_loss);
    assert_int_equal(control->ops->send(control, 0, "x", 1), DTRAIN_ERR_INTERNAL);
    assert_int_equal(control->ops->send(control, 2, "x", 1), DTRAIN_ERR_INTERNAL);
    assert_int_equal(control->ops->send(control, 1, "x", (size_t)DT_CONTROL_MESSAGE_MAX + 1),
                     DTRAIN_ERR_INTERNAL);
    control->ops->destroy(control);
    sock_join(&rank, 1);
}

/* A rank as a process of its own, which is killed in the middle of its work. */
static pid_t fork_rank(const dt_sock_address_t *address, int rank, int same_node)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    dt_control_t *control = NULL;
    if (dt_sock_connect(address, rank, same_node, dt_now_ns() + SOCK_PATIENCE_NS, sock_idle,
                        &control) == DTRAIN_OK &&
        control->ops->send(control, 0, &rank, sizeof rank) == DTRAIN_OK)
        raise(SIGKILL);
    _exit(1);
}

static void lose_killed(int size, int same_node)
{
    dt_sock_address_t address;
    dt_sock_listener_t *listener = NULL;
    dt_control_t *control = NULL;
    pid_t pids[SOCK_RANKS_MAX];
    assert_int_equal(dt_sock_listen(!same_node, "lo", &address, &listener), DTRAIN_OK);
    for (int rank = 1; rank < size; rank++)
        pids[rank] = fork_rank(&address, rank, same_node);
    assert_int_equal(
        dt_sock_accept(listener, size, dt_now_ns() + SOCK_PATIENCE_NS, sock_idle, &control),
        DTRAIN_OK);
    int heard = 0;
    int lost = 0;
    for (int events = 2 * (size - 1); events > 0; events--) {
        dt_control_message_t message;
        dt_control_event_t event = sock_next(control, &message);
        assert_int_not_equal(event, DT_CONTROL_NONE);
        heard += event == DT_CONTROL_MESSAGE;
        lost += event == DT_CONTROL_LOST;
    }
    assert_int_equal(heard, size - 1);
    assert_int_equal(lost, size - 1);
    control->ops->destroy(control);
    for (int rank = 1; rank < size; rank++) {
        int status = 0;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
}

static void test_sock_rank_that_is_killed_is_lost(void **state)
{
    (void)state;
    lose_killed(2, 1);
    lose_killed(8, 1);
    lose_killed(3, 0);
}

int main(void)
{
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)mix((uint32_t)i, 0);
    const struct CMUnitTest tests[] = {
        /* First, since it forks: there are no other threads yet. */
        cmocka_unit_test(test_sock_rank_that_is_killed_is_lost),
        cmocka_unit_test(test_sock_two_ranks_exchange_in_order),
        cmocka_unit_test(test_sock_eight_ranks_exchange_in_order),
        cmocka_unit_test(test_sock_ranks_over_tcp_exchange_in_order),
        cmocka_unit_test(test_sock_rank_that_leaves_is_lost_after_its_messages),
        cmocka_unit_test(test_sock_lost_peer_lets_wait_sleep),
        cmocka_unit_test(test_sock_wait_times_out),
        cmocka_unit_test(test_sock_wake_from_another_thread_is_never_lost),
        cmocka_unit_test(test_sock_wake_before_wait_and_in_a_signal_handler_returns),
        cmocka_unit_test(test_sock_reader_that_is_late_gets_all_that_was_queued),
        cmocka_unit_test(test_sock_messages_to_nobody_and_too_long_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
