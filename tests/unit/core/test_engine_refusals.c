/* Calls that a layer above the library refuses: the other ranks read why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine_world.h"

#define GROUP 3

static const char why[] = "broadcast 'x': a list of text";

/* As dtrain_refuse. */
static void refuse(engine_rank_t *self, const char *const *names, int n, dtrain_pset_t pset)
{
    dtrain_tensor_t tensors[GROUP];
    dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
    for (int i = 0; i < n; i++)
        tensors[i] = (dtrain_tensor_t){.struct_size = sizeof tensors[i], .name = names[i]};
    dt_submission_t submission = {
        .kind = DT_KIND_ALLREDUCE, .tensor = tensors, .options = &options, .refusal = why};
    dtrain_status_t status = n == 1 ? dt_runtime_submit(self->runtime, &submission, NULL)
                                    : dt_runtime_submit_group(self->runtime, &submission, n, NULL);
    ENGINE_STATUS(self, status, DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), why);
}

/* Rank 1 refuses whatever the others do under the name. */
static void refuse_each_kind(engine_rank_t *self)
{
    static const dt_kind_t kinds[] = {DT_KIND_ALLREDUCE, DT_KIND_BROADCAST, DT_KIND_ALLGATHER,
                                      DT_KIND_ALLTOALL, DT_KIND_SCATTER};
    static const char *const name = "x";
    float in[12] = {0}, out[12];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        engine_op_t op = {.name = name, .kind = kinds[i], .in = in, .count = 2 * self->size};
        op.out = kinds[i] == DT_KIND_ALLREDUCE || kinds[i] == DT_KIND_BROADCAST ? out : NULL;
        if (self->rank == 1) {
            refuse(self, &name, 1, DTRAIN_PSET_WORLD);
        } else {
            ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
            ENGINE_TEXT(self, dt_last_error(), "rank 1: broadcast 'x': a list of text");
        }
        engine_check_works(self, name);
    }
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_refusal_from_above_is_read_by_the_others(void **state)
{
    (void)state;
    engine_run(2, NULL, refuse_each_kind, NULL);
    engine_run(3, NULL, refuse_each_kind, NULL);
}

/* A group is refused with all of its names, and the next one of these names works. */
static void refuse_group(engine_rank_t *self)
{
    static const char *const names[GROUP] = {"g.0", "g.1", "g.2"};
    float values[GROUP] = {0};
    engine_op_t ops[GROUP];
    dtrain_handle_t handles[GROUP];
    for (int i = 0; i < GROUP; i++)
        ops[i] = (engine_op_t){.name = names[i], .in = &values[i], .out = &values[i], .count = 1};
    for (int round = 0; round < 5; round++) {
        if (self->rank == 1 && round % 2 == 0) {
            refuse(self, names, GROUP, DTRAIN_PSET_WORLD);
            continue;
        }
        ENGINE_OK(self, engine_submit_group(self, ops, GROUP, handles));
        for (int i = 0; i < GROUP; i++) {
            dtrain_status_t status = engine_finish(self, handles[i]);
            ENGINE_STATUS(self, status, round % 2 ? DTRAIN_OK : DTRAIN_ERR_INVALID_ARGUMENT);
            if (status != DTRAIN_OK)
                ENGINE_TEXT(self, dt_last_error(), why);
        }
    }
    engine_check_works(self, "g.0");
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_refusal_of_a_group_leaves_none_of_its_names(void **state)
{
    (void)state;
    engine_run(2, NULL, refuse_group, NULL);
    engine_run(3, NULL, refuse_group, NULL);
}

/* In a set its members alone read it. */
static void refuse_in_set(engine_rank_t *self)
{
    static const char *const name = "x";
    static const int members[] = {1, 2};
    float value = 1;
    dtrain_pset_t set;
    ENGINE_OK(self, engine_pset_add(self, members, 2, &set));
    engine_op_t in_set = {.name = name, .in = &value, .out = &value, .count = 1, .pset = set};
    if (self->rank == 1) {
        refuse(self, &name, 1, set);
    } else if (self->rank == 2) {
        ENGINE_STATUS(self, engine_do(self, &in_set), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "rank 1: broadcast 'x': a list of text");
    }
    engine_check_works(self, name);
    if (self->rank > 0)
        ENGINE_OK(self, engine_do(self, &in_set));
}

static void test_engine_refusal_in_a_set_reaches_its_members(void **state)
{
    (void)state;
    engine_run(3, NULL, refuse_in_set, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_refusal_from_above_is_read_by_the_others),
        cmocka_unit_test(test_engine_refusal_of_a_group_leaves_none_of_its_names),
        cmocka_unit_test(test_engine_refusal_in_a_set_reaches_its_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
