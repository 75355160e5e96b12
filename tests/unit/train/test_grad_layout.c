#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "train/grad_layout.h"

#define PARAM(name_, ndim_, shape_, dtype_)                                                   \
    {                                                                                         \
        .struct_size = sizeof(dtrain_param_t), .name = name_, .ndim = ndim_, .shape = shape_, \
        .dtype = dtype_                                                                       \
    }

static const int64_t one[1] = {1}, many[2] = {100, 90}, none[1] = {0}, odd[1] = {33};

static void test_grad_layout_of_one_type_puts_the_last_parameter_first(void **state)
{
    (void)state;
    const dtrain_param_t params[3] = {PARAM("a", 2, many, DTRAIN_DTYPE_F32),
                                      PARAM("b", 1, odd, DTRAIN_DTYPE_F32),
                                      PARAM("c", 0, NULL, DTRAIN_DTYPE_F32)};
    dt_grad_layout_t layout;
    assert_int_equal(dt_grad_layout_make(&layout, params, 3, NULL), DTRAIN_OK);
    assert_int_equal(layout.num_regions, 1);
    assert_int_equal(layout.slices[2].first, 0);
    assert_int_equal(layout.slices[2].count, 1);
    assert_int_equal(layout.slices[1].first, 32);
    assert_int_equal(layout.slices[0].first, 96);
    assert_int_equal(layout.num_blocks, 3);
    assert_int_equal(layout.bytes, 3 * 4096 * 4);
    dt_grad_layout_free(&layout);
}

static void test_grad_layout_of_several_types_keeps_each_in_whole_blocks(void **state)
{
    (void)state;
    dtrain_param_t params[4] = {
        PARAM("a", 1, odd, DTRAIN_DTYPE_F32), PARAM("b", 1, odd, DTRAIN_DTYPE_F64),
        PARAM("c", 1, odd, DTRAIN_DTYPE_F32), PARAM("d", 1, odd, DTRAIN_DTYPE_F32)};
    params[3].gradient_dtype = DTRAIN_DTYPE_BF16;
    const int32_t order[4] = {0, 1, 2, 3};
    dt_grad_layout_t layout;
    assert_int_equal(dt_grad_layout_make(&layout, params, 4, order), DTRAIN_OK);
    assert_int_equal(layout.num_regions, 3);
    assert_int_equal(layout.num_blocks, 3);
    /* By region: a and c, then b, then d. */
    const int32_t places[4] = {0, 2, 1, 3};
    assert_memory_equal(layout.order, places, sizeof places);
    assert_int_equal(layout.slices[2].first, 64);
    assert_int_equal(layout.slices[1].first, 4096);
    assert_int_equal(layout.slices[3].first, 2 * 4096);
    assert_int_equal(layout.bytes, 4096 * (4 + 8 + 2));
    assert_int_equal(layout.param_bytes, 4096 * (4 + 8 + 4));
    const dt_grad_region_t *region = dt_grad_region_of(&layout, 2);
    assert_int_equal(region->dtype, DTRAIN_DTYPE_BF16);
    assert_int_equal(dt_grad_offset(region, 2 * 4096 + 5), 4096 * 12 + 10);
    assert_int_equal(dt_grad_param_offset(region, 2 * 4096 + 5), 4096 * 12 + 20);
    dt_grad_layout_free(&layout);
}

/* All elements of a range are met once, in order. */
static void walk(const dt_grad_layout_t *layout, int64_t begin, int64_t end, int64_t expected)
{
    int64_t seen = 0, last = begin - 1;
    dt_grad_segment_t segment = dt_grad_segment_first(layout, begin, end);
    for (; segment.count > 0; dt_grad_segment_next(layout, end, &segment)) {
        const dt_grad_slice_t *slice = &layout->slices[segment.index];
        assert_true(segment.first > last && segment.first + segment.count <= end);
        assert_int_equal(segment.first, slice->first + segment.begin);
        assert_true(segment.begin + segment.count <= slice->count);
        last = segment.first + segment.count - 1;
        seen += segment.count;
    }
    assert_int_equal(seen, expected);
}

static void test_grad_layout_segments_of_a_range_are_what_slices_have_in_it(void **state)
{
    (void)state;
    const dtrain_param_t params[6] = {
        PARAM("a", 2, many, DTRAIN_DTYPE_F32), PARAM("b", 1, none, DTRAIN_DTYPE_F32),
        PARAM("c", 1, odd, DTRAIN_DTYPE_F32),  PARAM("d", 1, none, DTRAIN_DTYPE_F32),
        PARAM("e", 1, none, DTRAIN_DTYPE_F32), PARAM("f", 1, one, DTRAIN_DTYPE_F32)};
    const int32_t order[6] = {0, 1, 2, 3, 4, 5};
    dt_grad_layout_t layout;
    assert_int_equal(dt_grad_layout_make(&layout, params, 6, order), DTRAIN_OK);
    assert_int_equal(layout.slices[2].first, 9024);
    assert_int_equal(layout.slices[5].first, 9088);
    walk(&layout, 0, 3 * 4096, 9000 + 33 + 1);
    walk(&layout, 4096, 8192, 4096);
    walk(&layout, 8999, 9025, 1 + 1);
    walk(&layout, 9024, 9089, 33 + 1);
    walk(&layout, 9056, 9057, 1);
    walk(&layout, 9057, 9088, 0);
    walk(&layout, 9089, 3 * 4096, 0);
    dt_grad_layout_free(&layout);
}

static void test_grad_layout_without_parameters_is_empty(void **state)
{
    (void)state;
    dt_grad_layout_t layout;
    assert_int_equal(dt_grad_layout_make(&layout, NULL, 0, NULL), DTRAIN_OK);
    assert_int_equal(layout.num_blocks, 0);
    walk(&layout, 0, 4096, 0);
    dt_grad_layout_free(&layout);
}

static void refuse(const dtrain_param_t *params, int n, const int32_t *order, const char *part)
{
    dt_grad_layout_t layout;
    assert_int_equal(dt_grad_layout_make(&layout, params, n, order), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dt_last_error(), part));
    assert_null(layout.slices);
}

static void test_grad_layout_of_what_is_wrong_names_it(void **state)
{
    (void)state;
    const int64_t negative[1] = {-1}, huge[2] = {INT64_C(1) << 40, INT64_C(1) << 30};
    const int32_t twice[2] = {1, 1}, far[2] = {0, 2};
    dtrain_param_t params[2] = {PARAM("a", 1, one, DTRAIN_DTYPE_F32),
                                PARAM("b", 1, one, DTRAIN_DTYPE_F32)};
    refuse(params, 2, twice, "has 1 at place 1");
    refuse(params, 2, far, "has 2 at place 1");
    refuse(NULL, 2, NULL, "2 parameters");
    refuse(params, -1, NULL, "-1 parameters");
    params[1].name = "a";
    refuse(params, 2, NULL, "two parameters have the name 'a'");
    params[1].name = "";
    refuse(params, 2, NULL, "parameter 1 has no name");
    params[1].name = "b";
    params[1].shape = negative;
    refuse(params, 2, NULL, "'b'");
    params[1].shape = huge;
    params[1].ndim = 2;
    refuse(params, 2, NULL, "'b'");
    params[1].ndim = 17;
    refuse(params, 2, NULL, "ndim is 17");
    params[1].ndim = 0;
    params[1].gradient_dtype = (dtrain_dtype_t)77;
    refuse(params, 2, NULL, "77 is no element type");
    params[1].gradient_dtype = 0;
    params[1].struct_size = 8;
    refuse(params, 2, NULL, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grad_layout_of_one_type_puts_the_last_parameter_first),
        cmocka_unit_test(test_grad_layout_of_several_types_keeps_each_in_whole_blocks),
        cmocka_unit_test(test_grad_layout_segments_of_a_range_are_what_slices_have_in_it),
        cmocka_unit_test(test_grad_layout_without_parameters_is_empty),
        cmocka_unit_test(test_grad_layout_of_what_is_wrong_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
