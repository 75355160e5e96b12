/* Memory that is handed out in a heap, and what is done with what comes back. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/status.h"
#include "comm/shm/shm_heap.h"
#include "comm/shm/shm_segment.h"
#include "shm_world.h"
#include "test_random.h"

#define PAGE DT_SHM_PAGE
#define PAGES 4096
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct fixture {
    dt_shm_node_t *node;
    uint8_t *memory;
    dt_shm_heap_t *heap;
} fixture_t;

static int set_up(void **state)
{
    static fixture_t fixture;
    if (dt_shm_local_group(1, PAGES * (int64_t)PAGE, &fixture.node) != DTRAIN_OK)
        return -1;
    fixture.memory = dt_shm_mapping_heap(fixture.node->mapping, 0);
    fixture.heap = dt_shm_heap_create(fixture.memory, PAGES * PAGE);
    *state = &fixture;
    return fixture.heap ? 0 : -1;
}

static int tear_down(void **state)
{
    fixture_t *fixture = *state;
    dt_shm_heap_free(fixture->heap);
    dt_shm_node_free(fixture->node);
    return 0;
}

static void assert_zeros(const uint8_t *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(memory[i], 0);
}

static void test_shm_heap_memory_is_aligned_zeroed_and_inside(void **state)
{
    fixture_t *fixture = *state;
    static const size_t sizes[] = {0, 1, PAGE - 1, PAGE, PAGE + 1, 10 * PAGE};
    uint8_t *before = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *memory = dt_shm_heap_allocate(fixture->heap, sizes[i]);
        assert_non_null(memory);
        assert_ptr_not_equal(memory, before);
        assert_int_equal((uintptr_t)memory % PAGE, 0);
        assert_true(dt_shm_heap_holds(fixture->heap, memory, sizes[i]));
        assert_zeros(memory, sizes[i]);
        memset(memory, 0xff, sizes[i]);
        before = memory;
    }
}

static void test_shm_heap_large_memory_starts_at_a_huge_page(void **state)
{
    fixture_t *fixture = *state;
    uint8_t *small = dt_shm_heap_allocate(fixture->heap, PAGE);
    uint8_t *large = dt_shm_heap_allocate(fixture->heap, HUGE_PAGE);
    uint8_t *between = dt_shm_heap_allocate(fixture->heap, PAGE);
    assert_non_null(large);
    assert_int_equal((uintptr_t)large % HUGE_PAGE, 0);
    assert_ptr_equal(between, small + PAGE);
}

static void test_shm_heap_released_memory_is_given_back_and_zeroed(void **state)
{
    fixture_t *fixture = *state;
    unsigned char resident[8];
    uint8_t *memory = dt_shm_heap_allocate(fixture->heap, 8 * PAGE);
    assert_non_null(memory);
    memset(memory, 0xff, 8 * PAGE);
    assert_int_equal(dt_shm_heap_release(fixture->heap, memory), 0);
    assert_int_equal(mincore(memory, 8 * PAGE, resident), 0);
    for (int i = 0; i < 8; i++)
        assert_false(resident[i] & 1);
    assert_ptr_equal(dt_shm_heap_allocate(fixture->heap, 8 * PAGE), memory);
    assert_zeros(memory, 8 * PAGE);
}

static void test_shm_heap_release_of_what_is_no_allocation_is_refused(void **state)
{
    fixture_t *fixture = *state;
    int local = 0;
    uint8_t *memory = dt_shm_heap_allocate(fixture->heap, 2 * PAGE);
    assert_non_null(memory);
    memory[0] = 1;
    assert_int_equal(dt_shm_heap_release(fixture->heap, NULL), -1);
    assert_int_equal(dt_shm_heap_release(fixture->heap, &local), -1);
    assert_int_equal(dt_shm_heap_release(fixture->heap, memory + 1), -1);
    assert_int_equal(dt_shm_heap_release(fixture->heap, memory + PAGE), -1);
    assert_int_equal(dt_shm_heap_release(fixture->heap, memory + 2 * PAGE), -1);
    assert_int_equal(memory[0], 1);
    assert_int_equal(dt_shm_heap_release(fixture->heap, memory), 0);
    assert_int_equal(dt_shm_heap_release(fixture->heap, memory), -1);
}

static void test_shm_heap_that_is_full_has_room_again_after_a_release(void **state)
{
    fixture_t *fixture = *state;
    assert_null(dt_shm_heap_allocate(fixture->heap, PAGES * PAGE + 1));
    assert_null(dt_shm_heap_allocate(fixture->heap, SIZE_MAX));
    void *all = dt_shm_heap_allocate(fixture->heap, PAGES * PAGE);
    assert_ptr_equal(all, fixture->memory);
    assert_null(dt_shm_heap_allocate(fixture->heap, 1));
    assert_int_equal(dt_shm_heap_release(fixture->heap, all), 0);
    assert_non_null(dt_shm_heap_allocate(fixture->heap, 1));
}

static void test_shm_heap_neighbours_that_were_released_are_one_range(void **state)
{
    fixture_t *fixture = *state;
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    for (int k = 0; k < 4; k++) {
        void *quarters[4];
        for (int i = 0; i < 4; i++) {
            quarters[i] = dt_shm_heap_allocate(fixture->heap, PAGES / 4 * PAGE);
            assert_non_null(quarters[i]);
        }
        for (int i = 0; i < 4; i++)
            assert_int_equal(dt_shm_heap_release(fixture->heap, quarters[orders[k][i]]), 0);
        void *all = dt_shm_heap_allocate(fixture->heap, PAGES * PAGE);
        assert_non_null(all);
        assert_int_equal(dt_shm_heap_release(fixture->heap, all), 0);
    }
}

static void test_shm_heap_holds_only_what_is_wholly_inside(void **state)
{
    fixture_t *fixture = *state;
    const size_t all = PAGES * PAGE;
    assert_true(dt_shm_heap_holds(fixture->heap, fixture->memory, all));
    assert_true(dt_shm_heap_holds(fixture->heap, fixture->memory + all - 1, 1));
    assert_false(dt_shm_heap_holds(fixture->heap, fixture->memory + all - 1, 2));
    assert_false(dt_shm_heap_holds(fixture->heap, fixture->memory - 1, 1));
    assert_false(dt_shm_heap_holds(fixture->heap, fixture->memory, all + 1));
    assert_false(dt_shm_heap_holds(fixture->heap, fixture->memory + 1, SIZE_MAX));
    assert_false(dt_shm_heap_holds(fixture->heap, &fixture, 1));
}

/* Allocates and releases at random, and keeps its mark in all that it has. */
typedef struct user {
    dt_shm_heap_t *heap;
    uint64_t random;
    uint8_t mark;
    int failures;
} user_t;

#define HELD 16

static void use(user_t *user, uint8_t **held, size_t *sizes, int at)
{
    if (held[at]) {
        user->failures += held[at][0] != user->mark || held[at][sizes[at] - 1] != user->mark;
        user->failures += dt_shm_heap_release(user->heap, held[at]) != 0;
        held[at] = NULL;
        return;
    }
    sizes[at] = 1 + (size_t)(test_random(&user->random) % (40 * PAGE));
    held[at] = dt_shm_heap_allocate(user->heap, sizes[at]);
    if (!held[at])
        return;
    user->failures += held[at][0] != 0 || held[at][sizes[at] - 1] != 0;
    memset(held[at], user->mark, sizes[at]);
}

static void *user_main(void *context)
{
    user_t *user = context;
    uint8_t *held[HELD] = {0};
    size_t sizes[HELD];
    for (int i = 0; i < 2000; i++)
        use(user, held, sizes, (int)(test_random(&user->random) % HELD));
    for (int i = 0; i < HELD; i++) {
        if (held[i])
            use(user, held, sizes, i);
    }
    return NULL;
}

static void test_shm_heap_of_several_threads_gives_each_its_own(void **state)
{
    fixture_t *fixture = *state;
    user_t users[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        users[i] = (user_t){fixture->heap, (uint64_t)i, (uint8_t)(i + 1), 0};
        assert_int_equal(pthread_create(&threads[i], NULL, user_main, &users[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].failures, 0);
    }
    assert_non_null(dt_shm_heap_allocate(fixture->heap, PAGES * PAGE));
}

#define test_of_a_heap(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_a_heap(test_shm_heap_memory_is_aligned_zeroed_and_inside),
        test_of_a_heap(test_shm_heap_large_memory_starts_at_a_huge_page),
        test_of_a_heap(test_shm_heap_released_memory_is_given_back_and_zeroed),
        test_of_a_heap(test_shm_heap_release_of_what_is_no_allocation_is_refused),
        test_of_a_heap(test_shm_heap_that_is_full_has_room_again_after_a_release),
        test_of_a_heap(test_shm_heap_neighbours_that_were_released_are_one_range),
        test_of_a_heap(test_shm_heap_holds_only_what_is_wholly_inside),
        test_of_a_heap(test_shm_heap_of_several_threads_gives_each_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
