#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/config.h"
#include "base/config_table.h"
#include "base/status.h"

static dtrain_config_t config;

static int setup(void **state)
{
    (void)state;
    return dt_config_init(&config, sizeof config) == DTRAIN_OK ? 0 : -1;
}

static int64_t number(const char *key)
{
    const dt_setting_t *setting = dt_setting_find(key);
    assert_non_null(setting);
    return dt_setting_load(&config, setting->offset, setting->size);
}

typedef struct text_case {
    const char *text;
    int64_t value;
} text_case_t;

static void check_all(const char *key, const text_case_t *cases)
{
    for (; cases->text; cases++) {
        if (dt_config_set(&config, key, cases->text) != DTRAIN_OK)
            fail_msg("%s", dt_last_error());
        assert_int_equal(number(key), cases->value);
    }
}

static void check_refused(const char *key, const char *const *texts)
{
    int64_t before = number(key);
    for (; *texts; texts++) {
        if (dt_config_set(&config, key, *texts) != DTRAIN_ERR_CONFIG)
            fail_msg("%s='%s' was not refused", key, *texts);
        assert_non_null(strstr(dt_last_error(), key));
        assert_non_null(strstr(dt_last_error(), "expected"));
        assert_int_equal(number(key), before);
    }
}

static void test_config_set_sizes_have_units_of_1024(void **state)
{
    (void)state;
    static const text_case_t cases[] = {
        {"1", 1},
        {"4096", 4096},
        {"7B", 7},
        {"512k", 512 << 10},
        {"512K", 512 << 10},
        {"512KB", 512 << 10},
        {"512kib", 512 << 10},
        {"64M", 64 << 20},
        {"64MB", 64 << 20},
        {"64MiB", 64 << 20},
        {"64 MiB", 64 << 20},
        {"1.5GiB", INT64_C(1536) << 20},
        {"64G", INT64_C(64) << 30},
        {"0.5k", 512},
        {"0.0001k", 1},
        {"0.0000000001k", 1},
        {"off", -1},
        {"OFF", -1},
        {"0", -1},
        {"0MB", -1},
        {NULL, 0},
    };
    check_all("fusion_threshold", cases);
}

static void test_config_set_bad_sizes_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "abc",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1MBx",
                                        "1  MB",
                                        "MB",
                                        "1.",
                                        ".5M",
                                        "1e6",
                                        "0x10",
                                        "1,5M",
                                        "1s",
                                        "none",
                                        "65G",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "99999999999999999999999",
                                        "9999999999G",
                                        NULL};
    check_refused("fusion_threshold", texts);
}

static void test_config_set_size_that_cannot_be_off_refuses_off_and_zero(void **state)
{
    (void)state;
    static const char *const texts[] = {"off", "0", "-1", NULL};
    check_refused("fusion_tensor_limit", texts);
    check_refused("init_timeout_ms", texts);
}

static void test_config_set_durations_have_units_of_time(void **state)
{
    (void)state;
    static const text_case_t cases[] = {
        {"1500", 1500},
        {"1500ms", 1500},
        {"1.5s", 1500},
        {"2min", 120000},
        {"1h", 3600000},
        {"250 ms", 250},
        {"1.2ms", 2},
        {"1us", 1},
        {"2000us", 2},
        {"0.0005s", 1},
        {"2147483647", INT32_MAX},
        {"off", -1},
        {"0", -1},
        {"0s", -1},
        {NULL, 0},
    };
    check_all("timeout_ms", cases);
    check_all("stall_warning_ms", cases);
}

static void test_config_set_bad_durations_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",     "abc",        "-1",   "1.5.2s", "1d",
                                        "1msx", "2147483648", "600h", "1MB",    "9999999999999999h",
                                        NULL};
    check_refused("timeout_ms", texts);
}

static void test_config_set_spin_is_in_microseconds_or_auto(void **state)
{
    (void)state;
    static const text_case_t cases[] = {{"20", 20},  {"20us", 20}, {"1ms", 1000}, {"1s", 1000000},
                                        {"off", -1}, {"0", -1},    {"auto", 0},   {NULL, 0}};
    static const char *const refused[] = {"1000001", "2s", "", "-1", NULL};
    check_all("spin_us", cases);
    check_refused("spin_us", refused);
}

static void test_config_set_log_level_is_a_name_or_number(void **state)
{
    (void)state;
    static const text_case_t cases[] = {
        {"off", DTRAIN_LOG_OFF},   {"error", DTRAIN_LOG_ERROR}, {"warn", DTRAIN_LOG_WARN},
        {"info", DTRAIN_LOG_INFO}, {"DEBUG", DTRAIN_LOG_DEBUG}, {"trace", DTRAIN_LOG_TRACE},
        {"1", DTRAIN_LOG_OFF},     {"6", DTRAIN_LOG_TRACE},     {NULL, 0},
    };
    static const char *const refused[] = {"", "0", "7", "-1", "verbose", "warning", "03", NULL};
    check_all("log_level", cases);
    check_refused("log_level", refused);
}

static void test_config_set_mpi_threads_is_a_name_or_number(void **state)
{
    (void)state;
    static const text_case_t cases[] = {{"serialized", DTRAIN_MPI_THREADS_SERIALIZED},
                                        {"multiple", DTRAIN_MPI_THREADS_MULTIPLE},
                                        {"1", DTRAIN_MPI_THREADS_SERIALIZED},
                                        {NULL, 0}};
    static const char *const refused[] = {"single", "2", "", NULL};
    check_all("mpi_threads", cases);
    check_refused("mpi_threads", refused);
}

static void test_config_set_backend_is_one_of_three(void **state)
{
    (void)state;
    assert_int_equal(dt_config_set(&config, "backend", "self"), DTRAIN_OK);
    assert_string_equal(config.backend, "self");
    assert_int_equal(dt_config_set(&config, "backend", "MPI"), DTRAIN_OK);
    assert_string_equal(config.backend, "mpi");
    assert_int_equal(dt_config_set(&config, "backend", "nccl"), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "backend='nccl': expected auto, mpi or self");
    assert_string_equal(config.backend, "mpi");
}

static void test_config_set_network_interface_has_to_fit(void **state)
{
    (void)state;
    char name[65];
    memset(name, 'e', sizeof name);
    name[64] = '\0';
    assert_int_equal(dt_config_set(&config, "network_interface", name), DTRAIN_ERR_CONFIG);
    assert_non_null(strstr(dt_last_error(), "at most 63 bytes"));
    assert_string_equal(config.network_interface, "");
    name[63] = '\0';
    assert_int_equal(dt_config_set(&config, "network_interface", name), DTRAIN_OK);
    assert_string_equal(config.network_interface, name);
    assert_int_equal(dt_config_set(&config, "network_interface", ""), DTRAIN_OK);
    assert_string_equal(config.network_interface, "");
}

static void test_config_set_text_names_key_value_and_range(void **state)
{
    (void)state;
    assert_int_equal(dt_config_set(&config, "fusion_threshold", "abc"), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "fusion_threshold='abc': expected a size such as 64MB or "
                                         "512K, from 1 B to 64 GiB, or off");
    assert_int_equal(dt_config_set(&config, "spin_us", "x"), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(), "spin_us='x': expected a duration such as 1.5s or 200ms, "
                                         "from 1 us to 1 s, or auto, or off");
}

static void test_config_set_unknown_key_names_the_nearest(void **state)
{
    (void)state;
    assert_int_equal(dt_config_set(&config, "fusion_treshold", "1M"), DTRAIN_ERR_CONFIG);
    assert_string_equal(dt_last_error(),
                        "there is no setting 'fusion_treshold'; the nearest is 'fusion_threshold'");
    assert_int_equal(dt_config_set(&config, "timeout", "1s"), DTRAIN_ERR_CONFIG);
    assert_non_null(strstr(dt_last_error(), "'timeout_ms'"));
    assert_int_equal(dt_config_set(&config, "", "1s"), DTRAIN_ERR_CONFIG);
}

static void test_config_set_null_or_wrong_size_is_an_invalid_argument(void **state)
{
    (void)state;
    assert_int_equal(dt_config_set(NULL, "spin_us", "1"), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_config_set(&config, NULL, "1"), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_config_set(&config, "spin_us", NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    config.struct_size = 0;
    assert_int_equal(dt_config_set(&config, "spin_us", "1"), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dt_last_error(), "struct_size"));
}

static void test_config_init_gives_defaults_or_refuses_the_size(void **state)
{
    (void)state;
    dtrain_config_t other;
    memset(&other, 0x5a, sizeof other);
    assert_int_equal(dt_config_init(&other, sizeof other - 8), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_config_init(&other, sizeof other + 8), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_config_init(&other, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_config_init(NULL, sizeof other), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(other.timeout_ms, 0x5a5a5a5a);
    assert_int_equal(dt_config_init(&other, sizeof other), DTRAIN_OK);
    assert_memory_equal(&other, &config, sizeof other);
    assert_int_equal(other.struct_size, sizeof other);
}

#define PARSE_TEST(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PARSE_TEST(test_config_set_sizes_have_units_of_1024),
        PARSE_TEST(test_config_set_bad_sizes_are_refused),
        PARSE_TEST(test_config_set_size_that_cannot_be_off_refuses_off_and_zero),
        PARSE_TEST(test_config_set_durations_have_units_of_time),
        PARSE_TEST(test_config_set_bad_durations_are_refused),
        PARSE_TEST(test_config_set_spin_is_in_microseconds_or_auto),
        PARSE_TEST(test_config_set_log_level_is_a_name_or_number),
        PARSE_TEST(test_config_set_mpi_threads_is_a_name_or_number),
        PARSE_TEST(test_config_set_backend_is_one_of_three),
        PARSE_TEST(test_config_set_network_interface_has_to_fit),
        PARSE_TEST(test_config_set_text_names_key_value_and_range),
        PARSE_TEST(test_config_set_unknown_key_names_the_nearest),
        PARSE_TEST(test_config_set_null_or_wrong_size_is_an_invalid_argument),
        PARSE_TEST(test_config_init_gives_defaults_or_refuses_the_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
