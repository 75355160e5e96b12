/* The same global batches at any number of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sampler.h"

#define SAMPLES 1000
#define BATCH 128

static sampler_t make(int64_t samples, int64_t batch, uint64_t seed)
{
    sampler_t sampler = {0};
    mlp_error_t error = {.text = ""};
    assert_int_equal(sampler_create(samples, batch, seed, &sampler, &error), 0);
    return sampler;
}

/* Puts the samples of a step, rank after rank, into `out`, and returns how many they are. */
static int collect(const sampler_t *sampler, int64_t step, int ranks, uint32_t *out)
{
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        shard_t shard = sampler_shard(sampler, step, rank, ranks);
        memcpy(out + count, shard.indices, (size_t)shard.count * sizeof *out);
        count += shard.count;
    }
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(sampler_shard(sampler, step, rank, ranks).global_count, count);
    return count;
}

static void test_sampler_any_number_of_ranks_has_the_same_global_batches(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 7, 200};
    (void)state;
    sampler_t sampler = make(SAMPLES, BATCH, 5);
    for (int64_t epoch = 1; epoch <= 2; epoch++) {
        sampler_shuffle(&sampler, epoch);
        for (int64_t step = 0; step < sampler_steps_per_epoch(&sampler); step++) {
            uint32_t alone[BATCH];
            int expected = collect(&sampler, step, 1, alone);
            for (size_t i = 1; i < sizeof ranks / sizeof ranks[0]; i++) {
                uint32_t together[BATCH];
                assert_int_equal(collect(&sampler, step, ranks[i], together), expected);
                assert_memory_equal(together, alone, (size_t)expected * sizeof alone[0]);
            }
        }
    }
    sampler_free(&sampler);
}

static void test_sampler_epoch_has_every_sample_once(void **state)
{
    (void)state;
    sampler_t sampler = make(SAMPLES, BATCH, 5);
    int seen[SAMPLES] = {0};
    int total = 0;
    sampler_shuffle(&sampler, 3);
    assert_int_equal(sampler_steps_per_epoch(&sampler), 8);
    for (int64_t step = 0; step < 8; step++) {
        uint32_t batch[BATCH];
        int count = collect(&sampler, step, 3, batch);
        assert_int_equal(count, step < 7 ? BATCH : SAMPLES - 7 * BATCH);
        total += count;
        for (int i = 0; i < count; i++)
            seen[batch[i]]++;
    }
    assert_int_equal(total, SAMPLES);
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
    sampler_free(&sampler);
}

static void test_sampler_order_depends_on_seed_and_epoch_alone(void **state)
{
    (void)state;
    sampler_t first = make(SAMPLES, BATCH, 5);
    sampler_t again = make(SAMPLES, BATCH, 5);
    sampler_t other = make(SAMPLES, BATCH, 6);
    sampler_shuffle(&first, 1);
    sampler_shuffle(&first, 2);
    sampler_shuffle(&again, 2); /* without epoch 1 before it */
    sampler_shuffle(&other, 2);
    assert_memory_equal(first.order, again.order, SAMPLES * sizeof *first.order);
    assert_memory_not_equal(first.order, other.order, SAMPLES * sizeof *first.order);
    sampler_shuffle(&again, 1);
    assert_memory_not_equal(first.order, again.order, SAMPLES * sizeof *first.order);
    sampler_free(&first);
    sampler_free(&again);
    sampler_free(&other);
}

static void test_sampler_shards_differ_by_one_at_most(void **state)
{
    (void)state;
    sampler_t sampler = make(SAMPLES, BATCH, 5);
    for (int ranks = 1; ranks <= 200; ranks++) {
        for (int rank = 0; rank < ranks; rank++) {
            int count = sampler_shard(&sampler, 0, rank, ranks).count;
            assert_in_range(count, BATCH / ranks, (BATCH + ranks - 1) / ranks);
        }
    }
    sampler_free(&sampler);
}

static void test_sampler_batch_above_the_set_is_refused(void **state)
{
    (void)state;
    sampler_t sampler;
    mlp_error_t error = {.text = ""};
    assert_int_equal(sampler_create(10, 11, 1, &sampler, &error), -1);
    assert_non_null(strstr(error.text, "--batch"));
    assert_non_null(strstr(error.text, "11"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampler_any_number_of_ranks_has_the_same_global_batches),
        cmocka_unit_test(test_sampler_epoch_has_every_sample_once),
        cmocka_unit_test(test_sampler_order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(test_sampler_shards_differ_by_one_at_most),
        cmocka_unit_test(test_sampler_batch_above_the_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
