#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/fusion_buffer.h"
#include "failing_memory.h"

static const dt_packing_t as_it_is = {.dtype = DTRAIN_DTYPE_I32, .packed = DTRAIN_DTYPE_I32};

static void test_fusion_buffer_packs_and_unpacks_pieces_in_order(void **state)
{
    (void)state;
    dt_fusion_pool_t pool = {0};
    int failed = -1;
    int32_t a[3] = {1, 2, 3}, b[1] = {4}, c[2] = {5, 6}, a_out[3] = {0}, c_out[2] = {0};
    dt_piece_t pieces[] = {{a, a_out, 3}, {NULL, NULL, 0}, {b, b, 1}, {c, c_out, 2}};
    dt_fusion_buffer_t *buffer = dt_fusion_acquire(&pool, 24, &failed);
    assert_non_null(buffer);
    assert_int_equal(failed, 0);
    assert_true(buffer->capacity >= 24);
    assert_int_equal((uintptr_t)buffer->data % 64, 0);
    dt_fusion_pack(buffer, pieces, 4, as_it_is);
    int32_t *packed = buffer->data;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(packed[i], i + 1);
        packed[i] *= 10;
    }
    dt_fusion_unpack(buffer, pieces, 4, as_it_is);
    assert_memory_equal(a_out, ((int32_t[]){10, 20, 30}), sizeof a_out);
    assert_memory_equal(b, ((int32_t[]){40}), sizeof b);
    assert_memory_equal(c_out, ((int32_t[]){50, 60}), sizeof c_out);
    assert_int_equal(a[0], 1);
    dt_fusion_release(buffer);
    dt_fusion_pool_free(&pool);
}

static void test_fusion_buffer_of_another_type_rounds_and_widens(void **state)
{
    (void)state;
    dt_fusion_pool_t pool = {0};
    dt_packing_t packing = {.dtype = DTRAIN_DTYPE_F32, .packed = DTRAIN_DTYPE_F16};
    int failed;
    float a[3] = {1, -2, 0.1f}, b[1] = {1e6f}, a_out[3];
    dt_piece_t pieces[] = {{a, a_out, 3}, {NULL, NULL, 0}, {b, b, 1}};
    dt_fusion_buffer_t *buffer = dt_fusion_acquire(&pool, 8, &failed);
    dt_fusion_pack(buffer, pieces, 3, packing);
    assert_memory_equal(buffer->data, ((uint16_t[]){0x3c00, 0xc000, 0x2e66, 0x7c00}), 8);
    dt_fusion_unpack(buffer, pieces, 3, packing);
    assert_true(a_out[0] == 1 && a_out[1] == -2 && a_out[2] == 0x1.998p-4f);
    assert_true(b[0] > 3e38f);
    dt_fusion_release(buffer);
    dt_fusion_pool_free(&pool);
}

static void test_fusion_buffer_pool_has_a_few_and_reuses_them(void **state)
{
    (void)state;
    dt_fusion_pool_t pool = {0};
    dt_fusion_buffer_t *buffers[DT_FUSION_BUFFERS];
    int failed;
    for (int i = 0; i < DT_FUSION_BUFFERS; i++) {
        buffers[i] = dt_fusion_acquire(&pool, 100 << i, &failed);
        assert_non_null(buffers[i]);
        memset(buffers[i]->data, i, 100 << i);
    }
    failed = 1;
    assert_null(dt_fusion_acquire(&pool, 1, &failed));
    assert_int_equal(failed, 0);
    dt_fusion_release(buffers[1]);
    void *data = buffers[1]->data;
    assert_ptr_equal(dt_fusion_acquire(&pool, 200, &failed), buffers[1]);
    assert_ptr_equal(buffers[1]->data, data);
    dt_fusion_release(buffers[1]);
    assert_ptr_equal(dt_fusion_acquire(&pool, 1 << 20, &failed), buffers[1]);
    assert_true(buffers[1]->capacity >= 1 << 20);
    memset(buffers[1]->data, 1, 1 << 20);
    dt_fusion_pool_free(&pool);
}

static void test_fusion_buffer_of_nothing_can_be_packed(void **state)
{
    (void)state;
    dt_fusion_pool_t pool = {0};
    dt_piece_t pieces[2] = {{0}};
    int failed;
    dt_fusion_buffer_t *buffer = dt_fusion_acquire(&pool, 0, &failed);
    assert_non_null(buffer);
    dt_fusion_pack(buffer, pieces, 2, as_it_is);
    dt_fusion_unpack(buffer, pieces, 2, as_it_is);
    dt_fusion_release(buffer);
    dt_fusion_pool_free(&pool);
}

static void test_fusion_buffer_out_of_memory_is_told_apart(void **state)
{
    (void)state;
    dt_fusion_pool_t pool = {0};
    int failed = 0, before = memory_live();
    memory_fail_at(1);
    assert_null(dt_fusion_acquire(&pool, 5000, &failed));
    assert_int_equal(failed, 1);
    memory_fail_at(0);
    assert_non_null(dt_fusion_acquire(&pool, 5000, &failed));
    assert_int_equal(failed, 0);
    dt_fusion_pool_free(&pool);
    assert_int_equal(memory_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fusion_buffer_packs_and_unpacks_pieces_in_order),
        cmocka_unit_test(test_fusion_buffer_of_another_type_rounds_and_widens),
        cmocka_unit_test(test_fusion_buffer_pool_has_a_few_and_reuses_them),
        cmocka_unit_test(test_fusion_buffer_of_nothing_can_be_packed),
        cmocka_unit_test(test_fusion_buffer_out_of_memory_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
