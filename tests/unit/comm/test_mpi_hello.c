/* What ranks conclude from each other's hellos: the same on all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "comm/mpi/mpi_hello.h"

#define SIZE 6

static const dt_config_t config = {.fusion_threshold = 1};

/* Hellos of SIZE ranks on this host. */
static void write_hellos(dt_mpi_hello_t *hellos)
{
    for (int rank = 0; rank < SIZE; rank++) {
        dt_mpi_hello_write(&hellos[rank], &config, DTRAIN_OK);
        hellos[rank].is.pid = 100 + rank;
    }
}

static void test_mpi_hello_of_equal_ranks_is_fine(void **state)
{
    (void)state;
    dt_mpi_hello_t hellos[SIZE];
    write_hellos(hellos);
    for (int rank = 0; rank < SIZE; rank++)
        assert_int_equal(dt_mpi_hello_check(hellos, rank, SIZE), DTRAIN_OK);
    assert_true(dt_mpi_hello_same_node(&hellos[0], &hellos[1]));
    assert_true(dt_mpi_hello_shares_sockets(&hellos[0], &hellos[1]));
    assert_int_equal(hellos[1].is.config.fusion_threshold, 1);
}

static void test_mpi_hello_of_another_version_is_named_on_every_rank(void **state)
{
    (void)state;
    dt_mpi_hello_t hellos[SIZE];
    write_hellos(hellos);
    hellos[4].is.library_version = 10203;
    for (int rank = 0; rank < SIZE; rank++) {
        assert_int_equal(dt_mpi_hello_check(hellos, rank, SIZE), DTRAIN_ERR_UNSUPPORTED);
        assert_non_null(strstr(dt_last_error(), "rank 4 runs 1.2.3"));
    }
    write_hellos(hellos);
    memset(&hellos[2], 'x', sizeof hellos[2]); /* not even a hello of ours */
    assert_int_equal(dt_mpi_hello_check(hellos, 0, SIZE), DTRAIN_ERR_UNSUPPORTED);
    assert_non_null(strstr(dt_last_error(), "rank 2"));
}

static void test_mpi_hello_of_a_rank_that_failed_tells_the_others_why(void **state)
{
    (void)state;
    dt_mpi_hello_t hellos[SIZE];
    write_hellos(hellos);
    dt_fail(DTRAIN_ERR_CONFIG, "a bad value");
    dt_mpi_hello_write(&hellos[3], &config, DTRAIN_ERR_CONFIG);
    assert_int_equal(dt_mpi_hello_check(hellos, 0, SIZE), DTRAIN_ERR_CONFIG);
    assert_non_null(strstr(dt_last_error(), "rank 3 on host "));
    assert_non_null(strstr(dt_last_error(), "a bad value"));
    assert_int_equal(dt_mpi_hello_check(hellos, 3, SIZE), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "a bad value");
}

static void test_mpi_hello_with_texts_that_do_not_end_is_read_within_bounds(void **state)
{
    (void)state;
    dt_mpi_hello_t hellos[SIZE];
    write_hellos(hellos);
    memset(hellos[1].is.host, 'h', sizeof hellos[1].is.host);
    memset(hellos[1].is.boot_id, 'b', sizeof hellos[1].is.boot_id);
    memset(hellos[1].is.error, 'e', sizeof hellos[1].is.error);
    hellos[1].is.status = 12345; /* no status of ours */
    assert_int_equal(dt_mpi_hello_check(hellos, 0, SIZE), DTRAIN_ERR_COMMUNICATION);
    assert_false(dt_mpi_hello_same_node(&hellos[0], &hellos[1]));
}

static void test_mpi_hello_topology_tells_hosts_and_boots_apart(void **state)
{
    (void)state;
    dt_mpi_hello_t hellos[SIZE];
    dt_topology_t topology = {0};
    const int nodes[SIZE] = {0, 1, 0, 1, 2, 0};
    write_hellos(hellos);
    for (int rank = 0; rank < SIZE; rank++)
        strcpy(hellos[rank].is.host, nodes[rank] == 1 ? "other" : "same");
    strcpy(hellos[4].is.boot_id, "another boot");
    assert_int_equal(dt_mpi_hello_topology(hellos, 5, SIZE, &topology), DTRAIN_OK);
    assert_int_equal(topology.num_nodes, 3);
    for (int rank = 0; rank < SIZE; rank++) {
        assert_int_equal(topology.peers[rank].node, nodes[rank]);
        assert_int_equal(topology.peers[rank].pid, 100 + rank);
    }
    assert_int_equal(topology.local_rank, 2);
    assert_int_equal(topology.local_size, 3);
    dt_topology_free(&topology);
}

static void test_mpi_hello_from_another_network_namespace_shares_no_sockets(void **state)
{
    (void)state;
    dt_mpi_hello_t hellos[SIZE];
    write_hellos(hellos);
    hellos[1].is.network_namespace++;
    assert_true(dt_mpi_hello_same_node(&hellos[0], &hellos[1]));
    assert_false(dt_mpi_hello_shares_sockets(&hellos[0], &hellos[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi_hello_of_equal_ranks_is_fine),
        cmocka_unit_test(test_mpi_hello_of_another_version_is_named_on_every_rank),
        cmocka_unit_test(test_mpi_hello_of_a_rank_that_failed_tells_the_others_why),
        cmocka_unit_test(test_mpi_hello_with_texts_that_do_not_end_is_read_within_bounds),
        cmocka_unit_test(test_mpi_hello_topology_tells_hosts_and_boots_apart),
        cmocka_unit_test(test_mpi_hello_from_another_network_namespace_shares_no_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
