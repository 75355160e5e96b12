#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/grad_match.h"

static const int64_t shape_a[2] = {3, 4}, shape_b[1] = {5}, other_shape[2] = {4, 3};

typedef struct side {
    dtrain_param_t params[2];
    int n;
    const int32_t *order;
    dt_grad_terms_t terms;
    dt_grad_layout_t layout;
    dt_buffer_t bytes;
} side_t;

static side_t make_side(void)
{
    side_t side = {.n = 2,
                   .terms = {.op = DTRAIN_OP_AVERAGE,
                             .prescale = 1,
                             .postscale = 1,
                             .first_bucket_bytes = 10,
                             .bucket_bytes = 20}};
    side.params[0] = (dtrain_param_t){.struct_size = sizeof(dtrain_param_t),
                                      .name = "a",
                                      .ndim = 2,
                                      .shape = shape_a,
                                      .dtype = DTRAIN_DTYPE_F32};
    side.params[1] = (dtrain_param_t){.struct_size = sizeof(dtrain_param_t),
                                      .name = "b",
                                      .ndim = 1,
                                      .shape = shape_b,
                                      .dtype = DTRAIN_DTYPE_F32};
    return side;
}

static void write_side(side_t *side)
{
    assert_int_equal(dt_grad_layout_make(&side->layout, side->params, side->n, side->order),
                     DTRAIN_OK);
    dt_grad_match_write(&side->layout, &side->terms, &side->bytes);
    assert_false(side->bytes.failed);
}

static void free_side(side_t *side)
{
    dt_grad_layout_free(&side->layout);
    dt_buffer_free(&side->bytes);
}

/* What rank 3 with `own` says of what rank 0 wrote. */
static void expect(side_t *own, int result, const char *text)
{
    char found[300] = "";
    side_t first = make_side();
    write_side(&first);
    write_side(own);
    assert_int_equal(dt_grad_match_compare(&own->layout, &own->terms, 3, first.bytes.data,
                                           first.bytes.length, 0, found, sizeof found),
                     result);
    assert_string_equal(found, text);
    free_side(&first);
    free_side(own);
}

static void test_grad_match_of_the_same_layouts_agrees(void **state)
{
    (void)state;
    side_t own = make_side();
    expect(&own, 0, "");
}

static void test_grad_match_of_different_tensors_names_them_with_both_values(void **state)
{
    (void)state;
    const int32_t order[2] = {0, 1};
    side_t own = make_side();
    own.params[0].shape = other_shape;
    expect(&own, 1, "tensor 'a': shape is [4, 3] on rank 3, and [3, 4] on rank 0");
    own = make_side();
    own.params[1].name = "c";
    expect(&own, 1, "parameter 1: the name is 'c' on rank 3, and 'b' on rank 0");
    own = make_side();
    own.params[1].gradient_dtype = DTRAIN_DTYPE_F16;
    expect(&own, 1, "tensor 'b': the gradient's type is float16 on rank 3, and float32 on rank 0");
    own = make_side();
    own.params[1].dtype = DTRAIN_DTYPE_F64;
    own.params[1].gradient_dtype = DTRAIN_DTYPE_F32;
    expect(&own, 1, "tensor 'b': the type is float64 on rank 3, and float32 on rank 0");
    own = make_side();
    own.order = order;
    expect(&own, 1, "tensor 'a': its place in the order is 0 on rank 3, and 32 on rank 0");
    own = make_side();
    own.n = 1;
    expect(&own, 1, "the set: the number of parameters is 1 on rank 3, and 2 on rank 0");
}

static void test_grad_match_of_different_settings_names_them_with_both_values(void **state)
{
    (void)state;
    side_t own = make_side();
    own.terms.op = DTRAIN_OP_SUM;
    expect(&own, 1, "the set: op is sum on rank 3, and average on rank 0");
    own = make_side();
    own.terms.prescale = 0.5;
    expect(&own, 1, "the set: prescale is 0.5 on rank 3, and 1 on rank 0");
    own = make_side();
    own.terms.bucket_bytes = 21;
    expect(&own, 1, "the set: bucket_bytes is 21 on rank 3, and 20 on rank 0");
}

static void test_grad_match_of_damaged_bytes_is_noticed(void **state)
{
    (void)state;
    char text[300];
    side_t own = make_side();
    write_side(&own);
    for (size_t length = 0; length < own.bytes.length; length++)
        assert_int_not_equal(dt_grad_match_compare(&own.layout, &own.terms, 1, own.bytes.data,
                                                   length, 0, text, sizeof text),
                             0);
    free_side(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grad_match_of_the_same_layouts_agrees),
        cmocka_unit_test(test_grad_match_of_different_tensors_names_them_with_both_values),
        cmocka_unit_test(test_grad_match_of_different_settings_names_them_with_both_values),
        cmocka_unit_test(test_grad_match_of_damaged_bytes_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
