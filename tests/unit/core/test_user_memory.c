#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/status.h"
#include "core/user_memory.h"
#include "failing_memory.h"

/* A backend with memory of its own kind: one block. */
typedef struct fake {
    dt_backend_t base;
    char block[64];
    int is_out;
} fake_t;

static dtrain_status_t fake_allocate(dt_backend_t *backend, size_t bytes, void **memory)
{
    fake_t *fake = (fake_t *)backend;
    if (fake->is_out || bytes > sizeof fake->block)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "one block is all there is");
    fake->is_out = 1;
    *memory = fake->block;
    return DTRAIN_OK;
}

static int fake_deallocate(dt_backend_t *backend, void *memory)
{
    fake_t *fake = (fake_t *)backend;
    if (memory != fake->block || !fake->is_out)
        return -1;
    fake->is_out = 0;
    return 0;
}

static const dt_backend_ops_t own_ops = {.allocate = fake_allocate, .deallocate = fake_deallocate};
static dt_gpu_t no_gpu; /* not open */
static const dt_backend_ops_t no_ops = {.name = "any memory is as good"};

static void test_user_memory_is_aligned_zeroed_and_usable(void **state)
{
    (void)state;
    fake_t fake = {.base.ops = &no_ops};
    dt_user_memory_t memory;
    dt_user_memory_init(&memory, &fake.base, &no_gpu);
    static const size_t sizes[] = {0, 1, 4095, 4096, 100000};
    void *blocks[5];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(dt_user_memory_alloc(&memory, sizes[i], DTRAIN_DEVICE_CPU, &blocks[i]),
                         DTRAIN_OK);
        assert_int_equal((uintptr_t)blocks[i] % 4096, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(((char *)blocks[i])[k], 0);
        memset(blocks[i], i + 1, sizes[i]);
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(dt_user_memory_free(&memory, blocks[(i + 2) % 5]), DTRAIN_OK);
    dt_user_memory_free_all(&memory);
}

static void test_user_memory_free_of_what_is_not_out_is_refused(void **state)
{
    (void)state;
    fake_t fake = {.base.ops = &no_ops};
    dt_user_memory_t memory;
    void *block;
    dt_user_memory_init(&memory, &fake.base, &no_gpu);
    assert_int_equal(dt_user_memory_alloc(&memory, 100, DTRAIN_DEVICE_CPU, &block), DTRAIN_OK);
    assert_int_equal(dt_user_memory_free(&memory, (char *)block + 8), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_user_memory_free(&memory, &fake), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_user_memory_free(&memory, NULL), DTRAIN_OK);
    assert_int_equal(dt_user_memory_free(&memory, block), DTRAIN_OK);
    assert_int_equal(dt_user_memory_free(&memory, block), DTRAIN_ERR_INVALID_ARGUMENT);
    dt_user_memory_free_all(&memory);
}

static void test_user_memory_gives_back_what_the_caller_did_not(void **state)
{
    (void)state;
    fake_t fake = {.base.ops = &no_ops};
    dt_user_memory_t memory;
    int before = memory_live();
    dt_user_memory_init(&memory, &fake.base, &no_gpu);
    for (int i = 0; i < 3; i++) {
        void *block;
        assert_int_equal(dt_user_memory_alloc(&memory, 10, DTRAIN_DEVICE_CPU, &block), DTRAIN_OK);
    }
    dt_user_memory_free_all(&memory);
    assert_int_equal(memory_live(), before);
}

static void test_user_memory_is_the_backends_where_it_has_its_own(void **state)
{
    (void)state;
    fake_t fake = {.base.ops = &own_ops};
    dt_user_memory_t memory;
    void *block, *other = NULL;
    dt_user_memory_init(&memory, &fake.base, &no_gpu);
    assert_int_equal(dt_user_memory_alloc(&memory, 64, DTRAIN_DEVICE_CPU, &block), DTRAIN_OK);
    assert_ptr_equal(block, fake.block);
    assert_int_equal(dt_user_memory_alloc(&memory, 1, DTRAIN_DEVICE_CPU, &other),
                     DTRAIN_ERR_OUT_OF_MEMORY);
    assert_null(other);
    assert_int_equal(dt_user_memory_free(&memory, block), DTRAIN_OK);
    assert_int_equal(dt_user_memory_free(&memory, block), DTRAIN_ERR_INVALID_ARGUMENT);
    dt_user_memory_free_all(&memory);
}

static void test_user_memory_wrong_calls_are_refused(void **state)
{
    (void)state;
    fake_t fake = {.base.ops = &no_ops};
    dt_user_memory_t memory;
    void *block = &fake;
    dt_user_memory_init(&memory, &fake.base, &no_gpu);
    assert_int_equal(dt_user_memory_alloc(&memory, 8, DTRAIN_DEVICE_CPU, NULL),
                     DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_user_memory_alloc(&memory, 8, 3, &block), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_user_memory_alloc(&memory, SIZE_MAX, DTRAIN_DEVICE_CPU, &block),
                     DTRAIN_ERR_OUT_OF_MEMORY);
    memory_fail_at(1);
    assert_int_equal(dt_user_memory_alloc(&memory, 8, DTRAIN_DEVICE_CPU, &block),
                     DTRAIN_ERR_OUT_OF_MEMORY);
    memory_fail_at(0);
    assert_ptr_equal(block, &fake);
    dt_user_memory_free_all(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_user_memory_is_aligned_zeroed_and_usable),
        cmocka_unit_test(test_user_memory_free_of_what_is_not_out_is_refused),
        cmocka_unit_test(test_user_memory_gives_back_what_the_caller_did_not),
        cmocka_unit_test(test_user_memory_is_the_backends_where_it_has_its_own),
        cmocka_unit_test(test_user_memory_wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
