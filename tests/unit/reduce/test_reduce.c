/* Every type, operation and instruction set against the reference. Buffers have a wrong
 * alignment and guarded ends, and destinations lie on sources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/dtype.h"
#include "base/isa.h"
#include "reduce/reduce.h"
#include "reference.h"

#define MOST 4211       /* elements: more than two tiles of the narrowest type */
#define MOST_SOURCES 17 /* 1 to 9, and two with a deeper tree */
#define GUARD 64        /* bytes behind a buffer that must stay as they are */
#define GUARD_BYTE 0xa5
#define BUFFER_BYTES (8 * (MOST + 1) + GUARD)

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};

static const size_t sizes[] = {0,   1,   2,    3,    4,    5,    7,    8,    9,    15,   16,  17,
                               31,  32,  33,   63,   64,   65,   67,   127,  129,  255,  256, 257,
                               511, 513, 1021, 1023, 1025, 2047, 2048, 2049, 4095, 4097, MOST};
#define NUM_SIZES (sizeof sizes / sizeof sizes[0])

/* Values of all ranks, the result expected, and copies for the call to work on. */
static uint64_t input[MOST_SOURCES][MOST];
static uint64_t expected[MOST];
static uint64_t work[MOST_SOURCES][BUFFER_BYTES / 8 + 1];
static uint64_t outside[3][BUFFER_BYTES / 8 + 1];

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717u;
}

/* Bits of a zero, infinity, NaN, greatest, least normal or least subnormal. */
static uint64_t special_float(dtrain_dtype_t dtype, uint64_t pick)
{
    static const uint64_t f16[] = {0, 0x7c00, 0x7e01, 0x7c01, 0x7bff, 0x0400, 1, 0x3c00};
    static const uint64_t bf16[] = {0, 0x7f80, 0x7fc1, 0x7f81, 0x7f7f, 0x0080, 1, 0x3f80};
    static const uint64_t f32[] = {0,          0x7f800000, 0x7fc00001, 0x7f800001,
                                   0x7f7fffff, 0x00800000, 1,          0x3f800000};
    static const uint64_t f64[] = {0,
                                   0x7ff0000000000000,
                                   0x7ff8000000000001,
                                   0x7ff0000000000001,
                                   0x7fefffffffffffff,
                                   0x0010000000000000,
                                   1,
                                   0x3ff0000000000000};
    const uint64_t *table = dtype == DTRAIN_DTYPE_F16    ? f16
                            : dtype == DTRAIN_DTYPE_BF16 ? bf16
                            : dtype == DTRAIN_DTYPE_F32  ? f32
                                                         : f64;
    return table[pick % 8];
}

/* Of each rank's values some are special, some of any size, most near 1 so that sums round. */
static uint64_t random_element(dtrain_dtype_t dtype)
{
    uint64_t bits = random_bits();
    if (!dt_dtype_is_float(dtype))
        return dtype == DTRAIN_DTYPE_BOOL && bits % 2 ? 0 : bits >> 3;
    uint64_t sign = bits & 1 ? (uint64_t)1 << (8 * dt_dtype_size(dtype) - 1) : 0;
    if (bits % 32 < 2)
        return sign | special_float(dtype, bits >> 8);
    if (bits % 32 < 8)
        return bits >> 3;
    uint64_t least_normal = special_float(dtype, 5), one = special_float(dtype, 7);
    uint64_t mantissa = random_bits() & (least_normal - 1);
    return sign | ((one | mantissa) - least_normal * (bits >> 8 & 3));
}

static void make_inputs(dtrain_dtype_t dtype, int num_sources)
{
    size_t size = dt_dtype_size(dtype);
    for (int s = 0; s < num_sources; s++) {
        for (size_t i = 0; i < MOST; i++) {
            uint64_t element = random_element(dtype);
            memcpy((char *)input[s] + i * size, &element, size);
        }
    }
}

static void make_expected(const dt_reduction_t *reduction, int num_sources)
{
    const void *sources[MOST_SOURCES];
    for (int s = 0; s < num_sources; s++)
        sources[s] = input[s];
    for (size_t i = 0; i < MOST; i++)
        reference_reduce(reduction, expected, sources, num_sources, i);
}

/* How one call is made: destination d is the source on_source + d, where there is such a one. */
typedef struct form {
    int num_sources;
    int num_destinations;
    int on_source; /* -1: all destinations lie outside */
    size_t offset; /* elements by which all buffers are moved */
    size_t count;
} form_t;

static void fail_with(const dt_reduction_t *reduction, const form_t *form, size_t index, int d)
{
    fail_msg("%s of %s on %s, scales %g and %g, %d sources, %zu elements: element %zu of "
             "destination %d (of %d, from source %d on) is wrong",
             dt_op_name(reduction->op), dt_dtype_name(reduction->dtype), dt_isa_name(),
             reduction->prescale, reduction->postscale, form->num_sources, form->count, index, d,
             form->num_destinations, form->on_source);
}

static void check_destination(const dt_reduction_t *reduction, const form_t *form, const char *out,
                              int d)
{
    dtrain_dtype_t dtype = reduction->dtype;
    int may_be_a_copy = form->num_sources == 1;
    for (size_t i = 0; i < form->count; i++)
        if (!reference_same(dtype, out, expected, i) ||
            (!may_be_a_copy && reference_is_signalling(dtype, out, i)))
            fail_with(reduction, form, i, d);
    const char *end = out + form->count * dt_dtype_size(dtype);
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)end[i] != GUARD_BYTE)
            fail_with(reduction, form, form->count + i, d);
}

static void check_form(const dt_reduction_t *reduction, const form_t *form)
{
    size_t size = dt_dtype_size(reduction->dtype);
    const void *sources[MOST_SOURCES];
    void *destinations[3];
    for (int s = 0; s < form->num_sources; s++) {
        char *copy = (char *)work[s] + form->offset * size;
        memcpy(copy, input[s], form->count * size);
        memset(copy + form->count * size, GUARD_BYTE, GUARD);
        sources[s] = copy;
    }
    for (int d = 0; d < form->num_destinations; d++) {
        int source = form->on_source < 0 ? form->num_sources : form->on_source + d;
        destinations[d] = (char *)outside[d] + form->offset * size;
        if (source < form->num_sources)
            destinations[d] = (char *)work[source] + form->offset * size;
        else
            memset(destinations[d], GUARD_BYTE, form->count * size + GUARD);
    }
    dt_reduce(reduction, destinations, form->num_destinations, sources, form->num_sources,
              form->count);
    for (int d = 0; d < form->num_destinations; d++)
        check_destination(reduction, form, destinations[d], d);
}

/* All sizes, each in another form; then all forms at one size. */
static void check_forms(const dt_reduction_t *reduction, int num_sources)
{
    static int turn;
    for (size_t i = 0; i < NUM_SIZES; i++, turn++) {
        form_t form = {.num_sources = num_sources,
                       .num_destinations = 1 + turn % 3,
                       .on_source = turn % (num_sources + 1) - 1,
                       .offset = (size_t)turn % 2,
                       .count = sizes[i]};
        check_form(reduction, &form);
    }
    for (int on_source = -1; on_source < num_sources; on_source++) {
        for (int destinations = 1; destinations <= 3; destinations++) {
            form_t form = {num_sources, destinations, on_source, 1, 333};
            check_form(reduction, &form);
        }
    }
}

static int has_isa(const char *isa)
{
    assert_int_equal(dt_isa_set_cap(isa), 0);
    return strcmp(dt_isa_name(), isa) == 0;
}

static void check_reduction(dtrain_dtype_t dtype, dtrain_op_t op, double prescale, double postscale,
                            int num_sources)
{
    dt_reduction_t reduction = {.dtype = dtype,
                                .op = op,
                                .divisor = op == DTRAIN_OP_AVERAGE ? num_sources : 1,
                                .prescale = prescale,
                                .postscale = postscale};
    if (dt_reduction_check(&reduction) != DTRAIN_OK)
        return;
    make_inputs(dtype, num_sources);
    make_expected(&reduction, num_sources);
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        if (has_isa(isas[i]))
            check_forms(&reduction, num_sources);
}

static void check_type(dtrain_dtype_t dtype)
{
    static const double scales[][2] = {{0.5, 1}, {1, 3}, {0.1, 1 / 3.0}, {-1e20, -1e-19}, {0, 7}};
    static const int num_sources[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, MOST_SOURCES};
    for (int op = 0; op < DT_OP_COUNT; op++) {
        for (size_t n = 0; n < sizeof num_sources / sizeof num_sources[0]; n++)
            check_reduction(dtype, (dtrain_op_t)op, 1, 1, num_sources[n]);
        for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
            for (int n = 1; n <= 5; n++)
                check_reduction(dtype, (dtrain_op_t)op, scales[i][0], scales[i][1], n);
    }
}

static void test_reduce_integers_on_every_isa_match_the_reference(void **state)
{
    (void)state;
    check_type(DTRAIN_DTYPE_U8);
    check_type(DTRAIN_DTYPE_I8);
    check_type(DTRAIN_DTYPE_U16);
    check_type(DTRAIN_DTYPE_I16);
    check_type(DTRAIN_DTYPE_I32);
    check_type(DTRAIN_DTYPE_I64);
    check_type(DTRAIN_DTYPE_BOOL);
}

static void test_reduce_f16_on_every_isa_matches_the_reference(void **state)
{
    (void)state;
    check_type(DTRAIN_DTYPE_F16);
}

static void test_reduce_bf16_on_every_isa_matches_the_reference(void **state)
{
    (void)state;
    check_type(DTRAIN_DTYPE_BF16);
}

static void test_reduce_f32_on_every_isa_matches_the_reference(void **state)
{
    (void)state;
    check_type(DTRAIN_DTYPE_F32);
}

static void test_reduce_f64_on_every_isa_matches_the_reference(void **state)
{
    (void)state;
    check_type(DTRAIN_DTYPE_F64);
}

static int restore_isa(void **state)
{
    (void)state;
    return dt_isa_set_cap("auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_integers_on_every_isa_match_the_reference),
        cmocka_unit_test(test_reduce_f16_on_every_isa_matches_the_reference),
        cmocka_unit_test(test_reduce_bf16_on_every_isa_matches_the_reference),
        cmocka_unit_test(test_reduce_f32_on_every_isa_matches_the_reference),
        cmocka_unit_test(test_reduce_f64_on_every_isa_matches_the_reference),
    };
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        print_message("%s: %s\n", isas[i], has_isa(isas[i]) ? "tested" : "skipped, not here");
    return cmocka_run_group_tests(tests, NULL, restore_isa);
}
