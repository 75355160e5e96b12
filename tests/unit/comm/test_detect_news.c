/*
 * One detector whose connections lead to the test, with a clock of the test's, driven by hand: rank
 * 0 of a node of three, and the leader of another node as rank 3.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/detect/detect_state.h"

#define SIZE 5
#define LINKS 3
#define BEAT_NS (500 * DT_NS_PER_MS)

typedef struct fixture {
    dt_topology_t topology;
    dt_detector_t *detector;
    int64_t now_ns;
    int ends[LINKS]; /* the test's ends of the connections to ranks 1, 2 and 3 */
    pid_t child;     /* the process of rank 2; 0: none */
    int notified;
} fixture_t;

static int64_t now(void *context)
{
    return ((fixture_t *)context)->now_ns;
}

static void notify(void *context)
{
    ((fixture_t *)context)->notified++;
}

static void describe(void *context, int rank, char *text, size_t cap)
{
    (void)context;
    snprintf(text, cap, "in barrier number %d", rank);
}

static void make_topology(fixture_t *fixture)
{
    dt_peer_t *peers = dt_calloc(SIZE, sizeof *peers);
    for (int rank = 0; rank < SIZE; rank++) {
        peers[rank].node = rank / 3;
        peers[rank].pid = 100 + rank;
        snprintf(peers[rank].host, sizeof peers[rank].host, "node%d", rank / 3);
    }
    assert_int_equal(dt_topology_make(&fixture->topology, 0, SIZE, peers), DTRAIN_OK);
}

static void make(fixture_t *fixture, dt_detect_watch_t watch)
{
    dt_detect_link_t *links = dt_calloc(LINKS, sizeof *links);
    dt_detect_watch_t *watches = dt_calloc(1, sizeof *watches);
    dt_detector_settings_t settings = {
        .heartbeat_ns = BEAT_NS, .timeout_ns = 1400 * DT_NS_PER_MS, .clock = {now, fixture}};
    fixture->now_ns = 1000 * BEAT_NS;
    make_topology(fixture);
    for (int i = 0; i < LINKS; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        fixture->ends[i] = pair[0];
        dt_detect_link_open(&links[i], pair[1], i + 1, settings.timeout_ns, fixture->now_ns);
    }
    *watches = watch;
    assert_int_equal(dt_detector_make(&fixture->topology, &settings, links, LINKS, watches, 1,
                                      &fixture->detector),
                     DTRAIN_OK);
    fixture->detector->hooks =
        (dt_detector_hooks_t){.notify = notify, .describe = describe, .context = fixture};
}

static int set_up(void **state)
{
    static fixture_t fixture;
    memset(&fixture, 0, sizeof fixture);
    make(&fixture, (dt_detect_watch_t){.fd = -1, .rank = 2});
    *state = &fixture;
    return 0;
}

/* Rank 2's process is a child, and a child of its own holds its connection open. */
static int set_up_process(void **state)
{
    static fixture_t fixture;
    int ready[2];
    char byte;
    memset(&fixture, 0, sizeof fixture);
    assert_int_equal(pipe(ready), 0);
    fixture.child = fork();
    if (fixture.child == 0) {
        close(ready[0]);
        ssize_t written = write(ready[1], "", 1);
        for (;;)
            pause();
        _exit(written != 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    dt_detect_process_t self, process;
    dt_detect_process_self(&self);
    process = self;
    process.pid = fixture.child;
    process.start_time = 0;
    dt_detect_watch_t watch = {.rank = 2};
    assert_int_equal(dt_detect_process_watch(&self, &process, &watch.fd), DTRAIN_OK);
    assert_true(watch.fd >= 0);
    make(&fixture, watch);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    fixture_t *fixture = *state;
    if (fixture->child > 0) {
        kill(fixture->child, SIGKILL);
        waitpid(fixture->child, NULL, 0);
    }
    dt_detector_destroy(fixture->detector);
    dt_topology_free(&fixture->topology);
    for (int i = 0; i < LINKS; i++)
        close(fixture->ends[i]);
    return 0;
}

/* ---- The test's ends ----------------------------------------------------------------------- */

static void say(fixture_t *fixture, int link, const dt_detect_message_t *message)
{
    uint8_t frame[DT_DETECT_FRAME_MAX];
    size_t length = dt_detect_encode(message, frame);
    assert_int_equal(send(fixture->ends[link], frame, length, 0), length);
}

static void say_end(fixture_t *fixture, int link, int rank, uint32_t epoch, const char *text)
{
    dt_detect_message_t message = {.type = DT_DETECT_END, .epoch = epoch, .rank = rank};
    message.status = DTRAIN_ERR_RANK_LOST;
    message.text = text;
    message.text_length = strlen(text);
    say(fixture, link, &message);
}

/* How many messages of a type have come to an end; the last of them in *last. */
static int count(fixture_t *fixture, int link, dt_detect_type_t type, dt_detect_message_t *last)
{
    static uint8_t bytes[1 << 16];
    ssize_t length = recv(fixture->ends[link], bytes, sizeof bytes, MSG_DONTWAIT);
    int found = 0;
    for (ssize_t at = 0; at < length;) {
        dt_detect_message_t message;
        int used = dt_detect_decode(bytes + at, (size_t)(length - at), SIZE, &message);
        assert_true(used > 0);
        at += used;
        if (message.type == type) {
            found++;
            if (last)
                *last = message;
        }
    }
    return found;
}

static void pass(fixture_t *fixture, int64_t ns)
{
    fixture->now_ns += ns;
    dt_detector_poll(fixture->detector, 0);
}

static void assert_lost(fixture_t *fixture, const char *wanted)
{
    char text[DT_ERROR_MAX];
    assert_int_equal(fixture->notified, 1);
    assert_int_equal(dt_detector_has_news(fixture->detector), 1);
    assert_int_equal(dt_detector_take_news(fixture->detector, text, sizeof text),
                     DTRAIN_ERR_RANK_LOST);
    assert_string_equal(text, wanted);
    assert_int_equal(dt_detector_has_news(fixture->detector), 0);
}

static void assert_no_news(fixture_t *fixture)
{
    char text[DT_ERROR_MAX];
    assert_int_equal(fixture->notified, 0);
    assert_int_equal(dt_detector_take_news(fixture->detector, text, sizeof text), DTRAIN_OK);
}

/* ---- Losses -------------------------------------------------------------------------------- */

static void test_detect_member_that_closes_is_lost_and_told_to_the_others(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_message_t told;
    shutdown(fixture->ends[0], SHUT_RDWR);
    pass(fixture, 0);
    const char *text = "rank 1 on host node0 (pid 101) is lost: it died, or left without "
                       "dtrain_shutdown; it was last in barrier number 1";
    assert_lost(fixture, text);
    for (int link = 1; link < LINKS; link++) {
        assert_int_equal(count(fixture, link, DT_DETECT_END, &told), 1);
        assert_int_equal(told.rank, 1);
        assert_int_equal(told.status, DTRAIN_ERR_RANK_LOST);
        assert_memory_equal(told.text, text, told.text_length);
    }
}

static void test_detect_other_nodes_leader_is_not_described_from_here(void **state)
{
    fixture_t *fixture = *state;
    shutdown(fixture->ends[2], SHUT_RDWR);
    pass(fixture, 0);
    assert_lost(fixture,
                "rank 3 on host node1 (pid 103) is lost: it died, or left without dtrain_shutdown");
}

static void test_detect_broken_network_names_the_whole_node(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_link_t *link = &fixture->detector->links[2];
    link->error = ETIMEDOUT;
    dt_detect_link_ended(fixture->detector, link);
    assert_lost(fixture, "rank 3 on host node1 (pid 103) is lost with all others of its node, rank "
                         "4: no answer over the network for 1.4 s (Connection timed out)");
}

static void test_detect_garbage_and_half_a_frame_lose_the_peer_alone(void **state)
{
    fixture_t *fixture = *state;
    assert_int_equal(send(fixture->ends[1], "\x03\x00\xff\xff!!!!!!!!!!!", 15, 0), 15);
    pass(fixture, 0);
    assert_lost(fixture, "rank 2 on host node0 (pid 102) is lost: its failure detector sent bytes "
                         "that are no message; it was last in barrier number 2");
    assert_int_equal(count(fixture, 0, DT_DETECT_END, NULL), 1);
}

static void test_detect_frame_in_pieces_is_understood(void **state)
{
    fixture_t *fixture = *state;
    uint8_t frame[DT_DETECT_FRAME_MAX];
    dt_detect_message_t end = {.type = DT_DETECT_END, .rank = 4, .status = DTRAIN_ERR_RANK_LOST};
    end.text = "gone";
    end.text_length = 4;
    size_t length = dt_detect_encode(&end, frame);
    for (size_t i = 0; i < length; i++) {
        assert_no_news(fixture);
        assert_int_equal(send(fixture->ends[2], frame + i, 1, 0), 1);
        pass(fixture, 0);
    }
    assert_lost(fixture, "gone");
}

static void test_detect_second_loss_is_told_on_but_the_first_stands(void **state)
{
    fixture_t *fixture = *state;
    say_end(fixture, 2, 4, 0, "rank 4 is lost");
    pass(fixture, 0);
    say_end(fixture, 2, 3, 0, "rank 3 is lost");
    pass(fixture, 0);
    assert_lost(fixture, "rank 4 is lost");
    assert_int_equal(count(fixture, 0, DT_DETECT_END, NULL), 2);
}

static void test_detect_same_loss_by_two_ways_is_told_on_once(void **state)
{
    fixture_t *fixture = *state;
    say_end(fixture, 2, 4, 0, "rank 4 is lost");
    pass(fixture, 0);
    say_end(fixture, 1, 4, 0, "rank 4 is lost");
    pass(fixture, 0);
    assert_int_equal(fixture->notified, 1);
    assert_int_equal(count(fixture, 0, DT_DETECT_END, NULL), 1);
    assert_int_equal(count(fixture, 1, DT_DETECT_END, NULL), 1);
    assert_int_equal(count(fixture, 2, DT_DETECT_END, NULL), 0);
}

static void test_detect_end_of_another_epoch_is_dropped(void **state)
{
    fixture_t *fixture = *state;
    say_end(fixture, 2, 4, 1, "of another world");
    pass(fixture, 0);
    assert_no_news(fixture);
    assert_int_equal(count(fixture, 0, DT_DETECT_END, NULL), 0);
}

static void test_detect_process_that_is_killed_is_lost_though_its_connection_is_open(void **state)
{
    fixture_t *fixture = *state;
    kill(fixture->child, SIGKILL);
    siginfo_t info; /* leaves the zombie, as a launcher that is slow to look */
    assert_int_equal(waitid(P_PID, (id_t)fixture->child, &info, WEXITED | WNOWAIT), 0);
    pass(fixture, 0);
    assert_lost(fixture, "rank 2 on host node0 (pid 102) is lost: it died, or left without "
                         "dtrain_shutdown; it was last in barrier number 2");
}

static void test_detect_stopped_process_is_not_lost(void **state)
{
    fixture_t *fixture = *state;
    siginfo_t info;
    kill(fixture->child, SIGSTOP);
    assert_int_equal(waitid(P_PID, (id_t)fixture->child, &info, WSTOPPED | WNOWAIT), 0);
    for (int i = 0; i < 20; i++)
        pass(fixture, BEAT_NS);
    assert_no_news(fixture);
}

/* ---- Leaving ------------------------------------------------------------------------------- */

static void test_detect_rank_that_says_so_may_leave(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_message_t leaving = {.type = DT_DETECT_LEAVING, .rank = 1};
    say(fixture, 0, &leaving);
    shutdown(fixture->ends[0], SHUT_RDWR);
    pass(fixture, 0);
    assert_no_news(fixture);
    shutdown(fixture->ends[1], SHUT_RDWR); /* this one has said nothing */
    pass(fixture, 0);
    assert_int_equal(fixture->notified, 1);
}

static void test_detect_when_all_is_over_no_end_is_a_loss(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_message_t leaving = {.type = DT_DETECT_LEAVING, .rank = 4, .is_over = 1}, told;
    say(fixture, 2, &leaving);
    pass(fixture, 0);
    for (int link = 0; link < LINKS; link++)
        shutdown(fixture->ends[link], SHUT_WR);
    pass(fixture, 0);
    assert_no_news(fixture);
    for (int link = 0; link < 2; link++) {
        assert_int_equal(count(fixture, link, DT_DETECT_LEAVING, &told), 1);
        assert_int_equal(told.is_over, 1);
    }
}

static void test_detect_own_end_is_told_and_is_no_news(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_message_t told;
    dt_detector_tell(fixture->detector, 0, DTRAIN_ERR_ABORTED, "rank 0 called dtrain_abort");
    pass(fixture, 0);
    assert_no_news(fixture);
    for (int link = 0; link < LINKS; link++) {
        assert_int_equal(count(fixture, link, DT_DETECT_END, &told), 1);
        assert_int_equal(told.rank, 0);
        assert_int_equal(told.status, DTRAIN_ERR_ABORTED);
    }
    shutdown(fixture->ends[0], SHUT_RDWR);
    pass(fixture, 0);
    assert_no_news(fixture);
}

/* ---- Silence ------------------------------------------------------------------------------- */

static void assert_silent(fixture_t *fixture, const char *wanted)
{
    char text[DT_ERROR_MAX];
    size_t length = dt_detector_describe_silent(fixture->detector, text, sizeof text);
    assert_string_equal(text, wanted);
    assert_int_equal(length, strlen(wanted));
}

/* Time passes, and those of the ranks 1 to 3 that are marked beat. */
static void pass_with_beats(fixture_t *fixture, const int *beats, int times)
{
    const dt_detect_message_t beat = {.type = DT_DETECT_BEAT};
    for (int i = 0; i < times; i++) {
        for (int link = 0; link < LINKS; link++) {
            if (beats[link])
                say(fixture, link, &beat);
        }
        pass(fixture, BEAT_NS);
    }
}

static void test_detect_beats_leave_each_heartbeat(void **state)
{
    fixture_t *fixture = *state;
    pass(fixture, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(count(fixture, 0, DT_DETECT_BEAT, NULL), 1);
        pass(fixture, BEAT_NS / 2);
        assert_int_equal(count(fixture, 0, DT_DETECT_BEAT, NULL), 0);
        pass(fixture, BEAT_NS / 2);
    }
}

static void test_detect_beat_is_answered_when_one_is_due_soon(void **state)
{
    fixture_t *fixture = *state;
    const dt_detect_message_t beat = {.type = DT_DETECT_BEAT};
    pass(fixture, 0);
    count(fixture, 1, DT_DETECT_BEAT, NULL);
    say(fixture, 0, &beat);
    pass(fixture, BEAT_NS / 4);
    assert_int_equal(count(fixture, 1, DT_DETECT_BEAT, NULL), 0);
    say(fixture, 0, &beat);
    pass(fixture, BEAT_NS / 2);
    assert_int_equal(count(fixture, 1, DT_DETECT_BEAT, NULL), 1);
    pass(fixture, BEAT_NS);
    assert_int_equal(count(fixture, 1, DT_DETECT_BEAT, NULL), 0); /* the other goes first */
    pass(fixture, BEAT_NS / 4);
    assert_int_equal(count(fixture, 1, DT_DETECT_BEAT, NULL), 1);
}

static void test_detect_silent_rank_is_named_until_it_is_back(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_message_t told;
    const int others[LINKS] = {0, 1, 1}, all[LINKS] = {1, 1, 1};
    pass_with_beats(fixture, all, 3);
    assert_silent(fixture, "");
    pass_with_beats(fixture, others, 2);
    assert_silent(fixture, "");
    pass_with_beats(fixture, others, 4);
    assert_silent(fixture, "rank 1 on host node0 (pid 101) has been stopped or stuck for 3.0 s");
    assert_int_equal(count(fixture, 2, DT_DETECT_SILENCE, &told), 1);
    assert_int_equal(told.rank, 1);
    assert_int_equal(told.version, 1);
    assert_int_equal(told.age_ms, 1500);
    pass_with_beats(fixture, all, 1);
    assert_silent(fixture, "");
    assert_int_equal(count(fixture, 2, DT_DETECT_SILENCE, &told), 1);
    assert_int_equal(told.version, 2);
    assert_no_news(fixture);
}

static void test_detect_silence_is_heard_from_others_and_told_on_once(void **state)
{
    fixture_t *fixture = *state;
    dt_detect_message_t silence = {
        .type = DT_DETECT_SILENCE, .rank = 4, .version = 5, .age_ms = 1100};
    say(fixture, 2, &silence);
    pass(fixture, 0);
    silence.version = 4;
    say(fixture, 0, &silence); /* late news, of another way */
    pass(fixture, DT_NS_PER_S);
    assert_silent(fixture, "rank 4 on host node1 (pid 104) has been stopped or stuck for 2.1 s");
    assert_int_equal(count(fixture, 0, DT_DETECT_SILENCE, NULL), 1);
    assert_int_equal(count(fixture, 1, DT_DETECT_SILENCE, NULL), 1);
    assert_int_equal(count(fixture, 2, DT_DETECT_SILENCE, NULL), 0);
}

static void test_detect_who_was_stopped_itself_takes_nobody_for_silent(void **state)
{
    fixture_t *fixture = *state;
    const dt_detect_message_t beat = {.type = DT_DETECT_BEAT};
    for (int link = 0; link < LINKS; link++) {
        for (int i = 0; i < 20; i++)
            say(fixture, link, &beat);
    }
    pass(fixture, 20 * BEAT_NS);
    assert_silent(fixture, "");
}

static void test_detect_stopped_peer_gets_few_beats_and_is_no_loss(void **state)
{
    fixture_t *fixture = *state;
    const int others[LINKS] = {0, 1, 1};
    for (int i = 0; i < 30; i++) {
        pass_with_beats(fixture, others, 10);
        for (int link = 1; link < LINKS; link++)
            count(fixture, link, DT_DETECT_BEAT, NULL);
    }
    assert_in_range(count(fixture, 0, DT_DETECT_BEAT, NULL), 10, 100);
    const int all[LINKS] = {1, 1, 1};
    pass_with_beats(fixture, all, 1);
    assert_int_equal(count(fixture, 0, DT_DETECT_BEAT, NULL), 1); /* it goes on */
    assert_no_news(fixture);
}

/* ---- Watching processes -----------------------------------------------------------------------
 */

static void test_detect_process_that_has_another_start_time_has_ended(void **state)
{
    (void)state;
    dt_detect_process_t self, other;
    int fd;
    dt_detect_process_self(&self);
    assert_true(self.start_time > 0);
    other = self;
    other.start_time++;
    assert_int_equal(dt_detect_process_watch(&self, &other, &fd), DTRAIN_ERR_COMMUNICATION);
}

static void test_detect_process_of_another_namespace_is_not_watched(void **state)
{
    (void)state;
    dt_detect_process_t self, other;
    int fd = 0;
    dt_detect_process_self(&self);
    other = self;
    other.pid_namespace++;
    assert_int_equal(dt_detect_process_watch(&self, &other, &fd), DTRAIN_OK);
    assert_int_equal(fd, -1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define PROCESS_CASE(name) cmocka_unit_test_setup_teardown(name, set_up_process, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_detect_member_that_closes_is_lost_and_told_to_the_others),
        CASE(test_detect_other_nodes_leader_is_not_described_from_here),
        CASE(test_detect_broken_network_names_the_whole_node),
        CASE(test_detect_garbage_and_half_a_frame_lose_the_peer_alone),
        CASE(test_detect_frame_in_pieces_is_understood),
        CASE(test_detect_second_loss_is_told_on_but_the_first_stands),
        CASE(test_detect_same_loss_by_two_ways_is_told_on_once),
        CASE(test_detect_end_of_another_epoch_is_dropped),
        PROCESS_CASE(test_detect_process_that_is_killed_is_lost_though_its_connection_is_open),
        PROCESS_CASE(test_detect_stopped_process_is_not_lost),
        CASE(test_detect_rank_that_says_so_may_leave),
        CASE(test_detect_when_all_is_over_no_end_is_a_loss),
        CASE(test_detect_own_end_is_told_and_is_no_news),
        CASE(test_detect_beats_leave_each_heartbeat),
        CASE(test_detect_beat_is_answered_when_one_is_due_soon),
        CASE(test_detect_silent_rank_is_named_until_it_is_back),
        CASE(test_detect_silence_is_heard_from_others_and_told_on_once),
        CASE(test_detect_who_was_stopped_itself_takes_nobody_for_silent),
        CASE(test_detect_stopped_peer_gets_few_beats_and_is_no_loss),
        cmocka_unit_test(test_detect_process_that_has_another_start_time_has_ended),
        cmocka_unit_test(test_detect_process_of_another_namespace_is_not_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
