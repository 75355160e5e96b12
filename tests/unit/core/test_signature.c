#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/status.h"
#include "core/signature.h"

static dt_signature_t make(uint8_t ndim, int64_t first, int64_t second)
{
    dt_signature_t signature = {.kind = DT_KIND_ALLREDUCE,
                                .dtype = DTRAIN_DTYPE_F32,
                                .ndim = ndim,
                                .prescale = 1,
                                .postscale = 1,
                                .shape = {first, second}};
    return signature;
}

/* ---- Count -------------------------------------------------------------------------------- */

static void test_signature_count_is_the_product_of_extents(void **state)
{
    (void)state;
    dt_signature_t scalar = make(0, 0, 0), vector = make(1, 7, 0), matrix = make(2, 3, 5);
    assert_int_equal(dt_signature_count(&scalar), 1);
    assert_int_equal(dt_signature_count(&vector), 7);
    assert_int_equal(dt_signature_count(&matrix), 15);
    dt_signature_t most = make(DTRAIN_NDIM_MAX, 2, 2);
    for (int i = 0; i < DTRAIN_NDIM_MAX; i++)
        most.shape[i] = 2;
    assert_int_equal(dt_signature_count(&most), 1 << DTRAIN_NDIM_MAX);
}

static void test_signature_count_with_a_zero_extent_is_zero(void **state)
{
    (void)state;
    dt_signature_t first = make(2, 0, 5), last = make(2, 5, 0), wide = make(2, INT64_MAX, 0);
    assert_int_equal(dt_signature_count(&first), 0);
    assert_int_equal(dt_signature_count(&last), 0);
    assert_int_equal(dt_signature_count(&wide), 0);
}

static void test_signature_count_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    dt_signature_t negative = make(2, 5, -1), beside_zero = make(2, 0, -1);
    assert_int_equal(dt_signature_count(&negative), -1);
    assert_int_equal(dt_signature_count(&beside_zero), -1);
    dt_signature_t wide = make(2, INT64_MAX, 2), bytes = make(1, INT64_MAX / 4 + 1, 0);
    assert_int_equal(dt_signature_count(&wide), -1);
    assert_int_equal(dt_signature_count(&bytes), -1);
    bytes.shape[0]--;
    assert_true(dt_signature_count(&bytes) == INT64_MAX / 4);
}

/* ---- Equality and difference ----------------------------------------------------------------- */

typedef struct change {
    size_t offset, size;
    double number;
    int64_t integer;
    const char *what, *old_value, *new_value;
} change_t;

static const change_t changes[] = {
    {offsetof(dt_signature_t, kind), 1, 0, DT_KIND_BROADCAST, "operation", "allreduce",
     "broadcast"},
    {offsetof(dt_signature_t, op), 1, 0, DTRAIN_OP_MAX, "reduction", "sum", "max"},
    {offsetof(dt_signature_t, dtype), 1, 0, DTRAIN_DTYPE_I64, "type", "float32", "int64"},
    {offsetof(dt_signature_t, ndim), 1, 0, 1, "shape", "[3, 5]", "[3]"},
    {offsetof(dt_signature_t, shape[1]), 8, 0, 6, "shape", "[3, 5]", "[3, 6]"},
    {offsetof(dt_signature_t, device), 4, 0, DTRAIN_DEVICE_CUDA, "device", "host", "GPU"},
    {offsetof(dt_signature_t, root), 4, 0, 3, "root", "0", "3"},
    {offsetof(dt_signature_t, pset), 4, 0, 1, "process set", "0", "1"},
    {offsetof(dt_signature_t, prescale), 0, 0.1, 0, "prescale", "1", "0.10000000000000001"},
    {offsetof(dt_signature_t, codec), 1, 0, 'x', "codec", "none", "x (0 bytes)"},
    {offsetof(dt_signature_t, postscale), 0, -2, 0, "postscale", "1", "-2"},
};

static void test_signature_difference_names_the_field_and_both_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const change_t *change = &changes[i];
        dt_signature_t a = make(2, 3, 5), b = make(2, 3, 5);
        char a_value[64], b_value[64];
        assert_true(dt_signature_equal(&a, &b));
        assert_true(dt_signature_hash(&a) == dt_signature_hash(&b));
        assert_null(dt_signature_difference(&a, &b, a_value, b_value, sizeof a_value));
        if (change->size > 0)
            memcpy((char *)&b + change->offset, &change->integer, change->size);
        else
            memcpy((char *)&b + change->offset, &change->number, sizeof change->number);
        if (b.ndim == 1)
            b.shape[1] = 0;
        assert_false(dt_signature_equal(&a, &b));
        assert_true(dt_signature_hash(&a) != dt_signature_hash(&b));
        const char *what = dt_signature_difference(&a, &b, a_value, b_value, sizeof a_value);
        assert_non_null(what);
        assert_string_equal(what, change->what);
        assert_string_equal(a_value, change->old_value);
        assert_string_equal(b_value, change->new_value);
    }
}

static void test_signature_difference_of_long_shapes_fits(void **state)
{
    (void)state;
    dt_signature_t a = make(DTRAIN_NDIM_MAX, 0, 0), b;
    for (int i = 0; i < DTRAIN_NDIM_MAX; i++)
        a.shape[i] = INT64_MAX - i;
    b = a;
    b.shape[0] = 1;
    char a_value[40], b_value[40];
    assert_string_equal(dt_signature_difference(&a, &b, a_value, b_value, sizeof a_value), "shape");
    assert_int_equal(strlen(a_value), 39);
    assert_memory_equal(b_value, "[1, 92233720", 12);
}

static void test_signature_describe_has_type_and_shape(void **state)
{
    (void)state;
    char text[64] = "before";
    dt_signature_t matrix = make(2, 3, 5), scalar = make(0, 0, 0);
    assert_string_equal(dt_signature_describe(&matrix, text, sizeof text), "float32 [3, 5]");
    assert_string_equal(dt_signature_describe(&scalar, text, sizeof text), "float32 []");
    dt_signature_t barrier = {.kind = DT_KIND_BARRIER};
    assert_string_equal(dt_signature_describe(&barrier, text, sizeof text), "");
}

static void test_signature_kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(dt_kind_name(DT_KIND_ALLREDUCE), "allreduce");
    assert_string_equal(dt_kind_name(DT_KIND_BROADCAST), "broadcast");
    assert_string_equal(dt_kind_name(DT_KIND_BARRIER), "barrier");
    assert_string_equal(dt_kind_name(99), "operation");
}

/* ---- Check ------------------------------------------------------------------------------------
 */

static void refuse(dt_signature_t signature, dtrain_status_t status, const char *part)
{
    assert_int_equal(dt_signature_check(&signature, "layer", 4), status);
    assert_non_null(strstr(dt_last_error(), part));
    assert_non_null(strstr(dt_last_error(), "'layer'"));
}

static void test_signature_check_refuses_what_has_no_meaning(void **state)
{
    (void)state;
    dt_signature_t signature = make(2, 3, 5);
    assert_int_equal(dt_signature_check(&signature, "layer", 4), DTRAIN_OK);
    signature = make(1, -2, 0);
    refuse(signature, DTRAIN_ERR_INVALID_ARGUMENT, "[-2]");
    signature = make(2, 3, 5);
    signature.device = 2;
    refuse(signature, DTRAIN_ERR_INVALID_ARGUMENT, "device 2");
    signature = make(2, 3, 5);
    signature.dtype = DTRAIN_DTYPE_BOOL;
    signature.op = DTRAIN_OP_AVERAGE;
    refuse(signature, DTRAIN_ERR_UNSUPPORTED, "average");
    signature.op = DTRAIN_OP_SUM;
    signature.prescale = 2;
    refuse(signature, DTRAIN_ERR_UNSUPPORTED, "prescale");
}

static void test_signature_check_wants_a_root_in_the_world(void **state)
{
    (void)state;
    dt_signature_t signature = make(2, 3, 5);
    signature.kind = DT_KIND_BROADCAST;
    signature.root = 3;
    assert_int_equal(dt_signature_check(&signature, "layer", 4), DTRAIN_OK);
    signature.root = 4;
    refuse(signature, DTRAIN_ERR_INVALID_ARGUMENT, "root 4 is not a rank of 4");
    signature.root = -1;
    refuse(signature, DTRAIN_ERR_INVALID_ARGUMENT, "root -1");
}

static void test_signature_check_lets_every_barrier_pass(void **state)
{
    (void)state;
    dt_signature_t signature = {.kind = DT_KIND_BARRIER};
    assert_int_equal(dt_signature_check(&signature, "dtrain.barrier", 1), DTRAIN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signature_count_is_the_product_of_extents),
        cmocka_unit_test(test_signature_count_with_a_zero_extent_is_zero),
        cmocka_unit_test(test_signature_count_that_does_not_fit_is_refused),
        cmocka_unit_test(test_signature_difference_names_the_field_and_both_values),
        cmocka_unit_test(test_signature_difference_of_long_shapes_fits),
        cmocka_unit_test(test_signature_describe_has_type_and_shape),
        cmocka_unit_test(test_signature_kinds_have_names),
        cmocka_unit_test(test_signature_check_refuses_what_has_no_meaning),
        cmocka_unit_test(test_signature_check_wants_a_root_in_the_world),
        cmocka_unit_test(test_signature_check_lets_every_barrier_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
