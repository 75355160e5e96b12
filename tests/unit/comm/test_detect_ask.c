/*
 * Questions among the detectors of four ranks on two nodes, driven by hand: 0 and 2 lead nodes and
 * are connected to each other, 1 and 3 are their members.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/memory.h"
#include "comm/detect/detect_state.h"

#define SIZE 4
#define LINES_MAX 16

typedef struct rank {
    struct world *world;
    int rank;
    dt_topology_t topology;
    dt_detector_t *detector;
    _Atomic uint32_t number; /* of its last question */
    /* What it was answered: "rank line", or "rank." at the end. */
    char heard[LINES_MAX][64];
    int num_heard;
} rank_t;

typedef struct world {
    rank_t ranks[SIZE];
    int64_t now_ns;
} world_t;

static int64_t now(void *context)
{
    return ((world_t *)context)->now_ns;
}

static void answer(void *context, int rank, int what, dt_detector_emit_fn_t emit,
                   void *emit_context)
{
    const rank_t *self = context;
    char line[64];
    snprintf(line, sizeof line, "%d by %d", what, self->rank);
    emit(emit_context, line);
    if (rank == 3)
        emit(emit_context, "more");
}

static void answered(void *context, int rank, uint32_t number, const char *line)
{
    rank_t *self = context;
    assert_int_equal(number, atomic_load(&self->number));
    assert_true(self->num_heard < LINES_MAX);
    snprintf(self->heard[self->num_heard++], sizeof self->heard[0], "%d%s%s", rank,
             line ? " " : ".", line ? line : "");
}

static void make_topology(rank_t *self)
{
    dt_peer_t *peers = dt_calloc(SIZE, sizeof *peers);
    assert_non_null(peers);
    for (int rank = 0; rank < SIZE; rank++)
        peers[rank].node = rank / 2;
    assert_int_equal(dt_topology_make(&self->topology, self->rank, SIZE, peers), DTRAIN_OK);
}

static const int edges[][2] = {{0, 1}, {0, 2}, {2, 3}};

static int open_world(void **state, int sees_node)
{
    static world_t world;
    static dt_detect_link_t *links[SIZE];
    int counts[SIZE] = {0};
    memset(&world, 0, sizeof world);
    world.now_ns = 1000 * DT_NS_PER_S;
    for (int rank = 0; rank < SIZE; rank++)
        links[rank] = dt_calloc(2, sizeof *links[rank]);
    for (int i = 0; i < 3; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return -1;
        for (int end = 0; end < 2; end++) {
            int self = edges[i][end];
            dt_detect_link_open(&links[self][counts[self]++], pair[end], edges[i][1 - end],
                                DT_NS_PER_S, world.now_ns);
        }
    }
    for (int rank = 0; rank < SIZE; rank++) {
        rank_t *self = &world.ranks[rank];
        dt_detector_settings_t settings = {
            .heartbeat_ns = DT_NS_PER_S, .timeout_ns = DT_NS_PER_S, .clock = {now, &world}};
        self->world = &world;
        self->rank = rank;
        make_topology(self);
        assert_int_equal(dt_detector_make(&self->topology, &settings, links[rank], counts[rank],
                                          NULL, 0, &self->detector),
                         DTRAIN_OK);
        self->detector->hooks = (dt_detector_hooks_t){
            .answer = answer, .sees_node = sees_node, .answered = answered, .context = self};
    }
    *state = &world;
    return 0;
}

static int open_seeing(void **state)
{
    return open_world(state, 1);
}

static int open_blind(void **state)
{
    return open_world(state, 0);
}

static int close_world(void **state)
{
    world_t *world = *state;
    for (int rank = 0; rank < SIZE; rank++) {
        dt_detector_destroy(world->ranks[rank].detector);
        dt_topology_free(&world->ranks[rank].topology);
    }
    return 0;
}

/* Until all that was sent has arrived. */
static void run(world_t *world)
{
    for (int turn = 0; turn < 10; turn++) {
        for (int rank = 0; rank < SIZE; rank++)
            dt_detector_poll(world->ranks[rank].detector, 0);
    }
}

static void ask(world_t *world, int rank, int what)
{
    rank_t *self = &world->ranks[rank];
    self->num_heard = 0;
    dt_detector_ask(self->detector, what, &self->number);
    run(world);
}

static int has_heard(const rank_t *self, const char *line)
{
    int count = 0;
    for (int i = 0; i < self->num_heard; i++)
        count += strcmp(self->heard[i], line) == 0;
    return count;
}

static void test_detect_ask_leaders_answer_for_their_nodes(void **state)
{
    world_t *world = *state;
    const rank_t *asker = &world->ranks[1];
    ask(world, 1, 1);
    assert_int_equal(has_heard(asker, "2 1 by 2"), 1);
    assert_int_equal(has_heard(asker, "2."), 1);
    assert_int_equal(has_heard(asker, "3 1 by 2"), 1);
    assert_int_equal(has_heard(asker, "3 more"), 1);
    assert_int_equal(has_heard(asker, "3."), 1);
    assert_int_equal(asker->num_heard, 5); /* nothing of its own node, which it sees itself */
    for (int rank = 0; rank < SIZE; rank++)
        assert_true(rank == 1 || world->ranks[rank].num_heard == 0);
}

static void test_detect_ask_ranks_that_nobody_sees_answer_themselves(void **state)
{
    world_t *world = *state;
    const rank_t *asker = &world->ranks[3];
    ask(world, 3, 0);
    assert_int_equal(has_heard(asker, "0 0 by 0"), 1);
    assert_int_equal(has_heard(asker, "1 0 by 1"), 1);
    assert_int_equal(has_heard(asker, "2 0 by 2"), 1);
    assert_int_equal(asker->num_heard, 6);
}

static void test_detect_ask_second_question_is_answered_too(void **state)
{
    world_t *world = *state;
    ask(world, 0, 0);
    assert_int_equal(world->ranks[0].num_heard, 5);
    ask(world, 0, 1);
    assert_int_equal(has_heard(&world->ranks[0], "2 1 by 2"), 1);
    assert_int_equal(world->ranks[0].num_heard, 5);
}

static void test_detect_ask_of_several_at_a_time_each_gets_its_own(void **state)
{
    world_t *world = *state;
    for (int rank = 0; rank < SIZE; rank++)
        dt_detector_ask(world->ranks[rank].detector, 0, &world->ranks[rank].number);
    run(world);
    for (int rank = 0; rank < SIZE; rank++)
        assert_int_equal(world->ranks[rank].num_heard, rank < 2 ? 5 : 4);
}

static void test_detect_ask_while_a_node_is_cut_off_others_answer(void **state)
{
    world_t *world = *state;
    /* Rank 3 goes without a word. */
    dt_detector_destroy(world->ranks[3].detector);
    world->ranks[3].detector = NULL;
    for (int turn = 0; turn < 4; turn++) {
        for (int rank = 0; rank < 3; rank++)
            dt_detector_poll(world->ranks[rank].detector, 0);
    }
    dt_detector_ask(world->ranks[1].detector, 1, &world->ranks[1].number);
    for (int turn = 0; turn < 10; turn++) {
        for (int rank = 0; rank < 3; rank++)
            dt_detector_poll(world->ranks[rank].detector, 0);
    }
    /* Its leader reads off its board what it was doing. */
    assert_int_equal(has_heard(&world->ranks[1], "3 1 by 2"), 1);
    assert_int_equal(world->ranks[1].num_heard, 5);
}

static void test_detect_ask_answer_to_a_question_nobody_asked_is_dropped(void **state)
{
    world_t *world = *state;
    dt_detect_message_t stray = {.type = DT_DETECT_ANSWER,
                                 .rank = 3,
                                 .asker = 3,
                                 .number = 1,
                                 .text = "x",
                                 .text_length = 1};
    dt_detect_hear_answer(world->ranks[0].detector, &stray);
    run(world);
    assert_int_equal(world->ranks[3].num_heard, 0);
}

#define SEEING(name) cmocka_unit_test_setup_teardown(name, open_seeing, close_world)
#define BLIND(name) cmocka_unit_test_setup_teardown(name, open_blind, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEEING(test_detect_ask_leaders_answer_for_their_nodes),
        BLIND(test_detect_ask_ranks_that_nobody_sees_answer_themselves),
        SEEING(test_detect_ask_second_question_is_answered_too),
        SEEING(test_detect_ask_of_several_at_a_time_each_gets_its_own),
        SEEING(test_detect_ask_while_a_node_is_cut_off_others_answer),
        SEEING(test_detect_ask_answer_to_a_question_nobody_asked_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
