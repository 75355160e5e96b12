/* The command line: what is understood, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

#define WORDS_MAX 16

/* Parses a line of words, none of which holds a blank. */
static int parse(const char *line, options_t *out, mlp_error_t *error)
{
    static char words[256];
    static char program[] = "mlp";
    char *argv[WORDS_MAX + 1] = {program};
    int argc = 1;
    char *rest = words;
    strncpy(words, line, sizeof words - 1);
    for (char *word; argc < WORDS_MAX && (word = strsep(&rest, " ")) != NULL;) {
        if (word[0] != '\0')
            argv[argc++] = word;
    }
    return options_parse(argc, argv, out, error);
}

static void check_refused(const char *line, const char *option, const char *what)
{
    options_t options;
    mlp_error_t error = {.text = ""};
    if (parse(line, &options, &error) != -1)
        fail_msg("\"%s\" is not refused", line);
    if (strstr(error.text, option) == NULL || strstr(error.text, what) == NULL)
        fail_msg("\"%s\": \"%s\" does not say \"%s\" and \"%s\"", line, error.text, option, what);
}

static options_t check_parsed(const char *line)
{
    options_t options;
    mlp_error_t error = {.text = ""};
    if (parse(line, &options, &error) != 0)
        fail_msg("\"%s\": %s", line, error.text);
    return options;
}

static void test_options_none_gives_defaults(void **state)
{
    (void)state;
    options_t options = check_parsed("");
    assert_int_equal(options.layer_count, 4);
    assert_int_equal(options.layers[0], 784);
    assert_int_equal(options.layers[3], 10);
    assert_int_equal(options_global_batch(&options, 3), 128);
    assert_int_equal(options.epochs, 10);
    assert_int_equal(options.steps, 0);
    assert_false(options.synthetic);
    assert_false(options.help);
}

static void test_options_all_are_understood(void **state)
{
    (void)state;
    options_t options = check_parsed("--layers 5,6 --batch-per-rank 32 --epochs=3 --steps 40 "
                                     "--lr 0.5 --momentum=0 --seed 9 --data /d --synthetic");
    assert_int_equal(options.layer_count, 2);
    assert_int_equal(options.layers[1], 6);
    assert_int_equal(options_global_batch(&options, 3), 96);
    assert_int_equal(options.epochs, 3);
    assert_int_equal(options.steps, 40);
    assert_float_equal(options.learning_rate, 0.5, 0.0);
    assert_float_equal(options.momentum, 0.0, 0.0);
    assert_int_equal(options.seed, 9);
    assert_string_equal(options.data, "/d");
    assert_true(options.synthetic);
}

static void test_options_unknown_ones_are_named(void **state)
{
    (void)state;
    check_refused("--epoch 3", "--epoch", "unknown");
    check_refused("--epochsx=3", "--epochsx=3", "unknown");
    check_refused("7", "'7'", "unknown");
    check_refused("--", "'--'", "unknown");
    check_refused("-h", "-h", "--help");
}

static void test_options_bad_values_are_named(void **state)
{
    (void)state;
    check_refused("--epochs 0", "--epochs", "'0'");
    check_refused("--epochs -1", "--epochs", "'-1'");
    check_refused("--epochs 3x", "--epochs", "'3x'");
    check_refused("--epochs=", "--epochs", "''");
    check_refused("--steps 1.5", "--steps", "whole number");
    check_refused("--batch 99999999999999999999", "--batch", "from 1 to");
    check_refused("--seed -1", "--seed", "from 0");
    check_refused("--lr nan", "--lr", "'nan'");
    check_refused("--lr inf", "--lr", "from 0 to 1000");
    check_refused("--lr fast", "--lr", "'fast'");
    check_refused("--momentum 1", "--momentum", "0.9999");
    check_refused("--data=", "--data", "empty");
    check_refused("--synthetic=yes", "--synthetic", "no value");
}

static void test_options_missing_value_is_named(void **state)
{
    (void)state;
    check_refused("--epochs", "--epochs", "needs a value");
    check_refused("--synthetic --data", "--data", "needs a value");
}

static void test_options_bad_layers_are_named(void **state)
{
    (void)state;
    check_refused("--layers 784", "--layers", "no output layer");
    check_refused("--layers 784,,10", "--layers", "'784,,10'");
    check_refused("--layers 784,10,", "--layers", "'784,10,'");
    check_refused("--layers 784,0,10", "--layers", "from 1");
    check_refused("--layers 784x256", "--layers", "list");
    check_refused("--layers 9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9",
                  "--layers", "more than 32");
    check_refused("--synthetic --layers 5,300", "--layers", "256 classes");
}

static void test_options_both_batches_are_refused(void **state)
{
    (void)state;
    check_refused("--batch 4 --batch-per-rank 2", "--batch-per-rank", "exclude");
}

static void test_options_layers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    mlp_error_t error = {.text = ""};
    options_t options = check_parsed("--layers 100,10");
    assert_int_equal(options_check_layers(&options, 784, 10, &error), -1);
    assert_non_null(strstr(error.text, "100 inputs"));
    assert_non_null(strstr(error.text, "784"));
    options = check_parsed("--layers 784,9");
    assert_int_equal(options_check_layers(&options, 784, 10, &error), -1);
    assert_non_null(strstr(error.text, "9 outputs"));
    options = check_parsed("--layers 784,10");
    assert_int_equal(options_check_layers(&options, 784, 10, &error), 0);
}

static void test_options_fingerprint_tells_what_ranks_must_share(void **state)
{
    (void)state;
    options_t options = check_parsed("--lr 0.1");
    options_t elsewhere = check_parsed("--lr 0.1 --data /other");
    options_t faster = check_parsed("--lr 0.2");
    options_t longer = check_parsed("--lr 0.1 --layers 784,64,64,10");
    uint64_t expected = options_fingerprint(&options);
    assert_true(options_fingerprint(&elsewhere) == expected);
    assert_true(options_fingerprint(&faster) != expected);
    assert_true(options_fingerprint(&longer) != expected);
}

static void test_options_help_lists_every_option(void **state)
{
    static const char *const names[] = {
        "--layers",   "--batch ", "--batch-per-rank", "--epochs",    "--steps", "--lr",
        "--momentum", "--seed",   "--data",           "--synthetic", "--help"};
    char *text = NULL;
    size_t length = 0;
    (void)state;
    assert_true(check_parsed("--help").help);
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    options_print_help(out, "mlp");
    fclose(out);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_non_null(strstr(text, names[i]));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_none_gives_defaults),
        cmocka_unit_test(test_options_all_are_understood),
        cmocka_unit_test(test_options_unknown_ones_are_named),
        cmocka_unit_test(test_options_bad_values_are_named),
        cmocka_unit_test(test_options_missing_value_is_named),
        cmocka_unit_test(test_options_bad_layers_are_named),
        cmocka_unit_test(test_options_both_batches_are_refused),
        cmocka_unit_test(test_options_layers_that_do_not_fit_are_refused),
        cmocka_unit_test(test_options_fingerprint_tells_what_ranks_must_share),
        cmocka_unit_test(test_options_help_lists_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
