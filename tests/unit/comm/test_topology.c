#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/topology.h"

static int memory_is_out;

/* The names that the linker's --wrap wants. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_dt_calloc(size_t count, size_t bytes);
void *__wrap_dt_calloc(size_t count, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier) */

void *__wrap_dt_calloc(size_t count, size_t bytes)
{
    return memory_is_out ? NULL : __real_dt_calloc(count, bytes);
}

static dt_peer_t *make_peers(const int *nodes, int size)
{
    dt_peer_t *peers = dt_calloc((size_t)size, sizeof *peers);
    assert_non_null(peers);
    for (int i = 0; i < size; i++) {
        peers[i].node = nodes[i];
        peers[i].pid = 100 + i;
        strcpy(peers[i].host, "gpu7");
    }
    return peers;
}

static dt_topology_t make(const int *nodes, int rank, int size)
{
    dt_topology_t topology;
    assert_int_equal(dt_topology_make(&topology, rank, size, make_peers(nodes, size)), DTRAIN_OK);
    assert_int_equal(topology.rank, rank);
    assert_int_equal(topology.size, size);
    return topology;
}

/* What every rank sees, as rows: local rank, local size, cross rank, cross size. */
static void check(const int *nodes, int size, const int (*expected)[4], const int *numbered,
                  int num_nodes, int is_homogeneous)
{
    for (int rank = 0; rank < size; rank++) {
        dt_topology_t topology = make(nodes, rank, size);
        assert_int_equal(topology.local_rank, expected[rank][0]);
        assert_int_equal(topology.local_size, expected[rank][1]);
        assert_int_equal(topology.cross_rank, expected[rank][2]);
        assert_int_equal(topology.cross_size, expected[rank][3]);
        assert_int_equal(topology.num_nodes, num_nodes);
        assert_int_equal(topology.is_homogeneous, is_homogeneous);
        for (int i = 0; i < size; i++) {
            assert_int_equal(topology.peers[i].node, numbered[i]);
            assert_int_equal(topology.peers[i].local_rank, expected[i][0]);
            assert_int_equal(topology.peers[i].pid, 100 + i);
        }
        dt_topology_free(&topology);
        assert_null(topology.peers);
    }
}

static void test_topology_one_rank_is_alone(void **state)
{
    (void)state;
    static const int nodes[] = {4711};
    static const int expected[][4] = {{0, 1, 0, 1}};
    static const int numbered[] = {0};
    check(nodes, 1, expected, numbered, 1, 1);
}

static void test_topology_one_node_has_all_ranks_local(void **state)
{
    (void)state;
    static const int nodes[] = {-3, -3, -3};
    static const int expected[][4] = {{0, 3, 0, 1}, {1, 3, 0, 1}, {2, 3, 0, 1}};
    static const int numbered[] = {0, 0, 0};
    check(nodes, 3, expected, numbered, 1, 1);
}

static void test_topology_even_nodes_in_blocks(void **state)
{
    (void)state;
    static const int nodes[] = {9, 9, 2, 2, 5, 5};
    static const int expected[][4] = {{0, 2, 0, 3}, {1, 2, 0, 3}, {0, 2, 1, 3},
                                      {1, 2, 1, 3}, {0, 2, 2, 3}, {1, 2, 2, 3}};
    static const int numbered[] = {0, 0, 1, 1, 2, 2};
    check(nodes, 6, expected, numbered, 3, 1);
}

static void test_topology_interleaved_nodes_are_numbered_by_lowest_rank(void **state)
{
    (void)state;
    static const int nodes[] = {7, 1, 7, 1};
    static const int expected[][4] = {{0, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 2}, {1, 2, 1, 2}};
    static const int numbered[] = {0, 1, 0, 1};
    check(nodes, 4, expected, numbered, 2, 1);
}

static void test_topology_uneven_nodes_are_not_homogeneous(void **state)
{
    (void)state;
    static const int nodes[] = {3, 8, 8, 8, 3, 1};
    static const int expected[][4] = {{0, 2, 0, 3}, {0, 3, 1, 3}, {1, 3, 1, 2},
                                      {2, 3, 0, 1}, {1, 2, 0, 2}, {0, 1, 2, 3}};
    static const int numbered[] = {0, 1, 1, 1, 0, 2};
    check(nodes, 6, expected, numbered, 3, 0);
}

static void test_topology_impossible_rank_is_an_error(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0};
    static const int worlds[][2] = {{2, 2}, {-1, 2}, {0, 0}};
    for (int i = 0; i < 3; i++) {
        dt_topology_t topology = {.size = 4711};
        assert_int_equal(
            dt_topology_make(&topology, worlds[i][0], worlds[i][1], make_peers(nodes, 2)),
            DTRAIN_ERR_INTERNAL);
        assert_int_equal(topology.size, 4711);
    }
}

static void test_topology_without_memory_is_an_error(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0};
    dt_topology_t topology = {.size = 4711};
    dt_peer_t *peers = make_peers(nodes, 2);
    memory_is_out = 1;
    dtrain_status_t status = dt_topology_make(&topology, 0, 2, peers);
    memory_is_out = 0;
    assert_int_equal(status, DTRAIN_ERR_OUT_OF_MEMORY);
    assert_int_equal(topology.size, 4711);
}

static void test_topology_describe_names_rank_host_and_process(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0};
    char text[128];
    char small[8];
    dt_topology_t topology = make(nodes, 0, 2);
    assert_string_equal(dt_topology_describe(&topology, 1, text, sizeof text),
                        "rank 1 on host gpu7 (pid 101)");
    assert_string_equal(dt_topology_describe(&topology, 2, text, sizeof text), "rank 2");
    assert_string_equal(dt_topology_describe(&topology, 1, small, sizeof small), "rank 1 ");
    memset(topology.peers[1].host, 'h', DT_HOST_MAX);
    assert_int_equal(strlen(dt_topology_describe(&topology, 1, text, sizeof text)),
                     strlen("rank 1 on host  (pid 101)") + DT_HOST_MAX);
    dt_topology_free(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topology_one_rank_is_alone),
        cmocka_unit_test(test_topology_one_node_has_all_ranks_local),
        cmocka_unit_test(test_topology_even_nodes_in_blocks),
        cmocka_unit_test(test_topology_interleaved_nodes_are_numbered_by_lowest_rank),
        cmocka_unit_test(test_topology_uneven_nodes_are_not_homogeneous),
        cmocka_unit_test(test_topology_impossible_rank_is_an_error),
        cmocka_unit_test(test_topology_without_memory_is_an_error),
        cmocka_unit_test(test_topology_describe_names_rank_host_and_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
