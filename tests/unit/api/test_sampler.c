#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>

#include <dtrain/dtrain.h>

#define MOST 400

static dtrain_sampler_desc_t desc_of(int64_t num_samples, int64_t global_batch, int rank, int size)
{
    return (dtrain_sampler_desc_t){.struct_size = sizeof(dtrain_sampler_desc_t),
                                   .num_samples = num_samples,
                                   .global_batch = global_batch,
                                   .seed = 42,
                                   .rank = rank,
                                   .size = size};
}

static dtrain_sampler_t *sampler_of(dtrain_sampler_desc_t desc)
{
    dtrain_sampler_t *sampler = NULL;
    assert_int_equal(dtrain_sampler_create(&desc, &sampler), DTRAIN_OK);
    assert_non_null(sampler);
    return sampler;
}

static dtrain_batch_t next(dtrain_sampler_t *sampler, int64_t *samples)
{
    dtrain_batch_t batch = {.struct_size = sizeof batch};
    assert_int_equal(dtrain_sampler_next(sampler, samples, MOST, &batch), DTRAIN_OK);
    return batch;
}

/* Draws a whole global batch: all ranks' parts in rank order, at `epoch` and `batch`. Returns its
 * length. */
static int64_t global_batch(dtrain_sampler_desc_t desc, int size, int64_t epoch, int64_t number,
                            int64_t *all)
{
    int64_t length = 0, expected = -1;
    for (int rank = 0; rank < size; rank++) {
        desc.rank = rank;
        desc.size = size;
        dtrain_sampler_t *sampler = sampler_of(desc);
        assert_int_equal(dtrain_sampler_seek(sampler, epoch, number), DTRAIN_OK);
        int64_t samples[MOST];
        dtrain_batch_t batch = next(sampler, samples);
        assert_int_equal(batch.epoch, epoch);
        assert_int_equal(batch.batch, number);
        assert_int_equal(batch.first, length);
        assert_true(expected < 0 || batch.global_count == expected);
        /* As even as can be. */
        assert_in_range(batch.count, batch.global_count / size,
                        (batch.global_count + size - 1) / size);
        expected = batch.global_count;
        memcpy(all + length, samples, (size_t)batch.count * sizeof *all);
        length += batch.count;
        dtrain_sampler_destroy(sampler);
    }
    assert_int_equal(length, expected);
    return length;
}

static void test_sampler_epoch_has_every_sample_once_at_any_number_of_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 7, 50};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        dtrain_sampler_desc_t desc = desc_of(331, 32, 0, 1);
        int seen[331] = {0};
        for (int64_t number = 0; number < 11; number++) {
            int64_t all[MOST];
            int64_t length = global_batch(desc, sizes[s], 5, number, all);
            assert_int_equal(length, number < 10 ? 32 : 11);
            for (int64_t i = 0; i < length; i++)
                seen[all[i]]++;
        }
        for (int i = 0; i < 331; i++)
            assert_int_equal(seen[i], 1);
    }
}

static void test_sampler_global_batches_are_the_same_at_any_number_of_ranks(void **state)
{
    (void)state;
    dtrain_sampler_desc_t desc = desc_of(331, 32, 0, 1);
    for (int64_t number = 0; number < 11; number++) {
        int64_t alone[MOST], many[MOST];
        int64_t length = global_batch(desc, 1, 2, number, alone);
        for (int size = 2; size <= 40; size++) {
            assert_int_equal(global_batch(desc, size, 2, number, many), length);
            assert_memory_equal(many, alone, (size_t)length * sizeof *alone);
        }
    }
}

static void test_sampler_goes_on_into_the_next_epoch_in_another_order(void **state)
{
    (void)state;
    dtrain_sampler_t *sampler = sampler_of(desc_of(100, 100, 0, 1));
    int64_t first[MOST], second[MOST];
    assert_int_equal(next(sampler, first).epoch, 0);
    dtrain_batch_t batch = next(sampler, second);
    assert_int_equal(batch.epoch, 1);
    assert_int_equal(batch.batch, 0);
    assert_int_equal(batch.num_batches, 1);
    assert_memory_not_equal(first, second, sizeof first[0] * 100);
    dtrain_sampler_destroy(sampler);
}

static void test_sampler_dropped_last_batch_leaves_only_full_ones(void **state)
{
    (void)state;
    dtrain_sampler_desc_t desc = desc_of(331, 32, 0, 1);
    desc.last_batch = DTRAIN_SAMPLER_LAST_DROPPED;
    dtrain_sampler_t *sampler = sampler_of(desc);
    int64_t samples[MOST];
    for (int64_t i = 0; i < 25; i++) {
        dtrain_batch_t batch = next(sampler, samples);
        assert_int_equal(batch.epoch, i / 10);
        assert_int_equal(batch.batch, i % 10);
        assert_int_equal(batch.global_count, 32);
        assert_int_equal(batch.num_batches, 10);
    }
    dtrain_sampler_destroy(sampler);
}

static void test_sampler_sequential_order_counts_up(void **state)
{
    (void)state;
    dtrain_sampler_desc_t desc = desc_of(20, 8, 1, 2);
    desc.order = DTRAIN_SAMPLER_SEQUENTIAL;
    dtrain_sampler_t *sampler = sampler_of(desc);
    static const int64_t expected[] = {4, 5, 6, 7, 12, 13, 14, 15, 18, 19, 4, 5, 6, 7};
    int64_t length = 0, samples[MOST];
    while (length < 14) {
        dtrain_batch_t batch = next(sampler, samples);
        assert_memory_equal(samples, expected + length, (size_t)batch.count * sizeof *samples);
        length += batch.count;
    }
    assert_int_equal(length, 14);
    dtrain_sampler_destroy(sampler);
}

static void test_sampler_more_ranks_than_samples_leave_some_without(void **state)
{
    (void)state;
    dtrain_sampler_t *sampler = sampler_of(desc_of(3, 10, 4, 5));
    dtrain_batch_t batch = {.struct_size = sizeof batch};
    assert_int_equal(dtrain_sampler_next(sampler, NULL, 0, &batch), DTRAIN_OK);
    assert_int_equal(batch.count, 0);
    assert_int_equal(batch.global_count, 3);
    dtrain_sampler_destroy(sampler);
}

/* Stops in the middle of an epoch on 3 ranks and goes on with 2: together they see each sample of
 * the epoch once, and the batches are those that one rank sees. */
static void test_sampler_restored_on_other_ranks_goes_on_in_mid_epoch(void **state)
{
    (void)state;
    dtrain_sampler_t *before = sampler_of(desc_of(331, 32, 1, 3));
    int64_t samples[MOST], alone[MOST];
    for (int i = 0; i < 11 + 4; i++)
        next(before, samples);
    dtrain_sampler_state_t saved = {.struct_size = sizeof saved};
    assert_int_equal(dtrain_sampler_save(before, &saved), DTRAIN_OK);
    assert_int_equal(saved.epoch, 1);
    assert_int_equal(saved.batch, 4);
    dtrain_sampler_t *one = sampler_of(desc_of(331, 32, 0, 1));
    assert_int_equal(dtrain_sampler_seek(one, 1, 4), DTRAIN_OK);
    dtrain_sampler_t *after[2];
    for (int rank = 0; rank < 2; rank++) {
        after[rank] = sampler_of(desc_of(331, 32, rank, 2));
        assert_int_equal(dtrain_sampler_restore(after[rank], &saved), DTRAIN_OK);
    }
    for (int i = 4; i < 20; i++) {
        int64_t length = next(one, alone).global_count;
        int64_t count = next(after[0], samples).count;
        count += next(after[1], samples + count).count;
        assert_int_equal(count, length);
        assert_memory_equal(samples, alone, (size_t)count * sizeof *alone);
    }
    dtrain_sampler_destroy(before);
    dtrain_sampler_destroy(one);
    dtrain_sampler_destroy(after[0]);
    dtrain_sampler_destroy(after[1]);
}

/* The promise of the header: these orders stay. */
static void test_sampler_known_seed_gives_the_known_order(void **state)
{
    (void)state;
    static const int64_t expected[] = {50238, 56470, 1631, 21283, 32952, 31107, 37512, 26692};
    dtrain_sampler_t *sampler = sampler_of(desc_of(60000, 8, 0, 1));
    assert_int_equal(dtrain_sampler_seek(sampler, 3, 100), DTRAIN_OK);
    int64_t samples[MOST];
    next(sampler, samples);
    for (int i = 0; i < 8; i++)
        assert_int_equal(samples[i], expected[i]);
    dtrain_sampler_destroy(sampler);
}

static void assert_refused(dtrain_sampler_desc_t desc, dtrain_status_t status, const char *word)
{
    dtrain_sampler_t *sampler = NULL;
    assert_int_equal(dtrain_sampler_create(&desc, &sampler), status);
    assert_non_null(strstr(dtrain_last_error(), word));
    assert_null(sampler);
}

static void test_sampler_create_refuses_by_the_field_s_name(void **state)
{
    (void)state;
    const dtrain_sampler_desc_t good = desc_of(10, 2, 0, 1);
    dtrain_sampler_desc_t bad = good;
    bad.struct_size--;
    assert_refused(bad, DTRAIN_ERR_INVALID_ARGUMENT, "struct_size");
    assert_refused(desc_of(0, 2, 0, 1), DTRAIN_ERR_INVALID_ARGUMENT, "num_samples");
    assert_refused(desc_of(INT64_MAX, 2, 0, 1), DTRAIN_ERR_INVALID_ARGUMENT, "num_samples");
    assert_refused(desc_of(10, 0, 0, 1), DTRAIN_ERR_INVALID_ARGUMENT, "global_batch");
    assert_refused(desc_of(10, 2, 3, 3), DTRAIN_ERR_INVALID_ARGUMENT, "rank");
    assert_refused(desc_of(10, 2, -1, 3), DTRAIN_ERR_INVALID_ARGUMENT, "rank");
    assert_refused(desc_of(10, 2, 1, 0), DTRAIN_ERR_INVALID_ARGUMENT, "rank is 1");
    assert_refused(desc_of(10, 2, 0, -1), DTRAIN_ERR_INVALID_ARGUMENT, "size");
    bad = good;
    bad.order = 2;
    assert_refused(bad, DTRAIN_ERR_INVALID_ARGUMENT, "order");
    bad = good;
    bad.last_batch = 2;
    assert_refused(bad, DTRAIN_ERR_INVALID_ARGUMENT, "last_batch");
    bad = desc_of(10, 11, 0, 1);
    bad.last_batch = DTRAIN_SAMPLER_LAST_DROPPED;
    assert_refused(bad, DTRAIN_ERR_INVALID_ARGUMENT, "global_batch");
    assert_refused(desc_of(10, 2, 0, 0), DTRAIN_ERR_NOT_INITIALIZED, "size is 0");
    bad = good;
    bad.reserved = 1;
    assert_refused(bad, DTRAIN_ERR_INVALID_ARGUMENT, "reserved");
}

static void test_sampler_refused_calls_leave_it_where_it_is(void **state)
{
    (void)state;
    dtrain_sampler_t *sampler = sampler_of(desc_of(331, 32, 0, 1));
    assert_int_equal(dtrain_sampler_seek(sampler, 2, 3), DTRAIN_OK);
    int64_t samples[MOST];
    dtrain_batch_t batch = {.struct_size = sizeof batch};
    assert_int_equal(dtrain_sampler_next(sampler, samples, 31, &batch),
                     DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dtrain_last_error(), "31"));
    assert_int_equal(dtrain_sampler_seek(sampler, -1, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_seek(sampler, 0, 11), DTRAIN_ERR_INVALID_ARGUMENT);
    dtrain_sampler_state_t saved = {.struct_size = sizeof saved};
    assert_int_equal(dtrain_sampler_save(sampler, &saved), DTRAIN_OK);
    dtrain_sampler_state_t other = saved;
    other.seed = 43;
    assert_int_equal(dtrain_sampler_restore(sampler, &other), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dtrain_last_error(), "seed 43"));
    other = saved;
    other.num_samples = 330;
    assert_int_equal(dtrain_sampler_restore(sampler, &other), DTRAIN_ERR_INVALID_ARGUMENT);
    other = saved;
    other.global_batch = 64;
    assert_int_equal(dtrain_sampler_restore(sampler, &other), DTRAIN_ERR_INVALID_ARGUMENT);
    other = saved;
    other.batch = 11;
    assert_int_equal(dtrain_sampler_restore(sampler, &other), DTRAIN_ERR_INVALID_ARGUMENT);
    batch = next(sampler, samples);
    assert_int_equal(batch.epoch, 2);
    assert_int_equal(batch.batch, 3);
    dtrain_sampler_destroy(sampler);
}

static void test_sampler_null_is_refused_and_destroyed_alike(void **state)
{
    (void)state;
    dtrain_sampler_desc_t desc = desc_of(10, 2, 0, 1);
    dtrain_sampler_t *sampler = NULL;
    dtrain_batch_t batch = {.struct_size = sizeof batch};
    dtrain_sampler_state_t saved = {.struct_size = sizeof saved};
    int64_t samples[2];
    assert_int_equal(dtrain_sampler_create(NULL, &sampler), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_create(&desc, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_next(NULL, samples, 2, &batch), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_seek(NULL, 0, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_save(NULL, &saved), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_restore(NULL, &saved), DTRAIN_ERR_INVALID_ARGUMENT);
    sampler = sampler_of(desc);
    assert_int_equal(dtrain_sampler_next(sampler, NULL, 2, &batch), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_next(sampler, samples, 2, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    batch.struct_size = 4;
    assert_int_equal(dtrain_sampler_next(sampler, samples, 2, &batch), DTRAIN_ERR_INVALID_ARGUMENT);
    saved.struct_size = 4;
    assert_int_equal(dtrain_sampler_save(sampler, &saved), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_sampler_restore(sampler, &saved), DTRAIN_ERR_INVALID_ARGUMENT);
    dtrain_sampler_destroy(sampler);
    dtrain_sampler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampler_epoch_has_every_sample_once_at_any_number_of_ranks),
        cmocka_unit_test(test_sampler_global_batches_are_the_same_at_any_number_of_ranks),
        cmocka_unit_test(test_sampler_goes_on_into_the_next_epoch_in_another_order),
        cmocka_unit_test(test_sampler_dropped_last_batch_leaves_only_full_ones),
        cmocka_unit_test(test_sampler_sequential_order_counts_up),
        cmocka_unit_test(test_sampler_more_ranks_than_samples_leave_some_without),
        cmocka_unit_test(test_sampler_restored_on_other_ranks_goes_on_in_mid_epoch),
        cmocka_unit_test(test_sampler_known_seed_gives_the_known_order),
        cmocka_unit_test(test_sampler_create_refuses_by_the_field_s_name),
        cmocka_unit_test(test_sampler_refused_calls_leave_it_where_it_is),
        cmocka_unit_test(test_sampler_null_is_refused_and_destroyed_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
