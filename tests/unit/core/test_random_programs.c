/*
 * test_random_programs [--all | --seconds S | SEED …] - random programs on ranks that are threads,
 * against the model of random_program.h.
 *
 * Without arguments: the seeds that once failed, then others for as long as a share of CI's time
 * takes; --all runs a thousand. What fails is printed with the seed, which repeats it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine_world.h"
#include "random_program.h"
#include "random_rank.h"

#define ALL_SEEDS 1000
#define SHARE_SECONDS 25

/* A program that takes longer hangs, and is ended with its seed. */
#define HANG_SECONDS 120

/* What once failed. */
static const uint64_t stored[] = {
#include "random_seeds.inc"
};

/* ---- Main -------------------------------------------------------------------------------------
 */

static uint64_t current_seed;
static const char *program_name;

/* Written before a program is run, since a signal's handler can write it only as it is. */
static char how_to_repeat[256];

static void say_how_to_repeat(void)
{
    (void)!write(STDERR_FILENO, how_to_repeat, strlen(how_to_repeat));
}

static void on_hang(int signal)
{
    (void)signal;
    say_how_to_repeat();
    _exit(1);
}

static void run_seed(uint64_t seed)
{
    static program_t program;
    static const program_limits_t limits = {.longer = 200};
    program_make(&program, seed, &limits);
    dt_config_t config = engine_config();
    config.fusion_threshold = program.fusion_threshold;
    config.join_divisor = program.join_divisor;
    current_seed = seed;
    snprintf(how_to_repeat, sizeof how_to_repeat, "seed %llu failed; repeat it with: %s %llu\n",
             (unsigned long long)seed, program_name, (unsigned long long)seed);
    alarm(HANG_SECONDS);
    engine_run(program.size, &config, random_rank_run, &program);
    alarm(0);
    current_seed = 0;
}

static int say_if_failed(void **state)
{
    (void)state;
    if (current_seed)
        say_how_to_repeat();
    return 0;
}

static int num_given;
static uint64_t *given;
static int64_t share_seconds = SHARE_SECONDS;
static uint64_t num_seeds = ALL_SEEDS;

static void test_random_programs_come_to_what_the_model_says(void **state)
{
    (void)state;
    time_t start = time(NULL);
    uint64_t seed = 0;
    for (int i = 0; i < num_given; i++)
        run_seed(given[i]);
    for (size_t i = 0; num_given == 0 && i < sizeof stored / sizeof stored[0]; i++)
        run_seed(stored[i]);
    while (num_given == 0 && seed < num_seeds &&
           (share_seconds < 0 || time(NULL) - start < share_seconds))
        run_seed(++seed);
    printf("%d programs given, %d stored, %llu drawn\n", num_given,
           num_given ? 0 : (int)(sizeof stored / sizeof stored[0]), (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    program_name = argv[0];
    given = calloc((size_t)argc, sizeof *given);
    for (int i = 1; given && i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0)
            share_seconds = -1;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            share_seconds = strtol(argv[++i], NULL, 10);
        else
            given[num_given++] = strtoull(argv[i], NULL, 10);
    }
    signal(SIGALRM, on_hang);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_programs_come_to_what_the_model_says, say_if_failed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(given);
    return failed;
}
