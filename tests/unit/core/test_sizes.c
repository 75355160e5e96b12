/* How ranks tell each other their rows: on few ranks, of which each hears all, and on many. The
 * collectives are carried out here, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/sizes.h"
#include "core/stand_in.h"

#define RANKS_MAX 40
#define OPS 3
#define ROW 2 /* elements, of 4 bytes */

typedef struct side {
    dt_operation_t operations[OPS];
    dt_operation_t *list[OPS];
    dt_staged_t *staged;
    dt_collective_t collective;
    dt_stage_t stage;
} side_t;

static dt_stand_in_t key = {.key = ""};
static side_t sides[RANKS_MAX];
static char memory[2][1 << 16]; /* never written: only addresses count */

static const dt_kind_t kinds[OPS] = {DT_KIND_ALLGATHER, DT_KIND_ALLTOALL, DT_KIND_GATHER};

/* Rows that rank `from` has for rank `to`, in operation i. */
static int64_t rows_of(int i, int from, int to)
{
    return kinds[i] == DT_KIND_ALLTOALL ? (from + 2 * to) % 3 : from % 4;
}

static void open_side(side_t *side, int rank, int size, int has_room)
{
    memset(side, 0, sizeof *side);
    for (int i = 0; i < OPS; i++) {
        dt_operation_t *operation = &side->operations[i];
        operation->signature = (dt_signature_t){
            .kind = (uint8_t)kinds[i], .dtype = DTRAIN_DTYPE_F32, .ndim = 2, .shape = {1, ROW}};
        operation->stand_in = &key;
        operation->root = 1;
        operation->in = memory[0];
        operation->bytes = 8;
        operation->out = has_room ? memory[1] : NULL;
        operation->room = has_room ? (int64_t)sizeof memory[1] : 0;
        operation->splits = calloc(2 * (size_t)size, sizeof *operation->splits);
        assert_non_null(operation->splits);
        for (int to = 0; to < size; to++)
            operation->splits[to] = rows_of(i, rank, to);
        side->list[i] = operation;
    }
    side->staged = dt_sizes_create(side->list, OPS, (dt_ranks_t){.rank = rank, .size = size});
    assert_non_null(side->staged);
}

static void close_side(side_t *side)
{
    side->staged->free(side->staged);
    for (int i = 0; i < OPS; i++) {
        dt_output_free(side->operations[i].owned);
        free(side->operations[i].splits);
    }
}

/* Moves int64 as the backend would. */
static void carry_out(int size)
{
    for (int to = 0; to < size; to++) {
        int64_t *out = sides[to].collective.pieces->out;
        int64_t count = sides[to].collective.counts[0];
        for (int from = 0; from < size; from++) {
            const int64_t *in = sides[from].collective.pieces->in;
            if (sides[from].collective.kind == DT_EXCHANGE)
                in += to * count;
            memmove(out + from * count, in, (size_t)count * sizeof *out);
        }
    }
}

/* Returns how many collectives it took: the same for all. */
static int run(int size)
{
    for (int collectives = 0;; collectives++) {
        for (int rank = 0; rank < size; rank++) {
            side_t *side = &sides[rank];
            assert_int_equal(side->staged->next(side->staged, &side->collective, &side->stage),
                             DTRAIN_OK);
            assert_int_equal(side->stage, sides[0].stage);
        }
        if (sides[0].stage == DT_STAGE_NONE)
            return collectives;
        carry_out(size);
    }
}

static void check_rows(int size)
{
    for (int rank = 0; rank < size; rank++) {
        for (int i = 0; i < OPS; i++) {
            const dt_operation_t *operation = &sides[rank].operations[i];
            int64_t total = 0;
            for (int from = 0; from < size; from++) {
                assert_int_equal(operation->splits[size + from], rows_of(i, from, rank));
                total += rows_of(i, from, rank);
            }
            int has_output = kinds[i] != DT_KIND_GATHER || rank == operation->root;
            assert_int_equal(operation->out_rows, has_output ? total : 0);
        }
    }
}

static void test_sizes_are_known_to_all_after_one_collective_where_outputs_have_room(void **state)
{
    (void)state;
    const int sizes[] = {2, 3, 32, 33, RANKS_MAX};
    for (int s = 0; s < 5; s++) {
        int size = sizes[s];
        for (int rank = 0; rank < size; rank++)
            open_side(&sides[rank], rank, size, 1);
        assert_int_equal(run(size), size <= 32 ? 1 : 2);
        check_rows(size);
        for (int rank = 0; rank < size; rank++) {
            char text[200];
            for (int i = 0; i < OPS; i++)
                assert_int_equal(dt_sizes_result(sides[rank].staged, i, text, sizeof text),
                                 DTRAIN_OK);
            close_side(&sides[rank]);
        }
    }
}

static void test_sizes_of_outputs_of_the_library_take_a_second_collective(void **state)
{
    (void)state;
    const int sizes[] = {2, 5, 33};
    for (int s = 0; s < 3; s++) {
        int size = sizes[s];
        for (int rank = 0; rank < size; rank++)
            open_side(&sides[rank], rank, size, rank != 1);
        assert_int_equal(run(size), 2);
        check_rows(size);
        assert_non_null(sides[1].operations[0].owned);
        for (int rank = 0; rank < size; rank++)
            close_side(&sides[rank]);
    }
}

/* One rank has too little room: all say so, with the same text. */
static void test_sizes_without_room_fail_alike_on_all_ranks(void **state)
{
    (void)state;
    const int sizes[] = {3, 32, 33};
    for (int s = 0; s < 3; s++) {
        int size = sizes[s];
        char first[200], text[200];
        for (int i = 0; i < OPS; i++) {
            for (int rank = 0; rank < size; rank++)
                open_side(&sides[rank], rank, size, 1);
            sides[1].operations[i].room = 4; /* it is read when it is told */
            assert_true(run(size) <= 2);
            for (int rank = 0; rank < size; rank++) {
                assert_int_equal(dt_sizes_result(sides[rank].staged, i, text, sizeof text),
                                 DTRAIN_ERR_INVALID_ARGUMENT);
                assert_non_null(strstr(text, "rank 1: the output has room for 4 bytes"));
                if (rank == 0)
                    memcpy(first, text, sizeof first);
                assert_string_equal(text, first);
                assert_int_equal(
                    dt_sizes_result(sides[rank].staged, (i + 1) % OPS, text, sizeof text),
                    DTRAIN_OK);
            }
            for (int rank = 0; rank < size; rank++)
                close_side(&sides[rank]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_known_to_all_after_one_collective_where_outputs_have_room),
        cmocka_unit_test(test_sizes_of_outputs_of_the_library_take_a_second_collective),
        cmocka_unit_test(test_sizes_without_room_fail_alike_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
