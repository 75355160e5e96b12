/* Process sets on ranks that are threads: what operations on them come to, and in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"
#include "reduce/reduce.h"

#define COUNT 37

/* A generator of one's own: the same numbers on every rank and in every run. */
static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A value whose sum depends on the order of addition. */
static float value_of(int rank, int index)
{
    uint32_t seed = (uint32_t)(rank * 7919 + index * 104729 + 1);
    next_random(&seed);
    return (float)next_random(&seed) * (index % 3 == 0 ? 1e-3f : 1e3f) - 1e7f;
}

static int place_of(const int *ranks, int n, int rank)
{
    for (int i = 0; i < n; i++) {
        if (ranks[i] == rank)
            return i;
    }
    return -1;
}

/* Whether `out` is the reduction of the set's values in the set's order, to the bit. */
static int is_reduced(const int *ranks, int n, dtrain_op_t op, const float *out)
{
    float values[ENGINE_RANKS_MAX][COUNT], wanted[COUNT];
    const void *sources[ENGINE_RANKS_MAX];
    void *destination = wanted;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < COUNT; k++)
            values[i][k] = value_of(ranks[i], k);
        sources[i] = values[i];
    }
    dt_reduction_t reduction = {.dtype = DTRAIN_DTYPE_F32,
                                .op = op,
                                .divisor = op == DTRAIN_OP_AVERAGE ? n : 1,
                                .prescale = 1,
                                .postscale = 1};
    dt_reduce(&reduction, &destination, 1, sources, n, COUNT);
    for (int k = 0; k < COUNT; k++) {
        uint32_t wanted_bits, bits;
        memcpy(&wanted_bits, &wanted[k], sizeof bits);
        memcpy(&bits, &out[k], sizeof bits);
        if (bits != wanted_bits)
            return 0;
    }
    return 1;
}

/* A random list of ranks, of at least one. */
static int pick_ranks(uint32_t *seed, int size, int *ranks)
{
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    for (int i = size - 1; i > 0; i--) {
        int j = (int)(next_random(seed) % (uint32_t)(i + 1));
        int moved = ranks[i];
        ranks[i] = ranks[j];
        ranks[j] = moved;
    }
    return 1 + (int)(next_random(seed) % (uint32_t)size);
}

/* ---- Values -------------------------------------------------------------------------------- */

static void reduce_on_sets(engine_rank_t *self)
{
    uint32_t seed = 42;
    for (int round = 0; round < 12; round++) {
        int ranks[ENGINE_RANKS_MAX], n = pick_ranks(&seed, self->size, ranks);
        dtrain_pset_t pset = -1;
        ENGINE_OK(self, engine_pset_add(self, ranks, n, &pset));
        ENGINE_CHECK(self, pset == round + 1);
        int own, size, listed[ENGINE_RANKS_MAX];
        ENGINE_OK(self, dt_pset_describe(&self->runtime->psets, pset, &own, &size, listed,
                                         ENGINE_RANKS_MAX));
        ENGINE_CHECK(self, own == place_of(ranks, n, self->rank) && size == n);
        ENGINE_CHECK(self, memcmp(listed, ranks, (size_t)n * sizeof ranks[0]) == 0);
        for (int op = 0; own >= 0 && op <= DTRAIN_OP_MAX; op++) {
            float in[COUNT], out[COUNT];
            for (int k = 0; k < COUNT; k++)
                in[k] = value_of(self->rank, k);
            engine_op_t reduce = {.name = "x",
                                  .in = in,
                                  .out = out,
                                  .count = COUNT,
                                  .op = (dtrain_op_t)op,
                                  .pset = pset};
            ENGINE_OK(self, engine_do(self, &reduce));
            ENGINE_CHECK(self, is_reduced(ranks, n, (dtrain_op_t)op, out));
        }
        if (round % 3 == 0)
            ENGINE_OK(self, engine_pset_remove(self, pset));
    }
    engine_check_works(self, "x");
}

static void test_engine_set_reduces_its_ranks_in_its_order(void **state)
{
    (void)state;
    for (int size = 1; size <= ENGINE_RANKS_MAX; size++)
        engine_run(size, NULL, reduce_on_sets, NULL);
}

static void broadcast_on_sets(engine_rank_t *self)
{
    int ranks[] = {3, 1, 2};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 3, &pset));
    for (int i = 0; i < 3 && self->rank > 0; i++) {
        float values[COUNT];
        for (int k = 0; k < COUNT; k++)
            values[k] = value_of(self->rank, k);
        engine_op_t op = {.name = "b",
                          .kind = DT_KIND_BROADCAST,
                          .in = values,
                          .out = values,
                          .count = COUNT,
                          .root = ranks[i],
                          .pset = pset};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, values[0] == value_of(ranks[i], 0) &&
                               values[COUNT - 1] == value_of(ranks[i], COUNT - 1));
        engine_op_t barrier = {.kind = DT_KIND_BARRIER, .pset = pset};
        ENGINE_OK(self, engine_do(self, &barrier));
    }
}

static void test_engine_broadcast_on_a_set_has_a_root_of_the_world(void **state)
{
    (void)state;
    engine_run(4, NULL, broadcast_on_sets, NULL);
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* The same name in flight in the world and in two sets, submitted in different orders. */
static void same_name(engine_rank_t *self)
{
    int even[] = {0, 2}, pair[] = {2, 1, 0};
    dtrain_pset_t sets[3] = {DTRAIN_PSET_WORLD};
    ENGINE_OK(self, engine_pset_add(self, even, 2, &sets[1]));
    ENGINE_OK(self, engine_pset_add(self, pair, 3, &sets[2]));
    static const float wanted[3] = {10, 4, 6};
    for (int step = 0; step < 4; step++) {
        float values[3];
        dtrain_handle_t handles[3] = {0};
        for (int i = 0; i < 3; i++) {
            int s = (i + self->rank) % 3;
            values[s] = (float)(self->rank + 1);
            engine_op_t op = {
                .name = "x", .in = &values[s], .out = &values[s], .count = 1, .pset = sets[s]};
            if ((s == 1 && self->rank % 2 == 0) || (s == 2 && self->rank < 3) || s == 0)
                ENGINE_OK(self, engine_submit(self, &op, &handles[s]));
        }
        for (int s = 0; s < 3; s++) {
            if (handles[s]) {
                ENGINE_OK(self, engine_finish(self, handles[s]));
                ENGINE_CHECK(self, values[s] == wanted[s]);
            }
        }
    }
}

static void test_engine_name_may_be_in_flight_in_several_sets(void **state)
{
    (void)state;
    engine_run(4, NULL, same_name, NULL);
}

/* A set goes on while the world waits for a rank, and the world while a set does. */
static void independent(engine_rank_t *self)
{
    int ranks[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    float *world = engine_buffer(self, 64), *set = engine_buffer(self, 64), values[5] = {1};
    engine_op_t on_world = {.name = "w", .in = world, .out = world, .count = 5};
    engine_op_t on_set = {.name = "s", .in = set, .out = set, .count = 5, .pset = pset};
    engine_op_t again = {.name = "again", .in = values, .out = values, .count = 5, .pset = pset};
    dtrain_handle_t waiting = 0, held = 0;
    if (self->rank != 2)
        ENGINE_OK(self, engine_submit(self, &on_world, &waiting));
    if (self->rank == 0)
        ENGINE_OK(self, engine_submit(self, &on_set, &held));
    for (int i = 0; i < 5 && self->rank != 2; i++)
        ENGINE_OK(self, engine_do(self, &again));
    engine_meet(self);
    if (self->rank == 2)
        ENGINE_OK(self, engine_submit(self, &on_world, &waiting));
    ENGINE_OK(self, engine_finish(self, waiting));
    engine_meet(self);
    if (self->rank == 1)
        ENGINE_OK(self, engine_submit(self, &on_set, &held));
    if (held)
        ENGINE_OK(self, engine_finish(self, held));
}

static void test_engine_sets_do_not_wait_for_each_other(void **state)
{
    (void)state;
    engine_run(3, NULL, independent, NULL);
}

/* ---- Random programs ------------------------------------------------------------------------ */

#define SETS 6
#define OPS 40

/* One operation of a program, the same on all ranks. */
typedef struct step {
    int set; /* index; 0: the world */
    dtrain_op_t op;
    char name[16];
} step_t;

/* Every rank submits the operations of its sets in an order of its own. */
static void random_program(engine_rank_t *self)
{
    uint32_t seed = *(const uint32_t *)self->argument, order = seed + (uint32_t)self->rank;
    int ranks[SETS][ENGINE_RANKS_MAX], n[SETS], queue[OPS];
    dtrain_pset_t ids[SETS] = {DTRAIN_PSET_WORLD};
    step_t steps[OPS];
    n[0] = self->size;
    for (int i = 0; i < self->size; i++)
        ranks[0][i] = i;
    for (int s = 1; s < SETS; s++) {
        n[s] = pick_ranks(&seed, self->size, ranks[s]);
        ENGINE_OK(self, engine_pset_add(self, ranks[s], n[s], &ids[s]));
    }
    float *in = engine_buffer(self, OPS * COUNT * sizeof *in);
    float *out = engine_buffer(self, OPS * COUNT * sizeof *out);
    for (int round = 0; round < 3; round++) {
        dtrain_handle_t handles[OPS] = {0};
        for (int i = 0; i < OPS; i++) {
            steps[i].set = (int)(next_random(&seed) % SETS);
            steps[i].op = (dtrain_op_t)(next_random(&seed) % 4);
            snprintf(steps[i].name, sizeof steps[i].name, "t%d", i);
            queue[i] = i;
        }
        for (int i = OPS - 1; i > 0; i--) {
            int j = (int)(next_random(&order) % (uint32_t)(i + 1)), moved = queue[i];
            queue[i] = queue[j];
            queue[j] = moved;
        }
        for (int q = 0; q < OPS; q++) {
            int i = queue[q], s = steps[i].set;
            for (int k = 0; k < COUNT; k++)
                in[i * COUNT + k] = value_of(self->rank, k);
            engine_op_t op = {.name = steps[i].name,
                              .in = in + i * COUNT,
                              .out = out + i * COUNT,
                              .count = COUNT,
                              .op = steps[i].op,
                              .pset = ids[s]};
            if (place_of(ranks[s], n[s], self->rank) >= 0)
                ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
        }
        for (int i = 0; i < OPS; i++) {
            if (!handles[i])
                continue;
            ENGINE_OK(self, engine_finish(self, handles[i]));
            int s = steps[i].set;
            ENGINE_CHECK(self, is_reduced(ranks[s], n[s], steps[i].op, out + i * COUNT));
        }
    }
}

static void test_engine_random_programs_over_sets_come_out_right(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 24; seed++)
        engine_run(1 + (int)(seed % ENGINE_RANKS_MAX), NULL, random_program, &seed);
}

/* ---- Many ----------------------------------------------------------------------------------- */

#define MANY 200

static void many_sets(engine_rank_t *self)
{
    dtrain_pset_t ids[MANY];
    uint32_t seed = 7;
    int ranks[MANY][ENGINE_RANKS_MAX], n[MANY];
    for (int s = 0; s < MANY; s++) {
        n[s] = pick_ranks(&seed, self->size, ranks[s]);
        ENGINE_OK(self, engine_pset_add(self, ranks[s], n[s], &ids[s]));
    }
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    dtrain_handle_t(*handles)[5] = engine_buffer(self, MANY * sizeof *handles);
    float(*values)[5] = engine_buffer(self, MANY * sizeof *values);
    for (int i = 0; i < MANY; i++) {
        int s = self->rank % 2 ? MANY - 1 - i : i;
        for (int k = 0; k < 5 && place_of(ranks[s], n[s], self->rank) >= 0; k++) {
            values[s][k] = (float)(1 << self->rank);
            engine_op_t op = {.name = names[k],
                              .in = &values[s][k],
                              .out = &values[s][k],
                              .count = 1,
                              .pset = ids[s]};
            ENGINE_OK(self, engine_submit(self, &op, &handles[s][k]));
        }
    }
    for (int s = 0; s < MANY; s++) {
        float sum = 0;
        for (int i = 0; i < n[s]; i++)
            sum += (float)(1 << ranks[s][i]);
        for (int k = 0; k < 5 && handles[s][k]; k++) {
            ENGINE_OK(self, engine_finish(self, handles[s][k]));
            ENGINE_CHECK(self, values[s][k] == sum);
        }
    }
    for (int s = 0; s < MANY; s++)
        ENGINE_OK(self, engine_pset_remove(self, ids[s]));
}

static void test_engine_many_sets_with_many_pending_operations_work(void **state)
{
    (void)state;
    engine_run(4, NULL, many_sets, NULL);
    engine_run(7, NULL, many_sets, NULL);
}

/* More sets over time than there can be at one time, each with names that get ids. */
static void come_and_go(engine_rank_t *self)
{
    int ranks[] = {1, 0};
    for (int round = 0; round < 300; round++) {
        dtrain_pset_t pset;
        ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
        ENGINE_CHECK(self, pset == round + 1);
        for (int i = 0; i < 4 && self->rank < 2; i++) {
            float value = (float)(self->rank + i);
            engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = pset};
            ENGINE_OK(self, engine_do(self, &op));
            ENGINE_CHECK(self, value == (float)(2 * i + 1));
        }
        ENGINE_OK(self, engine_pset_remove(self, pset));
    }
    engine_check_works(self, "x");
}

static void test_engine_sets_that_come_and_go_leave_room(void **state)
{
    (void)state;
    engine_run(3, NULL, come_and_go, NULL);
}

/* ---- From the start -----------------------------------------------------------------------------
 */

static void configured(engine_rank_t *self)
{
    int own, size, ranks[4];
    ENGINE_OK(self, dt_pset_describe(&self->runtime->psets, 1, &own, &size, ranks, 4));
    ENGINE_CHECK(self, size == 2 && ranks[0] == 3 && ranks[1] == 0);
    ENGINE_OK(self, dt_pset_describe(&self->runtime->psets, 2, &own, &size, ranks, 4));
    ENGINE_CHECK(self, size == 3 && ranks[0] == 1 && ranks[2] == 3 && own == self->rank - 1);
    float value = 1;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = 2};
    if (self->rank > 0) {
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, value == 3);
    }
    int one = 2;
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, &one, 1, &pset));
    ENGINE_CHECK(self, pset == 3);
}

static void test_engine_configured_sets_are_there_from_the_start(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    strcpy(config.process_sets, "3, 0;1-3");
    engine_run(4, &config, configured, NULL);
}

static void test_engine_configured_sets_that_cannot_be_are_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {{"0,4", "rank 4"},         {"0,1,0", "twice"},  {"0;;1", "expected"},
                 {"1-", "expected"},        {"2-1", "expected"}, {"0,1 x", "expected"},
                 {"0-99999", "more ranks"}, {"-1", "expected"},  {"0;", "expected"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dt_config_t config = engine_config();
        strcpy(config.process_sets, cases[i].text);
        dt_loopback_t *loopback = dt_loopback_create(3, 1);
        for (int rank = 0; rank < 3; rank++) {
            dt_world_t world;
            dt_runtime_t *runtime = NULL;
            assert_int_equal(dt_loopback_join(loopback, rank, &world), DTRAIN_OK);
            assert_int_equal(dt_runtime_create(&world, &config, NULL, &runtime), DTRAIN_ERR_CONFIG);
            assert_non_null(strstr(dt_last_error(), "process_sets"));
            assert_non_null(strstr(dt_last_error(), cases[i].part));
            assert_null(runtime);
        }
        dt_loopback_free(loopback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_set_reduces_its_ranks_in_its_order),
        cmocka_unit_test(test_engine_broadcast_on_a_set_has_a_root_of_the_world),
        cmocka_unit_test(test_engine_name_may_be_in_flight_in_several_sets),
        cmocka_unit_test(test_engine_sets_do_not_wait_for_each_other),
        cmocka_unit_test(test_engine_random_programs_over_sets_come_out_right),
        cmocka_unit_test(test_engine_many_sets_with_many_pending_operations_work),
        cmocka_unit_test(test_engine_sets_that_come_and_go_leave_room),
        cmocka_unit_test(test_engine_configured_sets_are_there_from_the_start),
        cmocka_unit_test(test_engine_configured_sets_that_cannot_be_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
