#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/config_table.h"
#include "base/log.h"
#include "base/status.h"

#define MIB (INT64_C(1) << 20)

typedef struct warnings {
    int count;
    char text[4][512];
} warnings_t;

static warnings_t warnings;

static void take_warning(dtrain_log_level_t level, const char *line, void *user)
{
    warnings_t *taken = user;
    if (level == DTRAIN_LOG_WARN && taken->count < 4)
        snprintf(taken->text[taken->count], sizeof taken->text[0], "%s", line);
    taken->count++;
}

static int setup(void **state)
{
    (void)state;
    warnings = (warnings_t){0};
    dt_log_set_level(DTRAIN_LOG_WARN);
    dt_log_set_sink(take_warning, &warnings);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dt_log_set_sink(NULL, NULL);
    return 0;
}

static void test_config_resolve_nothing_set_gives_the_defaults(void **state)
{
    (void)state;
    char *const environment[] = {"PATH=/bin", "DTRAINX=1", NULL};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(NULL, environment, &out), DTRAIN_OK);
    assert_int_equal(out.log_level, DTRAIN_LOG_WARN);
    assert_int_equal(out.fusion_threshold, 16 * MIB);
    assert_int_equal(out.fusion_tensor_limit, 128 * 1024);
    assert_int_equal(out.timeout_ns, 60 * DT_NS_PER_S);
    assert_int_equal(out.stall_warning_ns, 2 * DT_NS_PER_S);
    assert_int_equal(out.init_timeout_ns, 60 * DT_NS_PER_S);
    assert_int_equal(out.spin_ns, -1);
    assert_int_equal(out.mpi_threads, DTRAIN_MPI_THREADS_MULTIPLE);
    assert_string_equal(out.backend, "auto");
    assert_string_equal(out.network_interface, "");
    assert_int_equal(warnings.count, 0);
}

static void test_config_resolve_zeroed_struct_is_as_no_struct(void **state)
{
    (void)state;
    dtrain_config_t user = {.struct_size = sizeof user};
    dt_config_t with;
    dt_config_t without;
    assert_int_equal(dt_config_resolve_from(&user, NULL, &with), DTRAIN_OK);
    assert_int_equal(dt_config_resolve_from(NULL, NULL, &without), DTRAIN_OK);
    assert_memory_equal(&with, &without, sizeof with);
}

static void test_config_resolve_struct_goes_over_the_defaults(void **state)
{
    (void)state;
    dtrain_config_t user = {.struct_size = sizeof user,
                            .log_level = DTRAIN_LOG_ERROR,
                            .fusion_threshold = 1 * MIB,
                            .fusion_tensor_limit = 1000,
                            .timeout_ms = 1500,
                            .stall_warning_ms = 300,
                            .init_timeout_ms = 10,
                            .spin_us = 7,
                            .mpi_threads = DTRAIN_MPI_THREADS_SERIALIZED,
                            .backend = "self",
                            .network_interface = "eth0"};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(&user, NULL, &out), DTRAIN_OK);
    assert_int_equal(out.log_level, DTRAIN_LOG_ERROR);
    assert_int_equal(out.fusion_threshold, 1 * MIB);
    assert_int_equal(out.fusion_tensor_limit, 1000);
    assert_int_equal(out.timeout_ns, 1500 * DT_NS_PER_MS);
    assert_int_equal(out.stall_warning_ns, 300 * DT_NS_PER_MS);
    assert_int_equal(out.init_timeout_ns, 10 * DT_NS_PER_MS);
    assert_int_equal(out.spin_ns, 7 * DT_NS_PER_US);
    assert_int_equal(out.mpi_threads, DTRAIN_MPI_THREADS_SERIALIZED);
    assert_string_equal(out.backend, "self");
    assert_string_equal(out.network_interface, "eth0");
}

static void test_config_resolve_environment_goes_over_the_struct(void **state)
{
    (void)state;
    char *const environment[] = {"DTRAIN_FUSION_THRESHOLD=2MB", "DTRAIN_TIMEOUT_MS=2s",
                                 "DTRAIN_BACKEND=mpi",          "DTRAIN_NETWORK_INTERFACE=ib0",
                                 "DTRAIN_MPI_THREADS=multiple", NULL};
    dtrain_config_t user = {.struct_size = sizeof user,
                            .fusion_threshold = 1 * MIB,
                            .timeout_ms = -77, /* bad, but the environment replaces it */
                            .stall_warning_ms = 300,
                            .mpi_threads = DTRAIN_MPI_THREADS_SERIALIZED,
                            .backend = "self",
                            .network_interface = "eth0"};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(&user, environment, &out), DTRAIN_OK);
    assert_int_equal(out.fusion_threshold, 2 * MIB);
    assert_int_equal(out.timeout_ns, 2 * DT_NS_PER_S);
    assert_int_equal(out.stall_warning_ns, 300 * DT_NS_PER_MS);
    assert_int_equal(out.mpi_threads, DTRAIN_MPI_THREADS_MULTIPLE);
    assert_string_equal(out.backend, "mpi");
    assert_string_equal(out.network_interface, "ib0");
}

static void check_all_off(const dt_config_t *out)
{
    assert_int_equal(out->fusion_threshold, 0);
    assert_true(out->timeout_ns == DT_NEVER);
    assert_true(out->stall_warning_ns == DT_NEVER);
    assert_int_equal(out->spin_ns, 0);
}

static void test_config_resolve_off_is_none(void **state)
{
    (void)state;
    char *const environment[] = {"DTRAIN_FUSION_THRESHOLD=off", "DTRAIN_TIMEOUT_MS=off",
                                 "DTRAIN_STALL_WARNING_MS=0", "DTRAIN_SPIN_US=off", NULL};
    dtrain_config_t user = {.struct_size = sizeof user,
                            .fusion_threshold = -1,
                            .timeout_ms = -1,
                            .stall_warning_ms = -1,
                            .spin_us = -1};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(NULL, environment, &out), DTRAIN_OK);
    check_all_off(&out);
    assert_int_equal(dt_config_resolve_from(&user, NULL, &out), DTRAIN_OK);
    check_all_off(&out);
}

static void test_config_resolve_environment_auto_replaces_the_struct(void **state)
{
    (void)state;
    char *const environment[] = {"DTRAIN_SPIN_US=auto", NULL};
    dtrain_config_t user = {.struct_size = sizeof user, .spin_us = 100};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(&user, environment, &out), DTRAIN_OK);
    assert_int_equal(out.spin_ns, -1);
}

static void test_config_resolve_bad_variable_names_variable_and_value(void **state)
{
    (void)state;
    static const struct {
        char *line;
        const char *text;
    } cases[] = {
        {"DTRAIN_FUSION_THRESHOLD=abc", "DTRAIN_FUSION_THRESHOLD='abc': expected a size"},
        {"DTRAIN_FUSION_THRESHOLD=-1", "DTRAIN_FUSION_THRESHOLD='-1': expected a size"},
        {"DTRAIN_TIMEOUT_MS=", "DTRAIN_TIMEOUT_MS='': expected a duration"},
        {"DTRAIN_TIMEOUT_MS=1.5s!", "DTRAIN_TIMEOUT_MS='1.5s!': expected a duration"},
        {"DTRAIN_INIT_TIMEOUT_MS=off", "DTRAIN_INIT_TIMEOUT_MS='off': expected a duration"},
        {"DTRAIN_LOG_LEVEL=loud", "DTRAIN_LOG_LEVEL='loud': expected off, error"},
        {"DTRAIN_BACKEND=gloo", "DTRAIN_BACKEND='gloo': expected auto, mpi or self"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *const environment[] = {cases[i].line, NULL};
        dt_config_t out = {.timeout_ns = 4711};
        assert_int_equal(dt_config_resolve_from(NULL, environment, &out), DTRAIN_ERR_CONFIG);
        assert_memory_equal(dt_last_error(), cases[i].text, strlen(cases[i].text));
        assert_int_equal(out.timeout_ns, 4711);
    }
}

static void check_field_refused(const dtrain_config_t *user, const char *text)
{
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(user, NULL, &out), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), text);
}

static void test_config_resolve_bad_field_names_field_and_range(void **state)
{
    (void)state;
    dtrain_config_t user = {.struct_size = sizeof user, .fusion_threshold = -2};
    check_field_refused(&user, "config.fusion_threshold=-2: expected 1 to 68719476736, 0 for the "
                               "default, or -1 for off");
    user = (dtrain_config_t){.struct_size = sizeof user, .init_timeout_ms = -1};
    check_field_refused(&user, "config.init_timeout_ms=-1: expected 1 to 2147483647, 0 for the "
                               "default");
    user = (dtrain_config_t){.struct_size = sizeof user, .log_level = 9};
    check_field_refused(&user,
                        "config.log_level=9: expected off, error, warn, info, debug or trace");
    user = (dtrain_config_t){.struct_size = sizeof user, .mpi_threads = -1};
    check_field_refused(&user, "config.mpi_threads=-1: expected multiple or serialized");
    user = (dtrain_config_t){.struct_size = sizeof user, .backend = "mpio"};
    check_field_refused(&user, "config.backend='mpio': expected auto, mpi or self");
}

static void test_config_resolve_field_without_an_end_is_refused(void **state)
{
    (void)state;
    dtrain_config_t user = {.struct_size = sizeof user};
    dt_config_t out;
    memset(user.network_interface, 'e', sizeof user.network_interface);
    assert_int_equal(dt_config_resolve_from(&user, NULL, &out), DTRAIN_ERR_CONFIG);
    assert_non_null(strstr(dt_last_error(), "config.network_interface"));
}

static void test_config_resolve_wrong_struct_size_is_an_invalid_argument(void **state)
{
    (void)state;
    dtrain_config_t user = {.struct_size = 3};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(&user, NULL, &out), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dt_last_error(), "struct_size"));
}

static void test_config_resolve_unknown_variables_earn_a_warning_each(void **state)
{
    (void)state;
    char *const environment[] = {"DTRAIN_FUSION_TRESHOLD=1M", "DTRAIN_LIBRARY=/lib/libdtrain.so",
                                 "DTRAIN_TIMEOUT=3", "DTRAIN_TIMEOUT_MS=3s", NULL};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(NULL, environment, &out), DTRAIN_OK);
    assert_int_equal(warnings.count, 2);
    assert_non_null(strstr(warnings.text[0], "DTRAIN_FUSION_TRESHOLD"));
    assert_non_null(strstr(warnings.text[0], "the nearest is DTRAIN_FUSION_THRESHOLD"));
    assert_non_null(strstr(warnings.text[1], "DTRAIN_TIMEOUT,"));
    assert_non_null(strstr(warnings.text[1], "the nearest is DTRAIN_TIMEOUT_MS"));
}

static void test_config_resolve_log_level_holds_for_its_own_warnings(void **state)
{
    (void)state;
    char *const environment[] = {"DTRAIN_TIMEOUT=3", "DTRAIN_LOG_LEVEL=error", NULL};
    dt_config_t out;
    assert_int_equal(dt_config_resolve_from(NULL, environment, &out), DTRAIN_OK);
    assert_int_equal(warnings.count, 0);
}

static void test_config_adopt_takes_what_is_shared_and_warns(void **state)
{
    (void)state;
    char *const mine[] = {"DTRAIN_FUSION_THRESHOLD=1M", "DTRAIN_SPIN_US=5", NULL};
    char *const theirs[] = {"DTRAIN_FUSION_THRESHOLD=2M", "DTRAIN_SPIN_US=9", NULL};
    dt_config_t config;
    dt_config_t rank0;
    assert_int_equal(dt_config_resolve_from(NULL, mine, &config), DTRAIN_OK);
    assert_int_equal(dt_config_resolve_from(NULL, theirs, &rank0), DTRAIN_OK);
    dt_config_adopt_shared(&config, &rank0);
    assert_int_equal(config.fusion_threshold, 2 * MIB);
    assert_int_equal(config.spin_ns, 5 * DT_NS_PER_US);
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.text[0], "fusion_threshold"));
    dt_config_adopt_shared(&config, &rank0);
    assert_int_equal(warnings.count, 1);
}

/* A field that has no row would be ignored for ever, so rows and structs are compared. */
static void test_config_table_covers_every_field(void **state)
{
    (void)state;
    size_t public_bytes = sizeof(uint32_t);
    size_t internal_bytes = 0;
    for (int i = 0; i < DT_SETTING_COUNT; i++) {
        const dt_setting_t *setting = &dt_settings[i];
        public_bytes += setting->size;
        internal_bytes += setting->internal_size;
        assert_non_null(setting->help);
        assert_non_null(setting->default_text);
        assert_ptr_equal(dt_setting_find(setting->name), setting);
        assert_ptr_equal(dt_setting_nearest(setting->name), setting);
    }
    assert_true(sizeof(dtrain_config_t) - public_bytes < sizeof(int64_t));
    assert_true(sizeof(dt_config_t) - internal_bytes < 2 * sizeof(int64_t));
}

#define CONFIG_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_config_resolve_nothing_set_gives_the_defaults),
        CONFIG_TEST(test_config_resolve_zeroed_struct_is_as_no_struct),
        CONFIG_TEST(test_config_resolve_struct_goes_over_the_defaults),
        CONFIG_TEST(test_config_resolve_environment_goes_over_the_struct),
        CONFIG_TEST(test_config_resolve_off_is_none),
        CONFIG_TEST(test_config_resolve_environment_auto_replaces_the_struct),
        CONFIG_TEST(test_config_resolve_bad_variable_names_variable_and_value),
        CONFIG_TEST(test_config_resolve_bad_field_names_field_and_range),
        CONFIG_TEST(test_config_resolve_field_without_an_end_is_refused),
        CONFIG_TEST(test_config_resolve_wrong_struct_size_is_an_invalid_argument),
        CONFIG_TEST(test_config_resolve_unknown_variables_earn_a_warning_each),
        CONFIG_TEST(test_config_resolve_log_level_holds_for_its_own_warnings),
        CONFIG_TEST(test_config_adopt_takes_what_is_shared_and_warns),
        CONFIG_TEST(test_config_table_covers_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
