#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "comm/shm/shm_eager.h"

#define RANKS_MAX 5
#define COUNT_MAX (DT_EAGER_BYTES / 4)

typedef struct bench {
    int size;
    uint8_t *memory;
    dt_shm_eager_t *ranks[RANKS_MAX];
} bench_t;

static void open_bench(bench_t *bench, int size)
{
    uint8_t *places[RANKS_MAX];
    bench->size = size;
    bench->memory = calloc((size_t)size, DT_SHM_EAGER_BYTES);
    assert_non_null(bench->memory);
    for (int rank = 0; rank < size; rank++)
        places[rank] = bench->memory + (size_t)rank * DT_SHM_EAGER_BYTES;
    for (int rank = 0; rank < size; rank++) {
        bench->ranks[rank] = dt_shm_eager_create(places, rank, size);
        assert_non_null(bench->ranks[rank]);
    }
}

static void close_bench(bench_t *bench)
{
    for (int rank = 0; rank < bench->size; rank++)
        dt_shm_eager_free(bench->ranks[rank]);
    free(bench->memory);
}

static const dt_reduction_t sum = {
    .dtype = DTRAIN_DTYPE_I32, .op = DTRAIN_OP_SUM, .divisor = 1, .prescale = 1, .postscale = 1};

static int32_t value(int rank, int round, int element)
{
    return (rank + 1) * 1000003 + round * 7919 + element * 31;
}

static void post(bench_t *bench, int rank, uint32_t slot, int round, int count)
{
    int32_t in[COUNT_MAX];
    for (int i = 0; i < count; i++)
        in[i] = value(rank, round, i);
    dt_shm_eager_post(bench->ranks[rank], slot, in, (size_t)count * 4);
}

static void assert_takes_sum(bench_t *bench, int rank, uint32_t slot, int round, int count)
{
    int32_t out[COUNT_MAX + 1];
    out[count] = 4711;
    dt_shm_eager_take(bench->ranks[rank], slot, &sum, out, (size_t)count);
    assert_int_equal(out[count], 4711);
    for (int i = 0; i < count; i++) {
        int32_t expected = 0;
        for (int r = 0; r < bench->size; r++)
            expected += value(r, round, i);
        assert_int_equal(out[i], expected);
    }
}

/* Ranks run ahead of each other as far as an engine lets them: a round is taken when all have
 * posted it, and the next is posted after that. */
static void test_shm_eager_ranks_that_run_ahead_do_not_overwrite(void **state)
{
    (void)state;
    enum { ROUNDS = 2000 };
    const uint32_t slots[] = {0, DT_EAGER_SLOTS - 1};
    for (int size = 1; size <= RANKS_MAX; size++) {
        bench_t bench;
        open_bench(&bench, size);
        int posted[2][RANKS_MAX] = {{0}}, taken[2][RANKS_MAX] = {{0}};
        unsigned seed = (unsigned)size;
        for (int left = 2 * 2 * size * ROUNDS; left > 0;) {
            int s = rand_r(&seed) % 2, rank = rand_r(&seed) % size, may_take = 1;
            for (int r = 0; r < size; r++)
                may_take &= posted[s][r] > taken[s][rank];
            if (posted[s][rank] == taken[s][rank] && posted[s][rank] < ROUNDS) {
                int count = 1 + posted[s][rank] % COUNT_MAX;
                post(&bench, rank, slots[s], posted[s][rank]++, count);
                left--;
            } else if (may_take && taken[s][rank] < posted[s][rank]) {
                int count = 1 + taken[s][rank] % COUNT_MAX;
                assert_takes_sum(&bench, rank, slots[s], taken[s][rank]++, count);
                left--;
            }
        }
        close_bench(&bench);
    }
}

/* An operation that failed on the way was posted by some ranks, and is posted again. */
static void test_shm_eager_post_that_was_not_taken_is_replaced(void **state)
{
    (void)state;
    bench_t bench;
    open_bench(&bench, 3);
    post(&bench, 0, 9, 100, 4);
    post(&bench, 2, 9, 101, 8);
    for (int rank = 0; rank < 3; rank++)
        post(&bench, rank, 9, 1, 6);
    for (int rank = 0; rank < 3; rank++)
        assert_takes_sum(&bench, rank, 9, 1, 6);
    close_bench(&bench);
}

/* Taking and collecting take turns on a slot, as on the places of one. */
static void test_shm_eager_collect_brings_all_that_was_posted(void **state)
{
    (void)state;
    bench_t bench;
    open_bench(&bench, 3);
    for (int round = 0; round < 4; round++) {
        for (int rank = 0; rank < 3; rank++)
            post(&bench, rank, 5, round, 6);
        for (int rank = 0; rank < 3; rank++) {
            int32_t out[3][6];
            if (round == 1) {
                assert_takes_sum(&bench, rank, 5, round, 6);
                continue;
            }
            dt_shm_eager_collect(bench.ranks[rank], 5, out, sizeof out[0]);
            for (int r = 0; r < 3; r++)
                assert_int_equal(out[r][5], value(r, round, 5));
        }
    }
    close_bench(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_eager_ranks_that_run_ahead_do_not_overwrite),
        cmocka_unit_test(test_shm_eager_post_that_was_not_taken_is_replaced),
        cmocka_unit_test(test_shm_eager_collect_brings_all_that_was_posted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
