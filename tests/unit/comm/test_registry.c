#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/mpi_world.h"
#include "comm/registry.h"

/* The surroundings that a case pretends: a launcher, and an MPI with a world of some size. */
static struct {
    int launched;
    int mpi_is_active;
    int mpi_size;
    dtrain_status_t mpi_status;
    int mpi_joined;
    int mpi_left; /* 1 after a clean leave */
} pretended;

/* The names that the linker's --wrap wants. NOLINTBEGIN(bugprone-reserved-identifier) */
int __wrap_dt_config_launcher_size(const char **variable);
int __wrap_dt_mpi_is_active(void);
dtrain_status_t __wrap_dt_mpi_join(const void *comm, dt_config_t *config, dt_world_t *world);
/* NOLINTEND(bugprone-reserved-identifier) */

int __wrap_dt_config_launcher_size(const char **variable)
{
    *variable = pretended.launched > 0 ? "PMI_SIZE" : NULL;
    return pretended.launched;
}

int __wrap_dt_mpi_is_active(void)
{
    return pretended.mpi_is_active;
}

static void leave(void *context, int clean)
{
    (void)context;
    pretended.mpi_left = clean;
}

dtrain_status_t __wrap_dt_mpi_join(const void *comm, dt_config_t *config, dt_world_t *world)
{
    (void)config;
    if (comm || pretended.mpi_status != DTRAIN_OK)
        return dt_fail(pretended.mpi_status, "MPI says no");
    dt_peer_t *peers = dt_calloc((size_t)pretended.mpi_size, sizeof *peers);
    world->leave = leave;
    pretended.mpi_joined = 1;
    return dt_topology_make(&world->topology, 0, pretended.mpi_size, peers);
}

static int setup(void **state)
{
    (void)state;
    memset(&pretended, 0, sizeof pretended);
    return 0;
}

static dtrain_status_t join(const char *backend, dt_world_t *world)
{
    dt_config_t config = {0};
    snprintf(config.backend, sizeof config.backend, "%s", backend);
    *world = (dt_world_t){0};
    return dt_registry_join(&config, world);
}

static void check_joined(const char *backend, int size, int over_mpi)
{
    dt_world_t world;
    assert_int_equal(join(backend, &world), DTRAIN_OK);
    assert_int_equal(world.topology.size, size);
    assert_int_equal(pretended.mpi_joined, over_mpi);
    dt_world_close(&world, 1);
    assert_int_equal(pretended.mpi_left, over_mpi);
    assert_null(world.topology.peers);
    assert_null(world.backend);
}

static void test_registry_auto_without_launcher_is_a_world_of_one(void **state)
{
    (void)state;
    check_joined("auto", 1, 0);
}

static void test_registry_auto_with_launcher_takes_mpi(void **state)
{
    (void)state;
    pretended.launched = pretended.mpi_size = 4;
    check_joined("auto", 4, 1);
}

static void test_registry_auto_with_launcher_of_one_takes_mpi(void **state)
{
    (void)state;
    pretended.launched = pretended.mpi_size = 1;
    check_joined("auto", 1, 1);
}

static void test_registry_auto_with_active_mpi_takes_mpi(void **state)
{
    (void)state;
    pretended.mpi_is_active = 1;
    pretended.mpi_size = 2;
    check_joined("auto", 2, 1);
}

static void test_registry_self_ignores_the_launcher(void **state)
{
    (void)state;
    pretended.launched = pretended.mpi_size = 4;
    pretended.mpi_is_active = 1;
    check_joined("self", 1, 0);
}

static void test_registry_mpi_needs_no_launcher(void **state)
{
    (void)state;
    pretended.mpi_size = 1;
    check_joined("mpi", 1, 1);
}

static void test_registry_launcher_of_another_mpi_is_unsupported(void **state)
{
    (void)state;
    dt_world_t world;
    pretended.launched = 3;
    pretended.mpi_size = 1;
    assert_int_equal(join("auto", &world), DTRAIN_ERR_UNSUPPORTED);
    assert_non_null(strstr(dt_last_error(), "PMI_SIZE=3"));
    assert_non_null(strstr(dt_last_error(), "another MPI"));
    assert_int_equal(pretended.mpi_left, 1);
    assert_null(world.topology.peers);
}

static void test_registry_error_of_mpi_is_passed_on(void **state)
{
    (void)state;
    dt_world_t world;
    pretended.launched = 3;
    pretended.mpi_status = DTRAIN_ERR_TIMEOUT;
    assert_int_equal(join("auto", &world), DTRAIN_ERR_TIMEOUT);
    assert_string_equal(dt_last_error(), "MPI says no");
    assert_int_equal(world.topology.size, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_registry_auto_without_launcher_is_a_world_of_one, setup),
        cmocka_unit_test_setup(test_registry_auto_with_launcher_takes_mpi, setup),
        cmocka_unit_test_setup(test_registry_auto_with_launcher_of_one_takes_mpi, setup),
        cmocka_unit_test_setup(test_registry_auto_with_active_mpi_takes_mpi, setup),
        cmocka_unit_test_setup(test_registry_self_ignores_the_launcher, setup),
        cmocka_unit_test_setup(test_registry_mpi_needs_no_launcher, setup),
        cmocka_unit_test_setup(test_registry_launcher_of_another_mpi_is_unsupported, setup),
        cmocka_unit_test_setup(test_registry_error_of_mpi_is_passed_on, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
