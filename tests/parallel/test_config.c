/* Settings from the environment to the running world. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int launched_rank(void)
{
    const char *value = getenv("OMPI_COMM_WORLD_RANK");
    value = value ? value : getenv("PMI_RANK");
    return value ? (int)strtol(value, NULL, 10) : 0;
}

/* ---- On all ranks -------------------------------------------------------------------------------
 */

static void check_accepted(const char *variable, const char *value)
{
    setenv(variable, value, 1);
    if (CHECK_OK(dtrain_init(NULL))) {
        check_works("accepted");
        CHECK_OK(dtrain_shutdown());
    }
    unsetenv(variable);
}

static void check_refused(const char *variable, const char *value)
{
    setenv(variable, value, 1);
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_CONFIG);
    CHECK_ERROR_HAS(variable);
    CHECK_ERROR_HAS(value);
    CHECK(dtrain_is_initialized() == 0);
    unsetenv(variable);
}

static void check_values(void)
{
    check_accepted("DTRAIN_FUSION_THRESHOLD", "64MB");
    check_accepted("DTRAIN_FUSION_THRESHOLD", "1k");
    check_accepted("DTRAIN_FUSION_THRESHOLD", "off");
    check_accepted("DTRAIN_FUSION_TENSOR_LIMIT", "1");
    check_accepted("DTRAIN_TIMEOUT_MS", "90s");
    check_accepted("DTRAIN_SPIN_US", "off");
    check_accepted("DTRAIN_STALL_WARNING_MS", "off");
    check_refused("DTRAIN_FUSION_THRESHOLD", "abc");
    check_refused("DTRAIN_FUSION_THRESHOLD", "-1");
    check_refused("DTRAIN_FUSION_THRESHOLD", "64XB");
    check_refused("DTRAIN_FUSION_THRESHOLD", "99999999999999999999");
    check_refused("DTRAIN_TIMEOUT_MS", "soon");
    check_refused("DTRAIN_LOG_LEVEL", "loud");
    check_refused("DTRAIN_BACKEND", "pigeon");
}

/* ---- From the program
 * ------------------------------------------------------------------------------ */

static void check_struct(void)
{
    dtrain_config_t config;
    CHECK_STATUS(dtrain_config_init(&config, 3), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    CHECK_OK(dtrain_config_set(&config, "fusion_threshold", "2MB"));
    CHECK(config.fusion_threshold == 2 << 20);
    CHECK_STATUS(dtrain_config_set(&config, "fusion_treshold", "2MB"), DTRAIN_ERR_CONFIG);
    CHECK_ERROR_HAS("fusion_threshold"); /* the nearest */
    CHECK_STATUS(dtrain_config_set(&config, "timeout_ms", "abc"), DTRAIN_ERR_CONFIG);
    CHECK_ERROR_HAS("timeout_ms");
    CHECK_OK(dtrain_init(&config));
    check_works("struct");
    CHECK_OK(dtrain_shutdown());
    config.timeout_ms = -5;
    CHECK_STATUS(dtrain_init(&config), DTRAIN_ERR_CONFIG);
    CHECK_ERROR_HAS("timeout_ms");
    config.timeout_ms = 0;
    config.struct_size = 1;
    CHECK(dtrain_init(&config) < 0);
    CHECK(dtrain_is_initialized() == 0);
}

/* The program's deadline of a millisecond would be over at once; the environment's wins. */
static void check_in_force(void)
{
    float value = 1;
    dtrain_handle_t handle = 0;
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.timeout_ms = 1;
    setenv("DTRAIN_TIMEOUT_MS", "40s", 1);
    CHECK_OK(dtrain_init(&config));
    unsetenv("DTRAIN_TIMEOUT_MS");
    if (dtrain_rank() == 0) {
        CHECK_OK(check_submit("in force", &value, 1, 0, &handle));
        if (dtrain_size() > 1)
            CHECK_STATUS(dtrain_wait_for(handle, 50), DTRAIN_IN_PROGRESS);
    }
    CHECK_OK(dtrain_barrier()); /* now the others submit it too */
    if (dtrain_rank() != 0)
        CHECK_OK(check_submit("in force", &value, 1, 0, &handle));
    CHECK_OK(check_finish(handle));
    CHECK_OK(dtrain_shutdown());
    CHECK_OK(dtrain_init(&config));
    if (dtrain_size() > 1 && dtrain_rank() == 0) {
        CHECK_OK(check_submit("not in force", &value, 1, 0, &handle));
        CHECK_STATUS(check_finish(handle), DTRAIN_ERR_TIMEOUT);
    }
    dtrain_options_t patient = {.struct_size = sizeof patient, .timeout_ms = 20000};
    CHECK_OK(dtrain_barrier_async(&patient, &handle)); /* nobody leaves before */
    CHECK_OK(check_finish(handle));
    CHECK_OK(dtrain_shutdown());
}

/* ---- On one rank
 * ------------------------------------------------------------------------------------- */

/* A rank with a bad setting must not leave the others waiting for it. */
static void check_one_rank(int who, int size)
{
    if (launched_rank() == who)
        setenv("DTRAIN_FUSION_THRESHOLD", "abc", 1);
    CHECK(check_init(0) < 0);
    if (launched_rank() == who) {
        CHECK_ERROR_HAS("DTRAIN_FUSION_THRESHOLD");
        unsetenv("DTRAIN_FUSION_THRESHOLD");
    } else if (size > 1) {
        char rank[32];
        snprintf(rank, sizeof rank, "rank %d", who);
        CHECK_ERROR_HAS(rank);
        CHECK_ERROR_HAS("DTRAIN_FUSION_THRESHOLD");
    }
    CHECK(dtrain_is_initialized() == 0);
    if (CHECK_OK(check_init(0))) {
        check_works("next");
        CHECK_OK(dtrain_shutdown());
    }
}

/* Settings that all must share come from rank 0. */
static void check_shared(void)
{
    check_log_start();
    if (launched_rank() == 1)
        setenv("DTRAIN_FUSION_THRESHOLD", "1KB", 1);
    setenv("DTRAIN_FUSION_TRESHOLD", "1KB", 1);
    CHECK_OK(check_init(0));
    if (launched_rank() == 1)
        CHECK(check_log_has("DTRAIN_FUSION_THRESHOLD") || check_log_has("fusion_threshold"));
    CHECK(check_log_has("DTRAIN_FUSION_TRESHOLD")); /* is no setting */
    for (int i = 0; i < 30; i++)
        check_works("shared");
    CHECK_OK(dtrain_shutdown());
    unsetenv("DTRAIN_FUSION_THRESHOLD");
    unsetenv("DTRAIN_FUSION_TRESHOLD");
}

int main(void)
{
    check_begin("test_config", 50);
    CHECK_OK(check_init(0));
    int size = dtrain_size();
    CHECK_OK(dtrain_shutdown());
    check_values();
    check_struct();
    check_in_force();
    check_one_rank(0, size);
    check_one_rank(size - 1, size);
    check_shared();
    return check_end();
}
