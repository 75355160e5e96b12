/* Detectors of several ranks on several nodes, each rank a thread of this process: over loopback
 * TCP between "nodes", over Unix sockets within one. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/detect/detect_state.h"
#include "comm/sock/sock_listener.h"

#define RANKS_MAX 16
#define PATIENCE_NS (20 * DT_NS_PER_S)

typedef struct member {
    pthread_t thread;
    int rank, size;
    const dt_detect_place_t *places;
    dt_topology_t topology;
    dt_sock_listener_t *listener;
    dt_detector_t *detector;
    int64_t deadline_ns;
    dtrain_status_t status;
    char error[DT_ERROR_MAX];
} member_t;

typedef struct cluster {
    int size;
    dt_detect_place_t places[RANKS_MAX];
    member_t members[RANKS_MAX];
} cluster_t;

static void make_topology(member_t *member, const int *nodes)
{
    dt_peer_t *peers = dt_calloc((size_t)member->size, sizeof *peers);
    for (int rank = 0; rank < member->size; rank++) {
        peers[rank].node = nodes[rank];
        peers[rank].pid = 100 + rank;
        snprintf(peers[rank].host, sizeof peers[rank].host, "node%d", nodes[rank]);
    }
    assert_int_equal(dt_topology_make(&member->topology, member->rank, member->size, peers),
                     DTRAIN_OK);
}

/* nodes[rank] is where a rank is. Their processes are this one, so none is watched. */
static void prepare(cluster_t *cluster, int size, const int *nodes)
{
    memset(cluster, 0, sizeof *cluster);
    cluster->size = size;
    for (int rank = 0; rank < size; rank++) {
        member_t *member = &cluster->members[rank];
        *member = (member_t){.rank = rank, .size = size, .places = cluster->places};
        member->deadline_ns = dt_now_ns() + PATIENCE_NS;
        make_topology(member, nodes);
        assert_int_equal(dt_detect_place_make(&member->topology, 1, "", &cluster->places[rank],
                                              &member->listener),
                         DTRAIN_OK);
        cluster->places[rank].process.pid = 0;
    }
}

static void *join_main(void *argument)
{
    member_t *member = argument;
    const dt_detector_settings_t settings = {
        .heartbeat_ns = 20 * DT_NS_PER_MS, .timeout_ns = DT_NS_PER_S, .clock = dt_clock_system()};
    const dt_sock_meanwhile_t meanwhile = {0};
    member->status = dt_detector_join(&member->topology, member->places, member->listener,
                                      &settings, member->deadline_ns, meanwhile, &member->detector);
    snprintf(member->error, sizeof member->error, "%s", dt_last_error());
    return NULL;
}

static void join(cluster_t *cluster)
{
    for (int i = 0; i < cluster->size; i++)
        pthread_create(&cluster->members[i].thread, NULL, join_main, &cluster->members[i]);
    for (int i = 0; i < cluster->size; i++)
        pthread_join(cluster->members[i].thread, NULL);
}

static void start(cluster_t *cluster)
{
    const dt_detector_hooks_t hooks = {0};
    for (int rank = 0; rank < cluster->size; rank++)
        assert_int_equal(dt_detector_start(cluster->members[rank].detector, &hooks), DTRAIN_OK);
}

static void make(cluster_t *cluster, int size, const int *nodes)
{
    prepare(cluster, size, nodes);
    join(cluster);
    for (int i = 0; i < size; i++) {
        if (cluster->members[i].status != DTRAIN_OK)
            fail_msg("rank %d: %s", i, cluster->members[i].error);
    }
    start(cluster);
}

static void destroy(cluster_t *cluster, int rank)
{
    dt_detector_destroy(cluster->members[rank].detector);
    cluster->members[rank].detector = NULL;
}

static void clean_up(cluster_t *cluster)
{
    for (int rank = 0; rank < cluster->size; rank++) {
        if (cluster->members[rank].detector)
            dt_detector_leave(cluster->members[rank].detector, 1);
    }
    for (int rank = 0; rank < cluster->size; rank++) {
        destroy(cluster, rank);
        dt_topology_free(&cluster->members[rank].topology);
    }
}

/* Everyone but `except` gets news with the status and the text in it. */
static void assert_all_hear(cluster_t *cluster, int except, dtrain_status_t status,
                            const char *part)
{
    int64_t limit = dt_now_ns() + PATIENCE_NS;
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    for (int rank = 0; rank < cluster->size; rank++) {
        char text[DT_ERROR_MAX] = "";
        if (rank == except)
            continue;
        while (!dt_detector_has_news(cluster->members[rank].detector) && dt_now_ns() < limit)
            nanosleep(&pause, NULL);
        assert_int_equal(dt_detector_take_news(cluster->members[rank].detector, text, sizeof text),
                         status);
        assert_non_null(strstr(text, part));
    }
}

/* Each of the ranks in turn goes, in worlds of its own. */
static void lose_each(int size, const int *nodes)
{
    for (int lost = 0; lost < size; lost++) {
        cluster_t cluster;
        char part[64];
        make(&cluster, size, nodes);
        destroy(&cluster, lost);
        snprintf(part, sizeof part, "rank %d on host node%d (pid %d) is lost: it died", lost,
                 nodes[lost], 100 + lost);
        assert_all_hear(&cluster, lost, DTRAIN_ERR_RANK_LOST, part);
        clean_up(&cluster);
    }
}

static void test_detect_join_one_node_any_loss_is_heard_by_all(void **state)
{
    (void)state;
    const int nodes[] = {0, 0, 0, 0};
    lose_each(4, nodes);
}

static void test_detect_join_two_nodes_any_loss_is_heard_by_all(void **state)
{
    (void)state;
    const int nodes[] = {0, 0, 1, 1, 1};
    lose_each(5, nodes);
}

static void test_detect_join_ranks_dealt_out_any_loss_is_heard_by_all(void **state)
{
    (void)state;
    const int nodes[] = {0, 1, 2, 0, 1, 2};
    lose_each(6, nodes);
}

static void test_detect_join_eleven_nodes_any_loss_is_heard_by_all(void **state)
{
    (void)state;
    const int nodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    lose_each(11, nodes);
}

static void test_detect_join_abort_is_heard_by_all(void **state)
{
    (void)state;
    const int nodes[] = {0, 0, 1, 1, 2, 2};
    cluster_t cluster;
    make(&cluster, 6, nodes);
    dt_detector_tell(cluster.members[3].detector, 3, DTRAIN_ERR_ABORTED, "rank 3 gives up");
    assert_all_hear(&cluster, 3, DTRAIN_ERR_ABORTED, "rank 3 gives up");
    clean_up(&cluster);
}

/* Who left so before a loss is not what the others hear of. */
static void test_detect_join_leaving_is_no_loss(void **state)
{
    (void)state;
    const int nodes[] = {0, 0, 1, 1};
    cluster_t cluster;
    make(&cluster, 4, nodes);
    dt_detector_leave(cluster.members[3].detector, 0);
    destroy(&cluster, 3);
    dt_detector_tell(cluster.members[1].detector, 1, DTRAIN_ERR_ABORTED, "rank 1 gives up");
    char text[DT_ERROR_MAX];
    int64_t limit = dt_now_ns() + PATIENCE_NS;
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    while (!dt_detector_has_news(cluster.members[2].detector) && dt_now_ns() < limit)
        nanosleep(&pause, NULL);
    assert_int_equal(dt_detector_take_news(cluster.members[2].detector, text, sizeof text),
                     DTRAIN_ERR_ABORTED);
    clean_up(&cluster);
}

static int connect_to(const dt_detect_place_t *place)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons(place->address.tcp_port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return fd;
}

/* Strangers come first and say: nothing, half a hello, or what is none. */
static void test_detect_join_strangers_are_turned_away(void **state)
{
    (void)state;
    static const char garbage[4096] = "GET / HTTP/1.1\r\n\r\n";
    const int nodes[] = {0, 0, 1};
    cluster_t cluster;
    int strangers[3];
    prepare(&cluster, 3, nodes);
    for (int i = 0; i < 3; i++)
        strangers[i] = connect_to(&cluster.places[0]);
    assert_int_equal(send(strangers[1], "dtrains", 7, 0), 7);
    assert_int_equal(send(strangers[2], garbage, sizeof garbage, 0), sizeof garbage);
    join(&cluster);
    for (int i = 0; i < 3; i++) {
        char byte;
        assert_int_equal(cluster.members[i].status, DTRAIN_OK);
        assert_true(recv(strangers[i], &byte, 1, 0) <= 0); /* closed */
        close(strangers[i]);
    }
    start(&cluster);
    destroy(&cluster, 2);
    assert_all_hear(&cluster, 2, DTRAIN_ERR_RANK_LOST, "rank 2 on host node1");
    clean_up(&cluster);
}

/* One that has joined looks at what has come while its leader still waits for another one. */
static void test_detect_join_look_does_not_disturb_those_who_still_join(void **state)
{
    static const int nodes[] = {0, 0, 0};
    (void)state;
    cluster_t cluster;
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    prepare(&cluster, 3, nodes);
    for (int i = 0; i < 2; i++)
        pthread_create(&cluster.members[i].thread, NULL, join_main, &cluster.members[i]);
    pthread_join(cluster.members[1].thread, NULL);
    assert_int_equal(cluster.members[1].status, DTRAIN_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(dt_detector_look(cluster.members[1].detector), 0);
        nanosleep(&pause, NULL);
    }
    pthread_create(&cluster.members[2].thread, NULL, join_main, &cluster.members[2]);
    pthread_join(cluster.members[2].thread, NULL);
    pthread_join(cluster.members[0].thread, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cluster.members[i].status, DTRAIN_OK);
    start(&cluster);
    clean_up(&cluster);
}

static void test_detect_join_missing_rank_is_named(void **state)
{
    (void)state;
    const int nodes[] = {0, 0, 1, 1};
    cluster_t cluster;
    prepare(&cluster, 4, nodes);
    cluster.members[2].deadline_ns = dt_now_ns() + DT_NS_PER_S;
    pthread_create(&cluster.members[2].thread, NULL, join_main, &cluster.members[2]);
    pthread_join(cluster.members[2].thread, NULL);
    assert_int_equal(cluster.members[2].status, DTRAIN_ERR_TIMEOUT);
    assert_non_null(strstr(cluster.members[2].error, "rank 2 cannot connect to rank 0"));
    cluster.members[0].deadline_ns = dt_now_ns() + DT_NS_PER_S;
    pthread_create(&cluster.members[0].thread, NULL, join_main, &cluster.members[0]);
    pthread_join(cluster.members[0].thread, NULL);
    assert_int_equal(cluster.members[0].status, DTRAIN_ERR_TIMEOUT);
    assert_string_equal(cluster.members[0].error,
                        "rank 0 timed out waiting for ranks 1, 2 to connect");
    clean_up(&cluster);
}

static int list(int node, int num_nodes, char *text, size_t cap)
{
    int neighbours[DT_DETECT_NEIGHBOURS_MAX];
    int count = dt_detect_neighbours(node, num_nodes, neighbours);
    size_t length = 0;
    for (int i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, cap - length, "%d ", neighbours[i]);
    text[length] = '\0';
    return count;
}

static void test_detect_neighbours_are_mutual_and_few(void **state)
{
    (void)state;
    char text[256];
    assert_int_equal(list(0, 1, text, sizeof text), 0);
    list(1, 2, text, sizeof text);
    assert_string_equal(text, "0 ");
    list(0, 3, text, sizeof text);
    assert_string_equal(text, "1 2 ");
    list(5, 16, text, sizeof text);
    assert_string_equal(text, "1 3 4 6 7 9 13 ");
    assert_true(list(77, 100000, text, sizeof text) <= 34);
    for (int num_nodes = 2; num_nodes < 40; num_nodes++) {
        for (int node = 0; node < num_nodes; node++) {
            int mine[DT_DETECT_NEIGHBOURS_MAX], theirs[DT_DETECT_NEIGHBOURS_MAX];
            int count = dt_detect_neighbours(node, num_nodes, mine);
            for (int i = 0; i < count; i++) {
                int found = 0, others = dt_detect_neighbours(mine[i], num_nodes, theirs);
                for (int j = 0; j < others; j++)
                    found |= theirs[j] == node;
                assert_true(found && mine[i] != node);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect_join_one_node_any_loss_is_heard_by_all),
        cmocka_unit_test(test_detect_join_two_nodes_any_loss_is_heard_by_all),
        cmocka_unit_test(test_detect_join_ranks_dealt_out_any_loss_is_heard_by_all),
        cmocka_unit_test(test_detect_join_eleven_nodes_any_loss_is_heard_by_all),
        cmocka_unit_test(test_detect_join_abort_is_heard_by_all),
        cmocka_unit_test(test_detect_join_leaving_is_no_loss),
        cmocka_unit_test(test_detect_join_strangers_are_turned_away),
        cmocka_unit_test(test_detect_join_look_does_not_disturb_those_who_still_join),
        cmocka_unit_test(test_detect_join_missing_rank_is_named),
        cmocka_unit_test(test_detect_neighbours_are_mutual_and_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
