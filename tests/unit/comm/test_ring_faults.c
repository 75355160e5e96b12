#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "comm/loopback/loopback.h"
#include "comm/ring/ring.h"
#include "jitter_p2p.h"

#define RANKS 2
#define COUNT 20000

/* ---- Memory that can run out: the linker puts these in front of base/memory.c's ---------------
 */

static int allocations_left = -1; /* -1: no limit */
static int num_allocations;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
void *__real_dt_calloc(size_t count, size_t bytes);
void *__wrap_dt_calloc(size_t count, size_t bytes);
void *__real_dt_alloc_aligned(size_t align, size_t bytes);
void *__wrap_dt_alloc_aligned(size_t align, size_t bytes);

static int may_allocate(void)
{
    num_allocations++;
    return allocations_left < 0 || allocations_left-- > 0;
}

void *__wrap_dt_calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __real_dt_calloc(count, bytes) : NULL;
}

void *__wrap_dt_alloc_aligned(size_t align, size_t bytes)
{
    return may_allocate() ? __real_dt_alloc_aligned(align, bytes) : NULL;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- Two rings
 * ----------------------------------------------------------------------------------- */

typedef struct fixture {
    dt_loopback_t *loopback;
    jitter_report_t reports[RANKS];
    dt_backend_t *backends[RANKS];
    float *buffers[RANKS];
    dt_piece_t pieces[RANKS];
    dt_task_t *tasks[RANKS];
} fixture_t;

/* Rank 1's transport fails after so many tests; -1: never. */
static void open_rings(fixture_t *f, int64_t fail_after)
{
    const dt_ring_tuning_t tuning = {.segment_bytes = 4096, .direct_bytes = -1};
    memset(f, 0, sizeof *f);
    f->loopback = dt_loopback_create(RANKS, 1);
    assert_non_null(f->loopback);
    for (int rank = 0; rank < RANKS; rank++) {
        dt_p2p_t *p2p;
        assert_int_equal(dt_loopback_p2p(f->loopback, rank, &p2p), DTRAIN_OK);
        p2p = jitter_p2p_create(p2p, 1, rank == 1 ? fail_after : -1, &f->reports[rank]);
        assert_non_null(p2p);
        assert_int_equal(dt_ring_create(p2p, &tuning, &f->backends[rank]), DTRAIN_OK);
        f->buffers[rank] = calloc(COUNT, sizeof(float));
        f->pieces[rank] = (dt_piece_t){f->buffers[rank], f->buffers[rank], COUNT};
    }
}

static void close_ring(fixture_t *f, int rank)
{
    if (!f->backends[rank])
        return;
    f->backends[rank]->ops->destroy(f->backends[rank], 0);
    free(f->buffers[rank]);
    f->backends[rank] = NULL;
}

static void close_rings(fixture_t *f)
{
    for (int rank = 0; rank < RANKS; rank++)
        close_ring(f, rank);
    dt_loopback_free(f->loopback);
}

static dtrain_status_t start(fixture_t *f, int rank, uint64_t sequence, int64_t count)
{
    f->pieces[rank].count = count;
    dt_collective_t collective = {
        .kind = DT_ALLREDUCE,
        .sequence = sequence,
        .reduction = {DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 1, 1, 1},
        .pieces = &f->pieces[rank],
        .num_pieces = 1,
        .count = count,
    };
    return f->backends[rank]->ops->start(f->backends[rank], &collective, &f->tasks[rank]);
}

static dtrain_status_t progress(fixture_t *f, int rank)
{
    return f->backends[rank]->ops->progress(f->backends[rank], f->tasks[rank]);
}

static void release(fixture_t *f, int rank)
{
    f->backends[rank]->ops->release(f->backends[rank], f->tasks[rank]);
}

static void run_one(fixture_t *f, uint64_t sequence)
{
    dtrain_status_t status[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(start(f, rank, sequence, COUNT), DTRAIN_OK);
    do {
        for (int rank = 0; rank < RANKS; rank++) {
            status[rank] = progress(f, rank);
            assert_true(status[rank] >= 0);
        }
    } while (status[0] != DTRAIN_OK || status[1] != DTRAIN_OK);
    for (int rank = 0; rank < RANKS; rank++)
        release(f, rank);
}

/* ---- Tests
 * ---------------------------------------------------------------------------------------- */

static void test_ring_transport_error_fails_the_task_for_good(void **state)
{
    fixture_t f;
    dtrain_status_t status = DTRAIN_IN_PROGRESS;
    (void)state;
    open_rings(&f, 20);
    assert_int_equal(start(&f, 0, 0, COUNT), DTRAIN_OK);
    assert_int_equal(start(&f, 1, 0, COUNT), DTRAIN_OK);
    for (int i = 0; i < 1000 && status == DTRAIN_IN_PROGRESS; i++) {
        assert_int_equal(progress(&f, 0), DTRAIN_IN_PROGRESS);
        status = progress(&f, 1);
    }
    assert_int_equal(status, DTRAIN_ERR_COMMUNICATION);
    assert_string_equal(dt_last_error(), "the cable was pulled");
    assert_int_equal(progress(&f, 1), DTRAIN_ERR_COMMUNICATION);
    release(&f, 1);
    close_rings(&f);
}

/* Given up half way, with messages under way both ways; a sanitizer sees if any lands later. */
static void test_ring_task_that_is_given_up_touches_nothing_after_destroy(void **state)
{
    (void)state;
    for (int num_calls = 0; num_calls < 40; num_calls++) {
        fixture_t f;
        open_rings(&f, -1);
        assert_int_equal(start(&f, 0, 0, COUNT), DTRAIN_OK);
        assert_int_equal(start(&f, 1, 0, COUNT), DTRAIN_OK);
        for (int i = 0; i < num_calls; i++) {
            progress(&f, 0);
            progress(&f, 1);
        }
        release(&f, 1);
        close_ring(&f, 1);
        for (int i = 0; i < 40; i++)
            assert_true(progress(&f, 0) >= 0);
        release(&f, 0);
        close_rings(&f);
    }
}

static void test_ring_start_without_memory_fails_and_works_later(void **state)
{
    fixture_t f;
    (void)state;
    open_rings(&f, -1);
    for (int left = 0; left < 2; left++) {
        allocations_left = left;
        assert_int_equal(start(&f, 0, 0, COUNT), DTRAIN_ERR_OUT_OF_MEMORY);
        assert_string_not_equal(dt_last_error(), "");
    }
    allocations_left = -1;
    run_one(&f, 0);
    close_rings(&f);
}

static void test_ring_create_without_memory_gives_the_transport_back(void **state)
{
    (void)state;
    dt_p2p_t *p2p;
    dt_backend_t *backend;
    dt_loopback_t *loopback = dt_loopback_create(2, 1);
    assert_int_equal(dt_loopback_p2p(loopback, 0, &p2p), DTRAIN_OK);
    allocations_left = 0;
    dtrain_status_t status = dt_ring_create(p2p, NULL, &backend);
    allocations_left = -1;
    assert_int_equal(status, DTRAIN_ERR_OUT_OF_MEMORY);
    dt_loopback_free(loopback);
}

static void test_ring_collective_after_the_first_allocates_nothing(void **state)
{
    fixture_t f;
    (void)state;
    open_rings(&f, -1);
    run_one(&f, 0);
    for (uint64_t sequence = 1; sequence < 4; sequence++) {
        int before = num_allocations;
        assert_int_equal(start(&f, 0, sequence, COUNT), DTRAIN_OK);
        assert_int_equal(num_allocations, before);
        assert_int_equal(start(&f, 1, sequence, COUNT), DTRAIN_OK);
        assert_int_equal(num_allocations, before);
        while (progress(&f, 0) + progress(&f, 1) > 0)
            ;
        release(&f, 0);
        release(&f, 1);
    }
    close_rings(&f);
}

static void test_ring_more_tasks_than_tags_are_refused(void **state)
{
    fixture_t f;
    dt_task_t *tasks[256];
    (void)state;
    open_rings(&f, -1);
    for (uint64_t sequence = 0; sequence < 256; sequence++) {
        assert_int_equal(start(&f, 0, sequence, 0), DTRAIN_OK);
        tasks[sequence] = f.tasks[0];
    }
    assert_int_equal(start(&f, 0, 256, 0), DTRAIN_ERR_INTERNAL);
    f.tasks[0] = tasks[0];
    assert_int_equal(progress(&f, 0), DTRAIN_OK);
    release(&f, 0);
    assert_int_equal(start(&f, 0, 256, 0), DTRAIN_OK);
    close_rings(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_transport_error_fails_the_task_for_good),
        cmocka_unit_test(test_ring_task_that_is_given_up_touches_nothing_after_destroy),
        cmocka_unit_test(test_ring_start_without_memory_fails_and_works_later),
        cmocka_unit_test(test_ring_create_without_memory_gives_the_transport_back),
        cmocka_unit_test(test_ring_collective_after_the_first_allocates_nothing),
        cmocka_unit_test(test_ring_more_tasks_than_tags_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
