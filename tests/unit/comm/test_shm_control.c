/* test_shm_control.c - control messages through shared memory, over the loopback control. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/loopback/loopback.h"
#include "comm/shm/shm_control.h"

#define RANKS_MAX 4
#define HEAP_BYTES (8 << 20)

/* Ranks 0 … local-1 of the loopback share memory, the others do not. */
typedef struct control_world {
    dt_loopback_t *loopback;
    dt_world_t worlds[RANKS_MAX];
    dt_control_t *controls[RANKS_MAX];
    int size;
} control_world_t;

static void make(control_world_t *world, int size, int local)
{
    static const int ranks[RANKS_MAX] = {0, 1, 2, 3};
    dt_shm_node_t *nodes[RANKS_MAX];
    world->size = size;
    world->loopback = dt_loopback_create(size, 1);
    assert_int_equal(dt_shm_local_group(local, HEAP_BYTES, nodes), DTRAIN_OK);
    for (int rank = 0; rank < size; rank++) {
        assert_int_equal(dt_loopback_join(world->loopback, rank, &world->worlds[rank]), DTRAIN_OK);
        dt_control_t *base = world->worlds[rank].control;
        world->controls[rank] = base;
        if (rank < local) {
            assert_int_equal(
                dt_shm_control_create(nodes[rank], ranks, size, base, &world->controls[rank]),
                DTRAIN_OK);
            dt_shm_node_free(nodes[rank]);
        }
    }
}

static void end_rank(control_world_t *world, int rank)
{
    world->controls[rank]->ops->destroy(world->controls[rank]);
    world->worlds[rank].control = NULL;
    dt_world_close(&world->worlds[rank], 0);
}

static void end(control_world_t *world, int from)
{
    for (int rank = from; rank < world->size; rank++)
        end_rank(world, rank);
    dt_loopback_free(world->loopback);
}

static void send_text(dt_control_t *control, int peer, const char *text)
{
    assert_int_equal(control->ops->send(control, peer, text, strlen(text) + 1), DTRAIN_OK);
}

/* The next event within a second. */
static dt_control_event_t next_event(dt_control_t *control, dt_control_message_t *message)
{
    int64_t deadline_ns = dt_now_ns() + DT_NS_PER_S;
    while (dt_now_ns() < deadline_ns) {
        dt_control_event_t event = control->ops->receive(control, message);
        if (event != DT_CONTROL_NONE)
            return event;
        control->ops->wait(control, 10 * DT_NS_PER_MS);
    }
    return DT_CONTROL_NONE;
}

static void expect_text(dt_control_t *control, int peer, const char *text)
{
    dt_control_message_t message;
    assert_int_equal(next_event(control, &message), DT_CONTROL_MESSAGE);
    assert_int_equal(message.peer, peer);
    assert_string_equal((const char *)message.data, text);
}

static void test_shm_control_messages_reach_ranks_in_the_node_and_outside(void **state)
{
    (void)state;
    control_world_t world;
    make(&world, 4, 3);
    for (int rank = 1; rank < 4; rank++) {
        send_text(world.controls[rank], 0, "up");
        send_text(world.controls[0], rank, "down 1");
        send_text(world.controls[0], rank, "down 2");
    }
    int from[4] = {0};
    for (int i = 0; i < 3; i++) {
        dt_control_message_t message;
        assert_int_equal(next_event(world.controls[0], &message), DT_CONTROL_MESSAGE);
        assert_string_equal((const char *)message.data, "up");
        from[message.peer]++;
    }
    for (int rank = 1; rank < 4; rank++) {
        assert_int_equal(from[rank], 1);
        expect_text(world.controls[rank], 0, "down 1");
        expect_text(world.controls[rank], 0, "down 2");
    }
    end(&world, 0);
}

static void *send_later(void *argument)
{
    dt_control_t *control = argument;
    struct timespec pause = {.tv_nsec = 20 * DT_NS_PER_MS};
    nanosleep(&pause, NULL);
    control->ops->send(control, 0, "wake", 5);
    return NULL;
}

static void test_shm_control_sleeper_is_woken_by_a_message(void **state)
{
    (void)state;
    control_world_t world;
    make(&world, 2, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, send_later, world.controls[1]);
    dt_control_message_t message;
    int64_t start_ns = dt_now_ns();
    dt_control_event_t event = DT_CONTROL_NONE;
    while (event == DT_CONTROL_NONE && dt_now_ns() - start_ns < 20 * DT_NS_PER_S) {
        world.controls[0]->ops->wait(world.controls[0], DT_NEVER);
        event = world.controls[0]->ops->receive(world.controls[0], &message);
    }
    pthread_join(thread, NULL);
    assert_int_equal(event, DT_CONTROL_MESSAGE);
    assert_string_equal((const char *)message.data, "wake");
    end(&world, 0);
}

static void test_shm_control_wake_and_timeout_end_a_wait(void **state)
{
    (void)state;
    control_world_t world;
    make(&world, 2, 2);
    world.controls[0]->ops->wake(world.controls[0]);
    world.controls[0]->ops->wait(world.controls[0], DT_NEVER);
    world.controls[0]->ops->wait(world.controls[0], DT_NS_PER_MS);
    end(&world, 0);
}

static void test_shm_control_loss_is_told_after_the_last_message(void **state)
{
    (void)state;
    control_world_t world;
    make(&world, 3, 3);
    send_text(world.controls[1], 0, "last");
    dt_loopback_kill(world.loopback, 1);
    expect_text(world.controls[0], 1, "last");
    dt_control_message_t message;
    assert_int_equal(next_event(world.controls[0], &message), DT_CONTROL_LOST);
    assert_int_equal(message.peer, 1);
    assert_int_equal(world.controls[0]->ops->send(world.controls[0], 1, "x", 1),
                     DTRAIN_ERR_RANK_LOST);
    send_text(world.controls[2], 0, "still here");
    expect_text(world.controls[0], 2, "still here");
    end(&world, 0);
}

static void test_shm_control_long_messages_pass_a_full_ring(void **state)
{
    (void)state;
    control_world_t world;
    make(&world, 2, 2);
    size_t length = 300000;
    char *text = malloc(length);
    memset(text, 'x', length);
    dt_control_t *root = world.controls[0], *other = world.controls[1];
    assert_int_equal(other->ops->send(other, 0, text, length), DTRAIN_OK);
    send_text(other, 0, "behind it");
    dt_control_message_t message = {0};
    dt_control_event_t event = DT_CONTROL_NONE;
    for (int turn = 0; turn < 1000 && event == DT_CONTROL_NONE; turn++) {
        dt_control_message_t none;
        assert_int_equal(other->ops->receive(other, &none), DT_CONTROL_NONE); /* flushes */
        event = root->ops->receive(root, &message);
    }
    assert_int_equal(event, DT_CONTROL_MESSAGE);
    assert_int_equal(message.length, length);
    assert_memory_equal(message.data, text, length);
    dt_control_message_t none;
    other->ops->receive(other, &none);
    expect_text(root, 1, "behind it");
    free(text);
    end(&world, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_control_messages_reach_ranks_in_the_node_and_outside),
        cmocka_unit_test(test_shm_control_sleeper_is_woken_by_a_message),
        cmocka_unit_test(test_shm_control_wake_and_timeout_end_a_wait),
        cmocka_unit_test(test_shm_control_loss_is_told_after_the_last_message),
        cmocka_unit_test(test_shm_control_long_messages_pass_a_full_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
