#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/pset_key.h"

/* Writes a key and reads it back. */
static void assert_comes_back(int32_t pset, const char *name, const char *wanted)
{
    char key[DT_KEY_MAX + 1];
    const char *read;
    size_t length = dt_pset_key(pset, name, strlen(name), key);
    assert_string_equal(key, wanted);
    assert_int_equal(length, strlen(wanted));
    assert_int_equal(dt_pset_key_read(key, length, &read), pset);
    assert_string_equal(read, name);
    assert_int_equal(dt_pset_key_read(key, length, NULL), pset);
}

static void test_pset_key_tells_sets_and_names(void **state)
{
    (void)state;
    assert_comes_back(0, "x", "x");
    assert_comes_back(0, "a/b", "a/b");
    assert_comes_back(0, DT_NAME_BARRIER, "dtrain.barrier");
    assert_comes_back(1, "x", "dtrain.set.1/x");
    assert_comes_back(12, "3/x", "dtrain.set.12/3/x");
    assert_comes_back(INT32_MAX, DT_NAME_JOIN, "dtrain.set.2147483647/dtrain.join");
}

static void test_pset_key_of_the_longest_name_fits(void **state)
{
    (void)state;
    char name[DTRAIN_NAME_MAX], key[DT_KEY_MAX + 1];
    const char *read;
    memset(name, 'n', sizeof name);
    size_t length = dt_pset_key(INT32_MAX, name, sizeof name, key);
    assert_true(length <= DT_KEY_MAX);
    assert_int_equal(key[length], 0);
    assert_int_equal(dt_pset_key_read(key, length, &read), INT32_MAX);
    assert_memory_equal(read, name, sizeof name);
}

/* What no rank writes is a name of the world. */
static void test_pset_key_reads_anything(void **state)
{
    (void)state;
    static const char *const keys[] = {"dtrain.set.",   "dtrain.set./x",
                                       "dtrain.set.1",  "dtrain.set.1x/y",
                                       "dtrain.set.x/", "dtrain.set.99999999999/x",
                                       "dtrain.se",     "x"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *name;
        int32_t pset = dt_pset_key_read(keys[i], strlen(keys[i]), &name);
        assert_int_equal(pset, 0);
        assert_ptr_equal(name, keys[i]);
    }
}

static void test_pset_key_describe_cuts_and_names_the_set(void **state)
{
    (void)state;
    char text[DT_KEY_TEXT_MAX], name[1000];
    assert_string_equal(dt_pset_key_describe("x", 1, text, sizeof text), "'x'");
    assert_string_equal(dt_pset_key_describe("dtrain.set.7/x", 14, text, sizeof text),
                        "'x' of process set 7");
    static const char prefix[13] = "dtrain.set.7/";
    memset(name, 'n', sizeof name);
    memcpy(name, prefix, sizeof prefix);
    dt_pset_key_describe(name, sizeof name, text, sizeof text);
    assert_non_null(strstr(text, "nnn' of process set 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pset_key_tells_sets_and_names),
        cmocka_unit_test(test_pset_key_of_the_longest_name_fits),
        cmocka_unit_test(test_pset_key_reads_anything),
        cmocka_unit_test(test_pset_key_describe_cuts_and_names_the_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
